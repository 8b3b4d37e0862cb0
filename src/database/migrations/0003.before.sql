-- Before the step to version 3, as in 0002.before.sql: the index that 0003.sql makes on the partitioned table takes this for its own.

-- name: events_message
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_1_expr_idx ON events_1 ((body ->> 'message_id'))
    WHERE type = 'Sent' AND left(body ->> 'message_id', 1) <> '<'
