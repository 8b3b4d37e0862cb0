-- name: sender_called
-- By its name, which may be its URL; else by its number.
SELECT id, name, url, secret, mail_from, rate_text(rate_count, rate_per) AS rate, created_at FROM senders
WHERE name = $1 OR id::text = $1 ORDER BY name = $1 DESC LIMIT 1
