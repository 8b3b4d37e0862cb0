-- name: head
-- The last event of the last block.
SELECT block_no, upper(positions) - 1 AS position FROM blocks WHERE lane = $1 ORDER BY block_no DESC LIMIT 1

-- name: page
-- Bodies as text: half of the work of a reader is to decode those that it does not want.
SELECT block_no, position, campaign_id, delivery_id, version, type, body::text AS body, at FROM read_blocks($1, $2, $3, $4)

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
