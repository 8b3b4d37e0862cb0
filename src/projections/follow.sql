-- name: head
-- The last event of the last block.
SELECT block_no, upper(positions) - 1 AS position FROM blocks WHERE lane = $1 ORDER BY block_no DESC LIMIT 1

-- name: page
-- Bodies as text: half of the work of a reader is to decode those that it does not want.
SELECT block_no, position, campaign_id, delivery_id, version, type, body::text AS body, at FROM read_blocks($1, $2, $3, $4)

-- name: page_of
-- The events of one campaign ($5) among the next $4, and the last of those $4 whoever it belongs to, which says how far this
-- is; each row with their number.
SELECT p.block_no, p.position, p.campaign_id, p.delivery_id, p.version, p.type, p.body::text AS body, p.at, p.n
FROM (SELECT b.*, count(*) OVER () AS n, row_number() OVER (ORDER BY b.block_no DESC, b.position DESC) AS from_end
      FROM read_blocks($1, $2, $3, $4) b) p
WHERE p.campaign_id = $5 OR p.from_end = 1 ORDER BY p.block_no, p.position

-- name: touched
-- Which campaigns the next $4 events belong to; how many these are, and the last of them.
SELECT coalesce(array_agg(DISTINCT b.campaign_id), '{}') AS campaigns, count(*) AS n, max(b.block_no) AS block_no,
       (array_agg(b.position ORDER BY b.block_no DESC, b.position DESC))[1] AS position
FROM read_blocks($1, $2, $3, $4) b

-- name: lock
-- A follower's checkpoint, until the transaction ends; no row: there is none yet, or somebody else has it.
SELECT block_no, position FROM followers WHERE name = $1 FOR UPDATE SKIP LOCKED

-- name: wait
-- The same, however long somebody else has it.
SELECT FROM followers WHERE name = $1 FOR UPDATE

-- name: register
-- Waits for another first start to end.
INSERT INTO followers (name, lane) VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: move
UPDATE followers SET block_no = $2, position = $3, moved_at = clock() WHERE name = $1

-- name: channel
SELECT block_channel()
