-- name: place
-- Which database this is: two ways to it give the same answer, whatever its address.
SELECT pg_postmaster_start_time() AS started_at, oid AS database FROM pg_database WHERE datname = current_database()

-- name: foreign_epoch
SELECT foreign_epoch()

-- name: schema_channel
SELECT schema_channel()
