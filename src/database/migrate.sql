-- name: lock_migrations
-- One migration at a time in this database; $1 = schema.
SELECT pg_advisory_xact_lock(hashtextextended($1 || ':migrate', 0))

-- name: find_version_table
SELECT to_regclass('schema_version')

-- name: read_version
SELECT max(version) FROM schema_version

-- name: create_schema
-- The one statement that names the schema; {schema} is a quoted identifier.
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: keep_secret
INSERT INTO secrets (name, inner_key, outer_key) VALUES ($1, $2, $3)

-- name: record_version
INSERT INTO schema_version (version) VALUES ($1)

-- name: record_migration
INSERT INTO events (campaign_id, delivery_id, version, type, body)
SELECT 0, 0, coalesce(max(version), 0) + 1, 'Migrated', jsonb_build_object('version', $1::int)
FROM events WHERE campaign_id = 0 AND delivery_id = 0
