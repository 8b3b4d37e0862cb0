-- Before the step to version 2, each by itself and while workers go on: what may take minutes on a long log. The indexes that
-- 0002.sql makes on the partitioned table take these for their own. (The name that the first would have is still taken.)

-- name: events_position
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_1_position_next ON events_1 (position)

-- name: events_xid
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_1_epoch_xid_idx ON events_1 (epoch, xid)
