-- name: server
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int / 10000 AS major,
       current_setting('server_encoding') AS encoding

-- name: powers
-- What the role we work as may do to the log: it must be able to append, and to nothing else.
SELECT current_user::text AS role, has_column_privilege('events', 'body', 'INSERT') AS appends,
       has_table_privilege('events', 'UPDATE') OR has_any_column_privilege('events', 'UPDATE')
       OR has_table_privilege('events', 'DELETE') OR has_table_privilege('events', 'TRUNCATE') AS changes

-- name: epoch
SELECT max(epoch) FROM epochs

-- name: foreign_epoch
SELECT foreign_epoch()

-- name: channel
SELECT wake_channel() || '_doctor_' || pg_backend_pid()

-- name: queue_usage
SELECT pg_notification_queue_usage()

-- name: notify
SELECT pg_notify($1, '')

-- name: senders
-- Those that mails may still leave by: a relay that served an old campaign may be gone for good reasons.
SELECT s.id, s.name FROM senders s
WHERE EXISTS (SELECT FROM campaigns c WHERE c.sender_id = s.id AND c.status NOT IN ('completed', 'cancelled'))
ORDER BY s.id

-- name: webhooks
SELECT (SELECT max(received_at) FROM webhook_inbox WHERE id = (SELECT max(id) FROM webhook_inbox)) AS last_at,
       (SELECT count(*) FROM webhook_inbox WHERE fault IS NOT NULL) AS faults,
       (SELECT count(*) FROM feedback WHERE link_at IS NOT NULL) AS waiting
