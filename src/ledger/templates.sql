-- name: page
-- By their hash, above a given one.
SELECT hash, subject, html, text, created_at FROM templates WHERE hash > $1 ORDER BY hash LIMIT $2

-- name: by_hash
SELECT hash, subject, html, text, created_at FROM templates WHERE hash = $1
