-- name: receive
-- Parallel arrays, one element per post; $8 has the items of all, each with the number of its post from 1.
SELECT outcomes, noted, appended, unlinked FROM receive_feedback($1, $2, $3, $4, $5, $6, $7, $8)

-- name: link
SELECT linked, given_up, appended, due_in FROM link_feedback($1)

-- name: known
SELECT EXISTS (SELECT FROM webhook_inbox WHERE provider = $1 AND digest = $2)

-- name: payloads
-- Those with ids above $1, of one provider or of all (null), all of them or those with a fault.
SELECT id, provider, payload FROM webhook_inbox
WHERE id > $1 AND payload IS NOT NULL AND ($2::text IS NULL OR provider = $2) AND (NOT $3 OR fault IS NOT NULL) ORDER BY id LIMIT $4

-- name: reread
SELECT added, changed FROM reread_feedback($1, $2, $3)

-- name: unlinked
-- What no delivery was found for: the latest first, with when it is looked for again.
SELECT id, inbox_id, provider, kind, message_id, occurred_at, noted_at, tries, link_at FROM feedback
WHERE campaign_id IS NULL AND kind <> 'control' AND ($1::bigint IS NULL OR id < $1) ORDER BY id DESC LIMIT $2

-- name: forget
SELECT forget_payloads($1, $2)
