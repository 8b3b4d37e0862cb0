-- name: enqueue
-- One message in a transaction of its own or the caller's; who waits for the commit wakes the workers after it.
SELECT enqueue($1, $2, $3, $4, $5, $6, wake => false)

-- name: written
-- The message that has this key, in whichever generation of the campaign (by name, or by the id of one).
SELECT r.campaign_id, r.delivery_id
FROM (SELECT coalesce((SELECT c.name FROM campaigns c WHERE c.name = $1 LIMIT 1),
                      (SELECT c.name FROM campaigns c WHERE $1 ~ '^[0-9]{1,18}$' AND c.id = $1::bigint)) AS name) n,
     LATERAL (SELECT family_of(n.name) AS id OFFSET 0) f
CROSS JOIN LATERAL (SELECT o.campaign_id, o.delivery_id FROM recipients o
                    WHERE o.recipient_key = $2 AND o.family_id = f.id OFFSET 0) r
