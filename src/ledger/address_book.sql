-- name: contact_of
-- The contact of an address in normal form, made where it is new.
SELECT contact_of(address_hash($1))

-- name: describe
-- What is known of a person: the newest word counts, and nothing is written about who was erased.
UPDATE contacts SET email = $2, name = coalesce($3, name), data = coalesce($4, data) WHERE id = $1 AND erased_at IS NULL

-- name: find
SELECT id FROM contacts WHERE address_hash = address_hash($1)

-- name: page
-- In the order in which they became known, above a given id.
SELECT c.id, encode(c.address_hash, 'hex') AS address_hash, c.email, c.name, c.data, c.created_at, c.erased_at, s.reason AS suppressed
FROM contacts c LEFT JOIN suppressions s ON s.address_hash = c.address_hash
WHERE c.id > $1 ORDER BY c.id LIMIT $2

-- name: page_of_list
-- The same of those who are on a list.
SELECT c.id, encode(c.address_hash, 'hex') AS address_hash, c.email, c.name, c.data, c.created_at, c.erased_at, s.reason AS suppressed
FROM subscriptions u JOIN contacts c ON c.id = u.contact_id LEFT JOIN suppressions s ON s.address_hash = c.address_hash
WHERE u.list_id = $3 AND u.subscribed AND u.contact_id > $1 ORDER BY u.contact_id LIMIT $2

-- name: by_id
SELECT c.id, encode(c.address_hash, 'hex') AS address_hash, c.email, c.name, c.data, c.created_at, c.erased_at, s.reason AS suppressed
FROM contacts c LEFT JOIN suppressions s ON s.address_hash = c.address_hash WHERE c.id = $1

-- name: subscriptions
-- The lists that somebody is on or has left.
SELECT u.list_id, l.name, u.subscribed, u.changed_at FROM subscriptions u JOIN lists l ON l.id = u.list_id
WHERE u.contact_id = $1 ORDER BY l.name

-- name: list_by_id
SELECT l.id, l.name, l.created_at, count(*) FILTER (WHERE s.subscribed) AS subscribed, count(*) FILTER (WHERE NOT s.subscribed) AS unsubscribed
FROM lists l LEFT JOIN subscriptions s ON s.list_id = l.id WHERE l.id = $1 GROUP BY l.id

-- name: new_list
-- No row: a list of this name is there.
INSERT INTO lists (name) VALUES ($1) ON CONFLICT (name) DO NOTHING RETURNING id
