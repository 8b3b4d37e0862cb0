-- name: try_lock_migrations
-- One migration at a time in this database; $1 = schema. The session holds it, since an index is built outside a transaction;
-- and who waits for it must hold no snapshot, or that build would wait for them.
SELECT pg_try_advisory_lock(hashtextextended($1 || ':migrate', 0))

-- name: encoding
SELECT current_setting('server_encoding')

-- name: find_version_table
SELECT to_regclass('schema_version')

-- name: hidden
-- Whether there is one in the schema $1 that this login may not look into.
SELECT EXISTS (SELECT FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid
               WHERE n.nspname = $1 AND c.relname = 'schema_version')

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

-- name: drop_views
DO $$
DECLARE
    v_one  record;
BEGIN
    FOR v_one IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('DROP VIEW %s', v_one.name);
    END LOOP;
END $$

-- name: create_beside
-- The new functions are made as temporary ones at first, to be compared; nobody calls those.
SELECT set_config('search_path', 'pg_temp, ' || quote_ident(current_schema()), true), set_config('check_function_bodies', 'off', true)

-- name: drop_functions
-- Those that are no more, or not so. The others keep their identity: a call that is under way in another session, or a
-- table's default, would not find them.
DO $$
DECLARE
    v_one  record;
BEGIN
    RESET search_path;
    RESET check_function_bodies;
    FOR v_one IN SELECT p.oid::regprocedure AS name FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace AND NOT EXISTS (
                     SELECT FROM pg_proc n WHERE n.pronamespace = pg_my_temp_schema() AND n.proname = p.proname
                     AND pg_get_function_arguments(n.oid) = pg_get_function_arguments(p.oid)
                     AND pg_get_function_result(n.oid) = pg_get_function_result(p.oid)) LOOP
        EXECUTE format('DROP FUNCTION %s', v_one.name);
    END LOOP;
END $$

-- name: foreign_epoch
SELECT foreign_epoch()

-- name: note_cluster
-- After pg_upgrade the same transactions have another cluster.
UPDATE epochs SET cluster = cluster_id()
WHERE epoch = (SELECT max(epoch) FROM epochs) AND cluster <> cluster_id() AND foreign_epoch() IS NULL

-- name: begin_epoch
SELECT begin_epoch()

-- name: tell_workers
-- They look at the version then, and leave to those of the new one what is left to do.
SELECT pg_notify(schema_channel(), '') WHERE pg_notification_queue_usage() < 0.5
