-- name: as_of
-- In one snapshot with it: whether a later block makes the answer the last word, how many of the campaign's events are in no
-- block yet, and whether that time is still to come.
WITH head AS (SELECT b.epoch, b.snapshot, b.sealed_at FROM blocks b WHERE b.lane = 0 ORDER BY b.block_no DESC LIMIT 1)
SELECT a.block_no, a.sealed_at, a.counts, coalesce((SELECT h.sealed_at > $2 FROM head h), false) AS final,
       (SELECT count(*) FROM events e WHERE e.campaign_id = $1 AND NOT EXISTS (
           SELECT FROM head h WHERE e.epoch < h.epoch OR (e.epoch = h.epoch AND pg_visible_in_snapshot(e.xid, h.snapshot)))) AS unsealed,
       $2 > clock() AS ahead
FROM as_of($1, $2) a
