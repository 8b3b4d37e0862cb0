-- name: lock
-- A campaign that is about to change its state, alone for this transaction. First the lock of imports, then its own: the order
-- in which enqueue_import takes them. (A shared lock made exclusive afterwards could meet `requeue` in a deadlock.)
SELECT pg_advisory_xact_lock(lock_key('enqueue', $1)), pg_advisory_xact_lock(lock_key('campaign', $1))

-- name: now
SELECT clock()

-- name: has_recipients
SELECT EXISTS (SELECT FROM recipient_queue WHERE campaign_id = $1)
