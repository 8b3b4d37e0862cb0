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
