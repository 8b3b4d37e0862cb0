-- name: follow
-- One page; how many events it had, null when somebody else is at it.
SELECT follow_progress($1)

-- name: read
-- Counts, times, and up to which block they hold.
SELECT p.pending, p.sending, p.sent, p.failed, p.skipped, p.cancelled, p.unknown,
       p.first_at, p.last_at, p.first_sent_at, p.last_sent_at, b.block_no, b.sealed_at
FROM progress p
JOIN followers f ON f.name = 'progress'
JOIN blocks b ON b.lane = f.lane AND b.block_no = f.block_no
WHERE p.campaign_id = $1 AND p.first_at IS NOT NULL

-- name: minutes
-- The latest first, those in which something was sent.
SELECT minute, sent FROM progress_minutes WHERE campaign_id = $1 AND sent > 0 ORDER BY minute DESC LIMIT $2

-- name: lock
-- Waits for whoever is at it.
SELECT FROM followers WHERE name = 'progress' FOR UPDATE

-- name: clear_counts
-- Nobody may take rows away here; one that says nothing is as none.
UPDATE progress SET pending = 0, sending = 0, sent = 0, failed = 0, skipped = 0, cancelled = 0, unknown = 0,
    first_at = NULL, last_at = NULL, first_sent_at = NULL, last_sent_at = NULL

-- name: clear_minutes
UPDATE progress_minutes SET sent = 0

-- name: begin_again
UPDATE followers SET block_no = 0, position = 0, moved_at = clock() WHERE name = 'progress'
