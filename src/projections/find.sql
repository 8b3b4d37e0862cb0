-- name: campaigns_named
-- More than one where a standing campaign has gone on under the same name.
SELECT id, name FROM campaigns WHERE name = $1 ORDER BY id DESC LIMIT $2

-- name: campaign_with_id
SELECT id, name FROM campaigns WHERE id = $1

-- name: recipients_with_key
SELECT delivery_id, recipient_key, email FROM recipients WHERE campaign_id = $1 AND recipient_key = $2 LIMIT $3

-- name: recipients_with_address
-- One at most in a bulk campaign, whose index tells at once; any number in a standing one. $2 is in normal form.
SELECT r.delivery_id, r.recipient_key, r.email
FROM (SELECT (SELECT address_hash($2)) AS hash) a, recipients r  -- a sub-select: hashed once
WHERE r.campaign_id = $1 AND (r.once_hash = a.hash OR (r.once_hash IS NULL AND r.address_hash = a.hash))
ORDER BY r.delivery_id DESC LIMIT $3

-- name: recipient_with_id
-- Whatever knows the delivery: the log does when all else is gone.
SELECT d.id, r.recipient_key, r.email
FROM (SELECT $2::bigint AS id) d LEFT JOIN recipients r ON r.campaign_id = $1 AND r.delivery_id = d.id
WHERE r.delivery_id IS NOT NULL
   OR EXISTS (SELECT FROM recipient_queue q WHERE q.campaign_id = $1 AND q.delivery_id = d.id)
   OR (d.id <> 0 AND EXISTS (SELECT FROM events e WHERE e.campaign_id = $1 AND e.delivery_id = d.id))
