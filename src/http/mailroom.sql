-- name: be_short
SELECT set_config('lock_timeout', $1, true)

-- name: recall_all
-- What was answered to these keys, each another; see recall_answer.
SELECT k.n, r.busy, r.request, r.status, r.headers, r.answer
FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS k(api_key, key, n) CROSS JOIN LATERAL recall_answer(k.api_key, k.key) r
ORDER BY k.n

-- name: remember_all
-- With them go some that have expired, as for one.
WITH gone AS (
    DELETE FROM idempotency_keys WHERE ctid = ANY (ARRAY(
        SELECT i.ctid FROM idempotency_keys i WHERE i.created_at < clock() - answers_live() AND NOT (i.key = ANY ($2::text[]))
        ORDER BY i.created_at LIMIT 5 * cardinality($2::text[]) FOR UPDATE SKIP LOCKED)))
INSERT INTO idempotency_keys AS i (api_key, key, request, status, headers, answer)
SELECT k.api_key, k.key, k.request, 202, '{"Content-Type": "application/json"}', k.answer
FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[]) AS k(api_key, key, request, answer) ORDER BY k.api_key, k.key
ON CONFLICT (api_key, key) DO UPDATE SET request = excluded.request, status = excluded.status, headers = excluded.headers,
    answer = excluded.answer, created_at = clock()
