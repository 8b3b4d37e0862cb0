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
WHERE p.campaign_id = $1

-- name: minutes
-- The latest first; a minute in which nothing was sent has no row.
SELECT minute, sent FROM progress_minutes WHERE campaign_id = $1 ORDER BY minute DESC LIMIT $2
