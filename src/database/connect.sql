-- name: refuse_other_backend
-- Who answers, if not the backend that greeted us ({pid}), is behind a pooler. Goes by the simple protocol, since a prepared
-- statement is just what a pooler cannot keep; that takes no parameters and returns no rows, hence the error.
DO $$
BEGIN
    IF pg_backend_pid() <> {pid} THEN
        RAISE EXCEPTION 'another backend answers' USING ERRCODE = 'PL011';
    END IF;
END $$

-- name: be_patient
-- Where the server knows it (from 17 on), no length of a transaction ends ours.
SELECT set_config('transaction_timeout', '0', false) WHERE current_setting('transaction_timeout', true) <> '0'

-- name: set_for_session
-- What a pooler did not take at start-up, where it leaves us one session of the server: names $1, values $2.
SELECT count(set_config(name, value, false)) FROM unnest($1::text[], $2::text[]) AS given (name, value)

-- name: backend
SELECT pg_backend_pid()

-- name: notify
SELECT pg_notify($1, '')

-- name: listens
-- Whether the session that answers is the one that listens: some poolers listen themselves, for all their clients.
SELECT $1 IN (SELECT pg_listening_channels())

-- name: unlisten_there
-- In the backend that listens and in no other; a block of code, since only that can do either.
DO $$
BEGIN
    IF pg_backend_pid() <> {pid} THEN
        RAISE EXCEPTION 'another backend answers' USING ERRCODE = 'PL011';
    END IF;
    UNLISTEN {channel};
END $$

-- name: login_settings
-- What the login has been given for the schema $1, which may not exist yet.
SELECT current_schema() IS NOT DISTINCT FROM $1 OR NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1) AS search_path,
       current_user = $2 AS role, current_setting('default_transaction_isolation') = 'read committed' AS default_transaction_isolation,
       current_setting('TimeZone') = 'UTC' AS timezone
