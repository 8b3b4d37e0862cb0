-- name: page
-- In the order of the hashes, above a given one: the order of the key, which costs no other index. No address: there is none here.
SELECT encode(s.address_hash, 'hex') AS address_hash, s.contact_id, s.reason, s.source, s.created_at
FROM suppressions s WHERE s.address_hash > decode($1, 'hex') ORDER BY s.address_hash LIMIT $2

-- name: by_hash
SELECT encode(s.address_hash, 'hex') AS address_hash, s.contact_id, s.reason, s.source, s.created_at
FROM suppressions s WHERE s.address_hash = decode($1, 'hex')

-- name: suppress
SELECT suppress($1, $2, $3)

-- name: hash_of
SELECT encode(address_hash($1), 'hex')

-- name: lift
SELECT unsuppress_hash(decode($1, 'hex'), $2, $3)
