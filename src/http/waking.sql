-- name: wake
-- A hint that may be lost with the server: its commit waits for no disk.
SELECT wake() FROM (SELECT set_config('synchronous_commit', 'off', true)) AS not_durable
