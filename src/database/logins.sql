-- name: who
SELECT session_user::text AS login, current_database()::text AS database

-- name: prepare_login
-- What a pooler would refuse as start-up parameters, as settings of {login} in this database alone.
GRANT postledger_app TO {login};
ALTER ROLE {login} IN DATABASE {database} SET search_path = {schema}, pg_temp;
ALTER ROLE {login} IN DATABASE {database} SET role = 'postledger_app';
ALTER ROLE {login} IN DATABASE {database} SET default_transaction_isolation = 'read committed';
ALTER ROLE {login} IN DATABASE {database} SET timezone = 'UTC';
ALTER ROLE {login} IN DATABASE {database} SET jit = 'off';
ALTER ROLE {login} IN DATABASE {database} SET statement_timeout = 0;
ALTER ROLE {login} IN DATABASE {database} SET lock_timeout = 0;
ALTER ROLE {login} IN DATABASE {database} SET idle_in_transaction_session_timeout = 0
