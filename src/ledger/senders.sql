-- name: page
-- In the order in which they were made, above a given id; never the secret, only whether there is one.
SELECT id, name, url, secret, mail_from, rate_text(rate_count, rate_per) AS rate, created_at
FROM senders WHERE id > $1 ORDER BY id LIMIT $2

-- name: by_id
SELECT id, name, url, secret, mail_from, rate_text(rate_count, rate_per) AS rate, created_at FROM senders WHERE id = $1

-- name: lock
-- Who changes a sender takes turns with whoever changes another, or writes to the system's stream in another way.
SELECT pg_advisory_xact_lock(lock_key('system'))

-- name: new
-- No row: a sender of this name is there.
INSERT INTO senders (name, url, secret, mail_from) VALUES ($1, $2, $3, $4) ON CONFLICT (name) DO NOTHING RETURNING id

-- name: change
-- Another password, which workers take when they open the sender next, or another From.
UPDATE senders SET secret = $2, mail_from = $3 WHERE id = $1

-- name: changed
-- The event, which says no more than which sender it was.
SELECT append_system('SenderChanged', jsonb_build_object('sender', $1::bigint::text))
