-- name: by_id
-- A campaign with its letter and sender; the password stands apart.
SELECT c.id, c.name, c.generation, c.kind, c.status::text, c.version, c.pause_reason, c.resume_at, c.unknown, c.attempts, c.max_deferred,
       c.give_up, c.priority, c.list_id, c.expires, c.missed_after, c.max_errors, c.track, c.mail_from, c.reply_to, c.template, c.sender_id,
       c.created_at, c.starts_at, c.started_at, c.finished_at,
       t.subject, t.html, t.text, s.name AS sender_name, s.url AS sender_url, rate_text(s.rate_count, s.rate_per) AS rate,
       l.name AS list_name
FROM campaigns c JOIN templates t ON t.hash = c.template JOIN senders s ON s.id = c.sender_id LEFT JOIN lists l ON l.id = c.list_id
WHERE c.id = $1

-- name: newest_named
SELECT id FROM campaigns WHERE name = $1 ORDER BY generation DESC LIMIT 1

-- name: page
-- Newest first, below a given id.
SELECT id FROM campaigns WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2

-- name: counts
SELECT audience, pending, sending, sent, failed, skipped, cancelled, unknown FROM campaign_progress WHERE campaign_id = $1

-- name: name_of
SELECT name FROM campaigns WHERE id = $1

-- name: status
SELECT status::text FROM campaigns WHERE id = $1

-- name: keep_template
INSERT INTO templates (hash, subject, html, text) VALUES ($1, $2, $3, $4) ON CONFLICT (hash) DO NOTHING

-- name: keep_sender
-- The same URL is the same sender; its password may have changed.
INSERT INTO senders (name, url, secret) VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET secret = excluded.secret
RETURNING id

-- name: set_rate
SELECT set_rate($1, $2, $3)

-- name: sender_secret
SELECT url, secret FROM senders WHERE id = $1

-- name: draft
-- Lengths of time in seconds alone: a day has 24 hours, whatever the clocks of the session's zone do.
SELECT draft_campaign($1, $2, $3, $4, $5, $6, $7, $8, $9, make_interval(secs => $10), $11, $15, make_interval(secs => $12),
                      make_interval(secs => $13), $14, $16)

-- name: redraft
-- A letter may change until the campaign starts; change_campaign records it.
UPDATE campaigns SET template = $2, sender_id = $3, mail_from = $4, reply_to = $5, unknown = $6, attempts = $7, max_deferred = $8,
    give_up = make_interval(secs => $9), priority = $10, expires = make_interval(secs => $11),
    missed_after = make_interval(secs => $12), max_errors = $13, list_id = $14, track = $15
WHERE id = $1

-- name: change
SELECT change_campaign($1, $2, $3, $4)

-- name: pause
-- For so long by the database's clock. While this waits for whoever adds people, every outcome of the campaign waits behind it:
-- so it does not wait for long (SQLSTATE 55P03).
SELECT pause_campaign($1, $2, $3) FROM (SELECT set_config('lock_timeout', '150ms', true)) AS patience

-- name: requeue
SELECT requeue($1, $2, $3, $4)

-- name: finish
SELECT finish_campaign($1)

-- name: sweep_cancelled
-- A cancelled campaign's waiting rows, so many at a time, where no worker does it.
SELECT cancelled FROM claim($1, $2, $3, $4, false)

-- name: enqueue_import
SELECT rows, accepted, duplicate_key, duplicate_address, invalid, suppressed FROM enqueue_import($1, $2)

-- name: rejected_lines
SELECT line, outcome, reason FROM import_rows WHERE import_id = $1 AND outcome IS NOT NULL ORDER BY line LIMIT $2

-- name: forget_import
DELETE FROM import_rows WHERE import_id = $1

-- name: never_given
-- Which of these variables no recipient's data has.
SELECT v.name FROM unnest($2::text[]) AS v(name)
WHERE NOT EXISTS (SELECT FROM recipients r WHERE r.campaign_id = $1 AND r.data ? v.name)

-- name: recipients
-- In delivery order, above a given id; $3 null: any status.
SELECT q.delivery_id, r.recipient_key, r.email, r.name, q.status::text, q.attempt, q.due_at, q.version
FROM recipient_queue q LEFT JOIN recipients r USING (campaign_id, delivery_id)
WHERE q.campaign_id = $1 AND q.delivery_id > $2 AND ($3::text IS NULL OR q.status::text = $3)
ORDER BY q.delivery_id LIMIT $4

-- name: suppress
SELECT address_hash($1), suppress($1, $2, $3)

-- name: secret
SELECT inner_key FROM secrets WHERE name = $1
