-- name: refuse_other_backend
-- Who answers, if not the backend that greeted us ({pid}), is behind a pooler. Goes by the simple protocol, since a prepared
-- statement is just what a pooler cannot keep; that takes no parameters and returns no rows, hence the error.
DO $$
BEGIN
    IF pg_backend_pid() <> {pid} THEN
        RAISE EXCEPTION 'another backend answers' USING ERRCODE = 'PL011';
    END IF;
END $$

-- name: login_settings
-- What the login has been given for the schema $1, which may not exist yet.
SELECT current_schema() IS NOT DISTINCT FROM $1 OR NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS search_path,
       current_user = $2 AS role, current_setting('default_transaction_isolation') = 'read committed' AS default_transaction_isolation,
       current_setting('TimeZone') = 'UTC' AS timezone
