-- name: as_of
SELECT block_no, sealed_at, counts FROM as_of($1, $2)
