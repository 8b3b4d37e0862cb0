-- Imports: rows wait in import_rows until one transaction turns them into recipients.
-- Whoever has an import in hand holds the session lock lock_key('import', id) from its first statement on; an import that is
-- not done and whose lock is free belongs to somebody who died. Through a pooler nobody can hold such a lock: then it is given
-- up after a day.

-- name: open_import
-- A new import; commit it together with hold_import.
INSERT INTO imports (campaign_id, source, pooled) VALUES ($1, $2, $3) RETURNING id;

-- name: hold_import
-- Say that this session lives and has the import in hand.
SELECT pg_advisory_lock(lock_key('import', $1));

-- name: drop_hold
SELECT pg_advisory_unlock(lock_key('import', $1));

-- name: discard_abandoned
-- Throw away what the dead have left; the ids. A lock is tried for candidates alone, hence MATERIALIZED. Whoever finished
-- between the reading and the locking is left alone by the second look at state.
WITH unfinished AS MATERIALIZED (
    SELECT id, pooled, started_at FROM imports WHERE state <> 'done'
), abandoned AS MATERIALIZED (
    SELECT id FROM unfinished
    WHERE CASE WHEN pooled THEN started_at < clock() - interval '1 day' ELSE pg_try_advisory_xact_lock(lock_key('import', id)) END
), swept AS (
    DELETE FROM import_rows s USING abandoned a WHERE s.import_id = a.id
)
DELETE FROM imports i USING abandoned a WHERE i.id = a.id AND i.state <> 'done' RETURNING i.id;

-- name: discard_import
-- Throw one import away that will not be used.
WITH swept AS (
    DELETE FROM import_rows s WHERE s.import_id = $1
)
DELETE FROM imports i WHERE i.id = $1 AND i.state <> 'done';

-- name: count_chunk
-- Count a chunk in the transaction that writes it; the import's id, none if somebody has thrown it away.
UPDATE imports SET rows = rows + $2, chunks = chunks + 1 WHERE id = $1 AND state = 'staging' RETURNING id;

-- name: close_staging
-- All rows are written.
UPDATE imports SET state = 'staged' WHERE id = $1 AND state = 'staging' RETURNING id;

-- name: sweep_rows
-- The rows of an import that has been used and reported.
DELETE FROM import_rows WHERE import_id = $1;

-- name: read_lines
-- The rows that were not accepted, in the order of the file; at most $2.
SELECT line, outcome, reason FROM import_rows WHERE import_id = $1 AND outcome IS NOT NULL ORDER BY line LIMIT $2;
