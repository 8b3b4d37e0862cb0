-- name: campaigns
-- Newest first, below a given id.
SELECT id FROM campaigns WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2

-- name: recipients
-- In delivery order, above a given id; $3 null: any status. Feedback is the worst that was heard.
SELECT q.delivery_id, r.recipient_key AS key, r.email, r.name, q.status::text, q.attempt, q.due_at, q.version,
       (SELECT lower(e.type) FROM events e
        WHERE e.campaign_id = q.campaign_id AND e.delivery_id = q.delivery_id AND e.version IS NULL
          AND e.type IN ('Delivered', 'Bounced', 'Complained')
        ORDER BY array_position(ARRAY['Complained', 'Bounced', 'Delivered'], e.type) LIMIT 1) AS feedback
FROM recipient_queue q LEFT JOIN recipients r USING (campaign_id, delivery_id)
WHERE q.campaign_id = $1 AND q.delivery_id > $2 AND ($3::text IS NULL OR q.status::text = $3)
ORDER BY q.delivery_id LIMIT $4

-- name: first_recipient
-- With what its mail is made of.
SELECT delivery_id, recipient_key AS key, email, name, data FROM recipients WHERE campaign_id = $1 ORDER BY delivery_id LIMIT 1
