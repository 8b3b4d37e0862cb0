-- People from a query of the user's own, in a session with the login's own rights, settings and nothing more.
-- A {hole} is for what cannot be a parameter: the query itself, and what `query.py` makes of its columns' numbers. Below a
-- block's first line stands what may be in each of its holes; no text of the user's but the query ever is.

-- name: be_the_login
-- Whatever role the login takes on by itself.
SET ROLE NONE

-- name: make_shelf
-- The only thing that a read-only transaction may write to is a temporary table.
CREATE TEMPORARY TABLE postledger_people (line bigint, email text, key text, name text, data jsonb)

-- name: open_shelf
GRANT SELECT ON pg_temp.postledger_people TO postledger_app

-- name: describe
-- The query as it will stand in `fill`: what fits in here is a query, and nothing else.
--   query = SELECT 'ann@x.example' AS email, 7.50 AS price
SELECT q.* FROM (
{query}
) AS q

-- name: fill
-- In a read-only transaction. $1: the titles of the columns that are merge data.
--   query = SELECT 'ann@x.example' AS email, 7.50 AS price
--   columns = c0, c1
--   email = q.c0::text
--   key = NULL
--   name = NULL
--   data = jsonb_build_object(($1::text[])[1], q.c1::text)
INSERT INTO pg_temp.postledger_people (line, email, key, name, data)
SELECT row_number() OVER (), {email}, {key}, {name}, {data} FROM (
{query}
) AS q ({columns})

-- name: act
-- From here on with the app's rights and schema, until the transaction ends.
SELECT set_config('role', $1, true), set_config('search_path', $2, true)

-- name: take
-- Everybody to the staging table, as a file's rows come there: the key is the address where none is given. Who is plainly
-- faultless is not asked about by a call of recipient_fault(), which takes a third of the time of this statement. (Data of 1000
-- bytes may be compressed: its text is longer, but not by a thousand.)
INSERT INTO import_rows (import_id, line, key, email, name, data, outcome, reason)
SELECT $1, s.line, CASE WHEN s.fault IS NULL THEN coalesce(s.key, s.email) END, CASE WHEN s.fault IS NULL THEN s.email END,
       CASE WHEN s.fault IS NULL THEN s.name END, CASE WHEN s.fault IS NULL THEN s.data END,
       CASE WHEN s.fault IS NOT NULL THEN 'invalid' END, s.fault
FROM (SELECT n.line, n.key, n.email, n.name, n.data,
             CASE WHEN acceptable_address(n.email) AND (n.key IS NULL OR length(n.key) <= 200)
                       AND (n.name IS NULL OR length(n.name) <= 998 AND n.name !~ '[\x01-\x1f\x7f-\x9f\u2028\u2029]')
                       AND pg_column_size(n.data) < 1000 THEN NULL
                  ELSE recipient_fault(n.email, n.key, n.name, n.data) END AS fault
      FROM (SELECT line, nullif(btrim(key, E' \t\r\n\u00A0'), '') AS key, normal_address(btrim(email, E' \t\r\n\u00A0')) AS email,
                   nullif(btrim(name, E' \t\u00A0'), '') AS name, data FROM pg_temp.postledger_people OFFSET 0) n OFFSET 0) s

-- name: count_taken
SELECT count(*) AS rows, count(*) FILTER (WHERE outcome IS NOT NULL) AS invalid FROM import_rows WHERE import_id = $1
