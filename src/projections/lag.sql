-- name: sealing
-- The newest block, and what has been committed and is in none: how many events, how long ago the oldest was written.
-- In one snapshot; where nothing was sealed, all events.
WITH head AS (SELECT b.block_no, b.epoch, b.snapshot, b.sealed_at FROM blocks b WHERE b.lane = 0 ORDER BY b.block_no DESC LIMIT 1),
since AS (SELECT coalesce(h.epoch, 0) AS epoch, coalesce(pg_snapshot_xmax(h.snapshot), '0') AS xmax,
                 ARRAY(SELECT pg_snapshot_xip(h.snapshot)) AS xip FROM (SELECT) one LEFT JOIN head h ON true),
unsealed AS (
    SELECT e.at FROM events e JOIN since s ON e.epoch = s.epoch AND e.xid >= s.xmax
    UNION ALL SELECT e.at FROM events e JOIN since s ON e.epoch = s.epoch AND e.xid = ANY (s.xip)
    UNION ALL SELECT e.at FROM events e JOIN since s ON e.epoch > s.epoch
)
SELECT h.block_no, h.sealed_at, count(u.at) AS unsealed, clock() - min(u.at) AS oldest_in
FROM (SELECT) one LEFT JOIN head h ON true LEFT JOIN unsealed u ON true
GROUP BY h.block_no, h.sealed_at

-- name: followers
-- How many blocks each has not read to the end.
SELECT f.name, (SELECT count(*) FROM blocks b WHERE b.lane = f.lane AND b.block_no >= f.block_no
                AND (b.block_no > f.block_no OR upper(b.positions) - 1 > f.position)) AS behind
FROM followers f ORDER BY f.name
