-- name: written
-- The message that has this key, in whichever generation of the campaign (by name, or by the id of one).
SELECT r.campaign_id, r.delivery_id
FROM (SELECT coalesce((SELECT c.name FROM campaigns c WHERE c.name = $1 LIMIT 1),
                      (SELECT c.name FROM campaigns c WHERE $1 ~ '^[0-9]{1,18}$' AND c.id = $1::bigint)) AS name) n,
     LATERAL (SELECT family_of(n.name) AS id OFFSET 0) f
CROSS JOIN LATERAL (SELECT o.campaign_id, o.delivery_id FROM recipients o
                    WHERE o.recipient_key = $2 AND o.family_id = f.id OFFSET 0) r

-- name: enqueue_all
-- Messages of one campaign, each as by enqueue(); five times as cheap together as one by one.
SELECT i.n, enqueue($1, i.email, i.key, i.name, i.data, i.due_at, wake => false) AS delivery_id
FROM unnest($2::text[], $3::text[], $4::text[], $5::jsonb[], $6::timestamptz[]) WITH ORDINALITY AS i(email, key, name, data, due_at, n)
