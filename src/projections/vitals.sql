-- name: now
-- The schema's version, and what the log's followers and sealer are behind. What is unsealed is looked at from its oldest end, ten
-- thousand events at most: how many there are of it is nobody's question once it is that late.
WITH head AS (SELECT b.block_no, b.epoch, b.snapshot, b.sealed_at FROM blocks b WHERE b.lane = 0 ORDER BY b.block_no DESC LIMIT 1),
since AS (SELECT coalesce(h.epoch, 0) AS epoch, coalesce(pg_snapshot_xmax(h.snapshot), '0') AS xmax,
                 ARRAY(SELECT pg_snapshot_xip(h.snapshot)) AS xip FROM (SELECT) one LEFT JOIN head h ON true),
unsealed AS (
    (SELECT e.at FROM events e JOIN since s ON e.epoch = s.epoch AND e.xid = ANY (s.xip) LIMIT 10000)
    UNION ALL (SELECT e.at FROM events e JOIN since s ON e.epoch = s.epoch AND e.xid >= s.xmax ORDER BY e.epoch, e.xid LIMIT 10000)
    UNION ALL (SELECT e.at FROM events e JOIN since s ON e.epoch > s.epoch ORDER BY e.epoch, e.xid LIMIT 10000))
SELECT coalesce((SELECT h.block_no FROM head h), 0) AS block_no, count(u.at)::int AS unsealed,
       coalesce(extract(epoch FROM clock() - min(u.at)), 0)::float8 AS unsealed_for,
       (SELECT pg_notification_queue_usage()) AS notifications
FROM unsealed u

-- name: followers
-- How many blocks each is behind the newest, at least.
SELECT f.name, greatest(coalesce((SELECT max(b.block_no) FROM blocks b WHERE b.lane = f.lane), 0) - f.block_no, 0) AS behind FROM followers f

-- name: campaigns
-- Those that may have work, newest first; counts as the sealed log has them, the queue asked for its first row alone.
SELECT c.id, c.status::text, c.pause_reason, extract(epoch FROM c.resume_at - n.at)::float8 AS resume_in,
       extract(epoch FROM n.at - c.starts_at)::float8 AS late,
       coalesce(p.pending, 0) AS pending, coalesce(p.sending, 0) AS sending, coalesce(p.sent, 0) AS sent, coalesce(p.failed, 0) AS failed,
       coalesce(p.skipped, 0) AS skipped, coalesce(p.cancelled, 0) AS cancelled, coalesce(p.unknown, 0) AS unknown,
       extract(epoch FROM n.at - d.due_at)::float8 AS due_for,
       extract(epoch FROM n.at - greatest(p.last_at, c.started_at))::float8 AS still_for,
       extract(epoch FROM s.rate_per)::float8 / s.rate_count AS one_each
FROM (SELECT clock() AS at) n CROSS JOIN campaigns c
LEFT JOIN progress p ON p.campaign_id = c.id
LEFT JOIN LATERAL (SELECT q.due_at FROM recipient_queue q WHERE q.campaign_id = c.id AND q.due_at IS NOT NULL
                   ORDER BY q.due_at, q.delivery_id LIMIT 1) d ON c.status = 'sending'
LEFT JOIN LATERAL (SELECT o.rate_count, o.rate_per FROM senders o WHERE o.id = c.sender_id OFFSET 0) s ON true
WHERE c.status IN ('sending', 'paused', 'scheduled') ORDER BY c.id DESC LIMIT 200

-- name: workers
-- Who is there, by the lock of their sessions, or by their lease where a pooler lets no lock prove anything.
SELECT count(*) FILTER (WHERE a.alive)::int AS alive, count(*) FILTER (WHERE a.alive AND a.lease_only)::int AS deaf,
       count(*) FILTER (WHERE NOT a.alive)::int AS missing
FROM (SELECT w.lease_only, CASE WHEN w.lease_only THEN w.seen_at > clock() - interval '60 seconds' ELSE EXISTS (
          SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND ((l.classid::bigint << 32) | l.objid::bigint) = lock_key('worker', w.id)) END AS alive
      FROM workers w WHERE w.ended IS NULL) a

-- name: claims
SELECT count(*)::int AS claims, coalesce(sum(k.unsettled), 0)::int AS deliveries,
       coalesce(extract(epoch FROM clock() - min(k.claimed_at)), 0)::float8 AS oldest_for
FROM claims k WHERE k.unsettled > 0

-- name: snapshot
SELECT coalesce(seconds, 0)::float8 AS seconds, coalesce(transactions, 0) AS transactions, hidden FROM oldest_snapshot()
