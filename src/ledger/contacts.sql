-- name: keep_list
INSERT INTO lists (name) VALUES ($1) ON CONFLICT (name) DO NOTHING

-- name: list_named
SELECT id FROM lists WHERE name = $1

-- name: list_name
SELECT name FROM lists WHERE id = $1

-- name: lists
-- With how many are on them, and how many have left or never wanted to be.
SELECT l.id, l.name, l.created_at, count(*) FILTER (WHERE s.subscribed) AS subscribed, count(*) FILTER (WHERE NOT s.subscribed) AS unsubscribed
FROM lists l LEFT JOIN subscriptions s ON s.list_id = l.id GROUP BY l.id ORDER BY l.name

-- name: mark_duplicates
SELECT mark_duplicates($1)

-- name: import_page
SELECT last, added, present, unsubscribed, erased FROM import_contacts($1, $2, $3, $4)

-- name: close_import
UPDATE imports SET state = 'done', finished_at = clock(), counts = $2 WHERE id = $1

-- name: stage_list
SELECT stage_list($1, $2)

-- name: unsubscribe
-- $2 null: from everything.
SELECT unsubscribe_hash(address_hash($1), $2, $3)

-- name: subscribe
SELECT subscribe_hash(address_hash($1), $2, $3)

-- name: know_address
-- Of somebody who was known by hash alone, or not at all.
UPDATE contacts SET email = $1 WHERE address_hash = address_hash($1) AND email IS NULL AND erased_at IS NULL

-- name: analyze
-- After many new ones the planner should know of them. Only the owner may; for anybody else it is a warning.
ANALYZE contacts, subscriptions, events
