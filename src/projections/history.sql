-- name: history
-- One stream. Its own order is that of the versions; what has none stands after the change that it was written behind.
SELECT position, block_of(epoch, xid) AS block_no, campaign_id, delivery_id, version, type, at, body::text AS body
FROM events WHERE campaign_id = $1 AND delivery_id = $2
ORDER BY coalesce(version, max(version) OVER (ORDER BY position ROWS UNBOUNDED PRECEDING), 0), version IS NULL, position
