-- name: lock_migrations
-- One migration at a time in this database; $1 = schema. The session holds it: an index is built outside a transaction.
SELECT pg_advisory_lock(hashtextextended($1 || ':migrate', 0))

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

-- name: find_invalid_indexes
-- What an interrupted CREATE INDEX CONCURRENTLY has left behind.
SELECT quote_ident(c.relname) AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'i' AND NOT i.indisvalid

-- name: drop_invalid_index
DROP INDEX CONCURRENTLY {index}

-- name: wait_little
-- For a lock: shorter than deadlock_timeout, so that nobody else is ever chosen as a victim of ours.
SELECT set_config('lock_timeout', '300ms', true)

-- name: lock_tables
-- All at once, or a function that has one and wants another would wait for us while we wait for it.
DO $$
BEGIN
    EXECUTE (SELECT 'LOCK TABLE ' || string_agg(c.oid::regclass::text, ', ' ORDER BY c.relname <> 'campaigns', c.relname)
                    || ' IN ACCESS EXCLUSIVE MODE'
             FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p'));
END $$

-- name: drop_code
-- Views and functions, but for those that tables themselves use; they are installed anew from schema.sql.
DO $$
DECLARE
    v_one  record;
BEGIN
    FOR v_one IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('DROP VIEW %s', v_one.name);
    END LOOP;
    FOR v_one IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace
                 AND p.proname NOT IN ('clock', 'refuse_change') LOOP
        EXECUTE format('DROP FUNCTION %s', v_one.name);
    END LOOP;
END $$

-- name: foreign_epoch
SELECT foreign_epoch()

-- name: begin_epoch
SELECT begin_epoch()

-- name: tell_workers
-- They look at the version then, and leave to those of the new one what is left to do.
SELECT pg_notify(schema_channel(), '')
