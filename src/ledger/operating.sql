-- name: suppressed_for
-- Why nobody mails this address.
SELECT reason FROM suppressions WHERE address_hash = $1
