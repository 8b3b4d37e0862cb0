-- name: create
SELECT create_key($1, $2, $3)

-- name: create_first
SELECT create_first_key($1, $2)

-- name: every
SELECT id, name, scopes, created_at, revoked_at FROM api_keys ORDER BY id

-- name: revoked
SELECT id FROM api_keys WHERE revoked_at IS NOT NULL

-- name: by_id
SELECT id, hash, scopes, revoked_at FROM api_keys WHERE id = $1

-- name: revoke
SELECT revoke_key($1)
