-- name: enlist
SELECT enlist_worker($1)

-- name: lock_worker
-- On the session that is to hold it; waits for a former session of the same worker to be gone.
SELECT pg_advisory_lock(lock_key('worker', $1))

-- name: relock
SELECT relock_worker($1, $2)

-- name: leave
SELECT leave_worker($1)

-- name: wake_channels
SELECT wake_channel() AS everybody, wake_channel($1) AS own

-- name: notify
SELECT pg_notify($1, '')

-- name: next_work
SELECT campaigns, cancelled, due_in, finishable, watch, priorities, rates, waking, wake_in, unsealed() AS unsealed FROM next_work($1, $2)

-- name: wake_campaign
SELECT wake_campaign($1)

-- name: lease_tokens
SELECT granted, each, starts_in, retry_in FROM lease_tokens($1, $2)

-- name: claim
SELECT busy, due_in, skipped, cancelled, delivery_ids, versions, attempts, ages, keys, emails, names, data
FROM claim($1, $2, $3, $4, $5)

-- name: settle
-- $10: how long it may wait for a lock, after which SQLSTATE 55P03 says that it was not to be had; 0: for ever.
SELECT (s.settled).applied, (s.settled).repeated, (s.settled).evidence
FROM (SELECT settle($1, $2, $3, $4, $5, $6, $7, $8, $9) AS settled
      FROM (SELECT set_config('lock_timeout', $10, true)) AS patience OFFSET 0) s

-- name: permit
SELECT alive, lost, stopped, suppressed, strays FROM permit($1, $2, $3, $4, $5)

-- name: release_claim
-- Between two permits, which must not come late: SQLSTATE 55P03 where its campaign is locked, and the next permit tries again.
SELECT release_claim($1, $2) FROM (SELECT set_config('lock_timeout', '100ms', true)) AS patience

-- name: release_strays
-- At the end: every claim under this worker's name but these.
SELECT coalesce(sum(release_claim(claim_id, $1)), 0)::bigint FROM claims WHERE worker_id = $1 AND NOT (claim_id = ANY ($2::uuid[]))

-- name: wake
SELECT wake()

-- name: try_finish
-- For a worker, who must not wait while somebody adds people: SQLSTATE 55P03 says that the lock was not to be had.
SELECT finish_campaign($1) FROM (SELECT set_config('lock_timeout', '20ms', true)) AS not_long

-- name: try_watch
SELECT locked, watched, needed FROM try_watch($1)

-- name: leave_watch
SELECT pg_advisory_unlock(lock_key('watch'))

-- name: probe
SELECT worker_id, session, ended, free, overdue FROM probe_workers($1, $2)

-- name: bury
SELECT bury_worker($1, $2, $3)

-- name: orphaned
SELECT campaign_id, claim_id FROM orphaned_claims()

-- name: reclaim
-- One whose campaign is locked must not hold up the others: SQLSTATE 55P03, and the next look tries again.
SELECT reclaim($1, $2) FROM (SELECT set_config('lock_timeout', '250ms', true)) AS patience
