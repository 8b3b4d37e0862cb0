-- Every block runs in one snapshot of a campaign (snapshot.py). One that compares returns what differs, and nothing when all
-- is well: delivery_id, position of the event to blame, expected, actual.

-- name: campaign_ids
-- Whatever any table calls a campaign. The large ones are hopped through by index, one step for each campaign.
WITH RECURSIVE logged(id) AS (
    (SELECT campaign_id FROM events ORDER BY campaign_id LIMIT 1)
    UNION ALL
    SELECT (SELECT n.campaign_id FROM events n WHERE n.campaign_id > id ORDER BY n.campaign_id LIMIT 1) FROM logged WHERE id IS NOT NULL
), queued(id) AS (
    (SELECT campaign_id FROM recipient_queue ORDER BY campaign_id LIMIT 1)
    UNION ALL
    SELECT (SELECT n.campaign_id FROM recipient_queue n WHERE n.campaign_id > id ORDER BY n.campaign_id LIMIT 1) FROM queued WHERE id IS NOT NULL
), known(id) AS (
    (SELECT campaign_id FROM recipients ORDER BY campaign_id LIMIT 1)
    UNION ALL
    SELECT (SELECT n.campaign_id FROM recipients n WHERE n.campaign_id > id ORDER BY n.campaign_id LIMIT 1) FROM known WHERE id IS NOT NULL
)
SELECT id FROM (TABLE logged UNION TABLE queued UNION TABLE known UNION SELECT id FROM campaigns UNION SELECT campaign_id FROM claims) c
WHERE id <> 0 ORDER BY id

-- name: is_known
SELECT EXISTS (SELECT FROM campaigns WHERE id = $1) OR EXISTS (SELECT FROM events WHERE campaign_id = $1)
    OR EXISTS (SELECT FROM recipient_queue WHERE campaign_id = $1) OR EXISTS (SELECT FROM recipients WHERE campaign_id = $1)

-- name: audience
-- The deliveries that there are, or should be.
SELECT count(*) FROM (SELECT delivery_id FROM recipient_queue WHERE campaign_id = $1) q
FULL JOIN (SELECT delivery_id FROM events WHERE campaign_id = $1 AND delivery_id <> 0 AND version = 1) e USING (delivery_id)

-- name: deliveries
-- Deliveries whose events do not add up to their row, or do not add up at all; $2 says what a readable body is (shapes.py).
-- The log is sorted once, in stream order. A body is looked at before that, once: OFFSET 0 keeps it there.
WITH shape AS MATERIALIZED (
    SELECT s.type, s.versioned, s.keys, s.path::jsonpath AS path, t.to_status
    FROM jsonb_to_recordset($2) AS s(type text, versioned boolean, keys text[], path text)
    LEFT JOIN (SELECT event, max(to_status) AS to_status FROM transitions WHERE machine = 'delivery' GROUP BY event) t ON t.event = s.type
), log AS (
    SELECT e.delivery_id, e.version, e.position, e.type, e.body, s.to_status,
           coalesce(s.versioned = (e.version IS NOT NULL) AND jsonb_path_match(e.body, s.path, silent => true)
                    AND e.body - s.keys = '{}' AND coalesce(e.body ->> 'attempt', '0') !~ '\D', false) AS readable
    FROM events e LEFT JOIN shape s ON s.type = e.type
    WHERE e.campaign_id = $1 AND e.delivery_id <> 0 OFFSET 0
), change AS (
    SELECT delivery_id, version, position, type, to_status, readable,
           CASE WHEN NOT readable THEN NULL
                WHEN type IN ('Sent', 'Deferred', 'Failed', 'OutcomeUnknown') THEN (body -> 'attempt')::bigint
                WHEN type = 'Queued' OR (type = 'Requeued' AND body ->> 'by' <> 'policy') THEN 0 END AS attempt,
           CASE WHEN to_status = 'pending' THEN body ->> 'due_at' END AS due_at
    FROM log OFFSET 0
), step AS (
    SELECT c.*, lead(version) OVER stream IS NULL AND version IS NOT NULL AS is_last, coalesce(lag(to_status) OVER stream, '') AS from_status,
           readable AND (version IS NULL OR (version = coalesce(lag(version) OVER stream, 0) + 1
                                             AND position > coalesce(lag(position) OVER stream, 0))) AS fits
    FROM change c
    WINDOW stream AS (PARTITION BY delivery_id ORDER BY version)  -- without a version: last
), fold AS (
    SELECT s.delivery_id, bool_and(s.fits AND (s.version IS NULL OR t.event IS NOT NULL)) AS adds_up, max(s.version) AS version,
           max(s.to_status) FILTER (WHERE s.is_last) AS status, max(s.due_at) FILTER (WHERE s.is_last) AS due_at,
           (max(ARRAY[s.version, s.attempt]) FILTER (WHERE s.attempt IS NOT NULL))[2] AS attempt
    FROM step s
    LEFT JOIN transitions t ON t.machine = 'delivery' AND t.event = s.type AND t.from_status = s.from_status
    GROUP BY s.delivery_id
)
SELECT coalesce(f.delivery_id, q.delivery_id) AS delivery_id, q.status::text, q.attempt, q.due_at, q.version
FROM fold f
FULL JOIN (SELECT delivery_id, status, attempt, due_at, version FROM recipient_queue WHERE campaign_id = $1) q ON q.delivery_id = f.delivery_id
WHERE (f.adds_up AND q.status::text = f.status AND q.attempt = f.attempt AND q.version = f.version
       AND rfc3339(q.due_at) IS NOT DISTINCT FROM f.due_at) IS NOT TRUE
ORDER BY 1

-- name: streams
-- All events of some streams of a campaign, each stream in its order.
SELECT position, campaign_id, delivery_id, version, type, at, body::text AS body
FROM events WHERE campaign_id = $1 AND delivery_id = ANY ($2::bigint[])
ORDER BY delivery_id, coalesce(version, max(version) OVER (PARTITION BY delivery_id ORDER BY position ROWS UNBOUNDED PRECEDING), 0),
         version IS NULL, position

-- name: recipients
-- People who are not who was queued, or were never queued, or are gone. Whom an Erased event of their contact explains has lost
-- the salt too.
SELECT delivery_id, q.position,
       CASE WHEN q.digest IS NULL THEN 'nobody: no Queued event seals a recipient' ELSE 'the recipient sealed as ' || left(q.digest, 16) END AS expected,
       CASE WHEN r.digest IS NULL THEN 'no row in recipients' ELSE 'one whose content gives ' || left(r.digest, 16) END AS actual
FROM (SELECT delivery_id, salt, address_hash, recipient_digest(salt, recipient_key, email, name, data) AS digest
      FROM recipients WHERE campaign_id = $1) r
FULL JOIN (SELECT delivery_id, position, body ->> 'digest' AS digest
           FROM events WHERE campaign_id = $1 AND delivery_id <> 0 AND version = 1) q USING (delivery_id)
WHERE r.digest IS DISTINCT FROM q.digest
  AND NOT (r.digest IS NOT NULL AND q.digest IS NOT NULL AND r.salt IS NULL AND EXISTS (
      SELECT FROM events e WHERE e.campaign_id = 0 AND e.type = 'Erased'
      AND e.delivery_id = (SELECT c.id FROM contacts c WHERE c.address_hash = r.address_hash)))
ORDER BY 1

-- name: once
-- In a bulk campaign one address gets one mail, so it is unique there; in a standing one it is not.
SELECT r.delivery_id, NULL::bigint AS position,
       CASE c.kind WHEN 'bulk' THEN 'once_hash equal to address_hash' ELSE 'no once_hash' END AS expected,
       coalesce('once_hash ' || left(encode(r.once_hash, 'hex'), 16), 'none') AS actual
FROM recipients r JOIN campaigns c ON c.id = r.campaign_id
WHERE r.campaign_id = $1 AND r.once_hash IS DISTINCT FROM CASE c.kind WHEN 'bulk' THEN r.address_hash END
ORDER BY 1

-- name: may_read_secrets
SELECT has_column_privilege('secrets', 'inner_key', 'SELECT')

-- name: addresses
-- The hash by which somebody is suppressed must be that of the address.
SELECT r.delivery_id, NULL::bigint AS position, 'the hash of its address' AS expected,
       'address_hash ' || left(encode(r.address_hash, 'hex'), 16) AS actual
FROM recipients r CROSS JOIN (SELECT inner_key, outer_key FROM secrets WHERE name = 'address') k
WHERE r.campaign_id = $1 AND r.address_hash <> keyed_hash(k.inner_key, k.outer_key, normal_address(r.email))
ORDER BY 1

-- name: holders
-- Rows that are being sent and are in no claim, or in another than their Claimed event says.
WITH held AS MATERIALIZED (
    SELECT k.claim_id::text, k.worker_id::text, h.delivery_id, h.version
    FROM claims k CROSS JOIN LATERAL unnest(k.delivery_ids, k.versions) AS h(delivery_id, version) WHERE k.campaign_id = $1
)
SELECT q.delivery_id, e.position, coalesce('claim ' || e.claim_id || ' of worker ' || e.worker_id, 'a claim') || ' holds it' AS expected,
       coalesce('sending in claim ' || h.claim_id || ' of worker ' || h.worker_id, 'sending in no claim') AS actual
FROM recipient_queue q
LEFT JOIN held h ON h.delivery_id = q.delivery_id AND h.version = q.version
LEFT JOIN LATERAL (SELECT c.position, c.body ->> 'claim_id' AS claim_id, c.body ->> 'worker' AS worker_id FROM events c
                   WHERE c.campaign_id = $1 AND c.delivery_id = q.delivery_id AND c.version = q.version AND c.type = 'Claimed' OFFSET 0) e ON true
WHERE q.campaign_id = $1 AND q.status = 'sending'
  AND (h.claim_id IS NULL OR (h.claim_id, h.worker_id) IS DISTINCT FROM (e.claim_id, e.worker_id))
ORDER BY 1

-- name: claims
-- Claims that do not count what is left of them; one that has nothing left is gone.
SELECT 0::bigint AS delivery_id, NULL::bigint AS position,
       CASE count(q.delivery_id) WHEN 0 THEN 'no claim ' || k.claim_id ELSE 'claim ' || k.claim_id || ' with ' || count(q.delivery_id) || ' unsettled' END AS expected,
       'claim of worker ' || k.worker_id || ' with ' || k.unsettled || ' unsettled' AS actual
FROM claims k
LEFT JOIN LATERAL unnest(k.delivery_ids, k.versions) AS h(delivery_id, version) ON true
LEFT JOIN (SELECT delivery_id, version FROM recipient_queue WHERE campaign_id = $1 AND status = 'sending') q
    ON q.delivery_id = h.delivery_id AND q.version = h.version
WHERE k.campaign_id = $1
GROUP BY k.claim_id HAVING k.unsettled <> count(q.delivery_id) OR count(q.delivery_id) = 0
ORDER BY 4

-- name: unreachable
-- Rows that wait where nobody will ever come for them.
SELECT q.delivery_id, NULL::bigint AS position, 'nothing open in a campaign that is ' || c.status AS expected, q.status::text AS actual
FROM campaigns c JOIN recipient_queue q ON q.campaign_id = c.id
WHERE c.id = $1 AND (c.status = 'completed' OR c.swept_at IS NOT NULL) AND q.status IN ('pending', 'sending')
ORDER BY 1

-- name: stream
-- One stream that is folded as it comes: a campaign's own, or the system's.
SELECT position, campaign_id, delivery_id, version, type, at, body::text AS body
FROM events WHERE campaign_id = $1 AND delivery_id = 0 ORDER BY version, position

-- name: campaign
SELECT status::text, version, pause_reason, resume_at FROM campaigns WHERE id = $1

-- name: contacts
-- Contacts whose events do not add up to their row, their suppression and their lists; $1 says what a readable body is.
WITH shape AS MATERIALIZED (
    SELECT s.type, s.keys, s.path::jsonpath AS path FROM jsonb_to_recordset($1) AS s(type text, keys text[], path text)
), log AS (
    SELECT e.delivery_id AS contact_id, e.version, e.position, e.type, e.at, e.body,
           coalesce(jsonb_path_match(e.body, s.path, silent => true) AND e.body - s.keys = '{}', false) AS readable
    FROM events e LEFT JOIN shape s ON s.type = e.type
    WHERE e.campaign_id = 0 AND e.delivery_id <> 0 OFFSET 0
), step AS (
    SELECT contact_id, version, type, at, body ->> 'reason' AS reason, body ->> 'source' AS source, body ->> 'list' AS list,
           readable AND coalesce(version = coalesce(lag(version) OVER stream, 0) + 1 AND position > coalesce(lag(position) OVER stream, 0)
                                 AND (version = 1) = (type = 'ContactAdded'), false) AS fits
    FROM log
    WINDOW stream AS (PARTITION BY contact_id ORDER BY version)
), fold AS (
    SELECT contact_id, bool_and(fits) AS adds_up, max(version) AS version,
           max(ARRAY[lpad(version::text, 10, '0'), type, reason, source, rfc3339(at)] COLLATE "C")
               FILTER (WHERE type IN ('Suppressed', 'Unsuppressed')) AS said,
           max(at) FILTER (WHERE type = 'Erased') AS erased_at
    FROM step GROUP BY contact_id
), words AS (  -- the last about each list
    SELECT contact_id, array_agg(ARRAY[list, subscribed::text, rfc3339(at)] ORDER BY list COLLATE "C") AS lists
    FROM (SELECT DISTINCT ON (contact_id, list) contact_id, list, type = 'Subscribed' AS subscribed, at
          FROM step WHERE type IN ('Subscribed', 'Unsubscribed') ORDER BY contact_id, list, version DESC) l
    GROUP BY contact_id
), held AS (
    SELECT contact_id, array_agg(ARRAY[list_id::text, subscribed::text, rfc3339(changed_at)] ORDER BY list_id::text COLLATE "C") AS lists
    FROM subscriptions GROUP BY contact_id
)
SELECT coalesce(f.contact_id, c.id, s.contact_id, h.contact_id) AS contact_id, c.version, c.erased_at, s.reason, s.source, s.created_at,
       s.address_hash <> c.address_hash AS is_foreign, coalesce(h.lists, '{}') AS lists
FROM fold f
LEFT JOIN words w ON w.contact_id = f.contact_id
FULL JOIN contacts c ON c.id = f.contact_id
FULL JOIN suppressions s ON s.contact_id = coalesce(f.contact_id, c.id)
FULL JOIN held h ON h.contact_id = coalesce(f.contact_id, c.id, s.contact_id)
WHERE (f.adds_up AND c.version = f.version AND (s.address_hash = c.address_hash) IS NOT FALSE
       AND c.erased_at IS NOT DISTINCT FROM f.erased_at AND h.lists IS NOT DISTINCT FROM w.lists
       AND CASE WHEN f.said[2] = 'Suppressed' THEN ARRAY[s.reason, s.source, rfc3339(s.created_at)] = f.said[3:5]
                ELSE s.contact_id IS NULL END) IS NOT TRUE
ORDER BY 1

-- name: unsealed
-- Events in no block yet: information, for what was committed a moment ago is rightly so. Null where there are no blocks.
SELECT count(e.epoch)
FROM (SELECT epoch, snapshot FROM blocks WHERE lane = 0 ORDER BY block_no DESC LIMIT 1) b
LEFT JOIN events e ON e.campaign_id = $1
    AND NOT (e.epoch < b.epoch OR (e.epoch = b.epoch AND pg_visible_in_snapshot(e.xid, b.snapshot)))
GROUP BY b.epoch

-- name: positions
-- Events whose transaction had ended when a block was sealed that does not have them: they were put there later, by hand.
WITH sealed AS MATERIALIZED (
    SELECT t.epoch, t.xid, block_of(t.epoch, t.xid) AS block_no
    FROM (SELECT DISTINCT e.epoch, e.xid FROM events e WHERE e.campaign_id = $1) t
), log AS MATERIALIZED (
    SELECT e.delivery_id, e.position, s.block_no, e.position - row_number() OVER (PARTITION BY s.block_no ORDER BY e.position) AS island
    FROM events e JOIN sealed s USING (epoch, xid) WHERE e.campaign_id = $1 AND s.block_no IS NOT NULL
), held AS (
    SELECT i.block_no, range_agg(int8range(i.first, i.last, '[]')) AS positions
    FROM (SELECT block_no, min(position) AS first, max(position) AS last FROM log GROUP BY block_no, island) i GROUP BY i.block_no
), stray AS (
    SELECT h.block_no, h.positions - b.positions AS positions FROM held h JOIN blocks b ON b.lane = 0 AND b.block_no = h.block_no
)
SELECT l.delivery_id, l.position, 'a place in block ' || l.block_no AS expected, 'in no block, though its transaction is older' AS actual
FROM stray s JOIN log l ON l.block_no = s.block_no AND l.position <@ s.positions
WHERE NOT isempty(s.positions)
ORDER BY 1, 2

-- name: sizes
-- Blocks that have not as many events any more as they were sealed with, or more.
SELECT 0::bigint AS delivery_id, NULL::bigint AS position,
       'block ' || b.block_no || ' with ' || b.n || ' events' AS expected, coalesce(l.n, 0) || ' events' AS actual
FROM blocks b
LEFT JOIN (SELECT block_of(t.epoch, t.xid) AS block_no, sum(t.n) AS n
           FROM (SELECT epoch, xid, count(*) AS n FROM events GROUP BY 1, 2) t GROUP BY 1) l ON l.block_no = b.block_no
WHERE b.lane = 0 AND b.n IS DISTINCT FROM l.n
ORDER BY b.block_no
