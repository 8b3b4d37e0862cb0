-- name: suppressed_for
-- Why nobody mails this address.
SELECT reason FROM suppressions WHERE address_hash = $1

-- name: open_generations
-- Which of these are still to be reckoned with.
SELECT c.id FROM unnest($1::bigint[]) WITH ORDINALITY AS g(id, n) JOIN campaigns c ON c.id = g.id
WHERE c.status <> 'completed' AND c.swept_at IS NULL ORDER BY g.n
