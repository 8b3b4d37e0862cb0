-- name: campaign_named
-- All generations, the newest first; there are several where a standing campaign has gone on under the same name.
SELECT array_agg(id ORDER BY generation DESC) FROM campaigns WHERE name = $1

-- name: campaign_with_id
SELECT id, name FROM campaigns WHERE id = $1

-- name: recipients_with_key
SELECT campaign_id, delivery_id, recipient_key, email FROM recipients WHERE recipient_key = $2 AND campaign_id = ANY ($1::bigint[]) LIMIT $3

-- name: recipients_with_address
-- One at most in a bulk campaign, whose index tells at once; any number in a standing one. $2 is in normal form.
SELECT r.campaign_id, r.delivery_id, r.recipient_key, r.email
FROM (SELECT (SELECT address_hash($2)) AS hash) a, recipients r  -- a sub-select: hashed once
WHERE r.campaign_id = ANY ($1::bigint[]) AND (r.once_hash = a.hash OR (r.once_hash IS NULL AND r.address_hash = a.hash))
ORDER BY r.delivery_id DESC LIMIT $3

-- name: recipient_with_id
-- Whatever knows the delivery: the log does when all else is gone.
SELECT c.id, d.id AS delivery_id, r.recipient_key, r.email
FROM unnest($1::bigint[]) AS c(id) CROSS JOIN (SELECT $2::bigint AS id) d LEFT JOIN recipients r ON r.campaign_id = c.id AND r.delivery_id = d.id
WHERE r.delivery_id IS NOT NULL
   OR EXISTS (SELECT FROM recipient_queue q WHERE q.campaign_id = c.id AND q.delivery_id = d.id)
   OR (d.id <> 0 AND EXISTS (SELECT FROM events e WHERE e.campaign_id = c.id AND e.delivery_id = d.id))

-- name: delivery
-- One delivery by its id alone: a probe of the queue's key per campaign, the newest first, until it is found; with the worst
-- feedback that was heard, and what its last tries came to.
SELECT c.id AS campaign_id, c.name AS campaign, q.delivery_id, r.recipient_key AS key, r.email, r.name, r.data,
       q.status::text AS status, q.attempt, q.due_at, q.version,
       (SELECT CASE e.type WHEN 'Complained' THEN 'complained' WHEN 'Bounced' THEN 'bounced' ELSE 'delivered' END FROM events e
        WHERE e.campaign_id = c.id AND e.delivery_id = q.delivery_id AND e.version IS NULL
          AND e.type IN ('Delivered', 'Bounced', 'Complained', 'Opened', 'Clicked')
          AND NOT EXISTS (SELECT FROM events x WHERE x.campaign_id = e.campaign_id AND x.delivery_id = e.delivery_id AND x.version IS NULL
                          AND x.type = 'Retracted' AND x.body ->> 'feedback' = e.body ->> 'feedback' AND x.position > e.position)
        ORDER BY array_position(ARRAY['Complained', 'Bounced'], e.type) LIMIT 1) AS feedback,
       (SELECT coalesce(e.body ->> 'code', e.body ->> 'reason') FROM events e
        WHERE e.campaign_id = c.id AND e.delivery_id = q.delivery_id
          AND e.type IN ('Deferred', 'Failed', 'Skipped', 'OutcomeUnknown', 'Released')
        ORDER BY e.version DESC LIMIT 1) AS last_code,
       s.at AS sent_at, s.message_id
FROM (SELECT id, name FROM campaigns ORDER BY id DESC OFFSET 0) c
CROSS JOIN LATERAL (SELECT o.delivery_id, o.status, o.attempt, o.due_at, o.version FROM recipient_queue o
                    WHERE o.campaign_id = c.id AND o.delivery_id = $1 OFFSET 0) q
LEFT JOIN recipients r ON r.campaign_id = c.id AND r.delivery_id = q.delivery_id
LEFT JOIN LATERAL (SELECT e.at, e.body ->> 'message_id' AS message_id FROM events e
                   WHERE e.campaign_id = c.id AND e.delivery_id = q.delivery_id AND e.type = 'Sent'
                   ORDER BY e.version DESC LIMIT 1) s ON true
LIMIT 1
