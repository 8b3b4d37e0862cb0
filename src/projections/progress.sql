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

-- name: standing
-- How some campaigns stand, and up to which block that holds: of all of them the same, since the follower is one.
SELECT c.id AS campaign_id, c.status::text, coalesce(p.pending, 0) AS pending, coalesce(p.sending, 0) AS sending,
       coalesce(p.sent, 0) AS sent, coalesce(p.failed, 0) AS failed, coalesce(p.skipped, 0) AS skipped,
       coalesce(p.cancelled, 0) AS cancelled, coalesce(p.unknown, 0) AS unknown, p.first_sent_at, p.last_sent_at,
       f.block_no, f.position, b.sealed_at
FROM campaigns c LEFT JOIN progress p ON p.campaign_id = c.id CROSS JOIN followers f
LEFT JOIN blocks b ON b.lane = f.lane AND b.block_no = f.block_no
WHERE c.id = ANY ($1::bigint[]) AND f.name = 'progress' ORDER BY c.id

-- name: active
-- Those that something is about to happen to, the newest first.
SELECT id FROM campaigns WHERE status IN ('scheduled', 'sending', 'paused') ORDER BY id DESC LIMIT $1

-- name: followed
-- How far the follower is.
SELECT block_no, position FROM followers WHERE name = 'progress'

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
