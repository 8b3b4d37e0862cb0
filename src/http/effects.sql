-- name: be_short
-- Whoever waits for a campaign's lock makes all its outcomes wait behind: a request does not do so for long (SQLSTATE 55P03).
SELECT set_config('lock_timeout', '3s', true)

-- name: recall
-- What was answered to this key; `busy`: somebody's transaction has it just now; neither: it is this transaction's own.
SELECT busy, request, status, headers, answer FROM recall_answer($1, $2)

-- name: remember
-- With it go a few that have expired, so that there are never many of them. An expired one of this very key is replaced.
WITH gone AS (
    DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM idempotency_keys i WHERE i.created_at < clock() - answers_live() AND (i.api_key, i.key) <> ($1, $2)
        ORDER BY i.created_at LIMIT 5 FOR UPDATE SKIP LOCKED)))
INSERT INTO idempotency_keys AS i (api_key, key, request, status, headers, answer) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (api_key, key) DO UPDATE SET request = excluded.request, status = excluded.status, headers = excluded.headers,
    answer = excluded.answer, created_at = clock()
