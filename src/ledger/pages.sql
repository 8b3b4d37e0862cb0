-- name: campaigns
-- Newest first, below a given id.
SELECT id FROM campaigns WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2

-- name: recipients
-- In delivery order, above a given id; $3 null: any status. Feedback is the worst that was heard.
SELECT q.delivery_id, r.recipient_key AS key, r.email, r.name, q.status::text, q.attempt, q.due_at, q.version,
       (SELECT CASE e.type WHEN 'Complained' THEN 'complained' WHEN 'Bounced' THEN 'bounced' ELSE 'delivered' END FROM events e
        WHERE e.campaign_id = q.campaign_id AND e.delivery_id = q.delivery_id AND e.version IS NULL
          AND e.type IN ('Delivered', 'Bounced', 'Complained', 'Opened', 'Clicked')
          AND NOT EXISTS (SELECT FROM events x WHERE x.campaign_id = e.campaign_id AND x.delivery_id = e.delivery_id AND x.version IS NULL
                          AND x.type = 'Retracted' AND x.body ->> 'feedback' = e.body ->> 'feedback' AND x.position > e.position)
        ORDER BY array_position(ARRAY['Complained', 'Bounced'], e.type) LIMIT 1) AS feedback
FROM recipient_queue q LEFT JOIN recipients r USING (campaign_id, delivery_id)
WHERE q.campaign_id = $1 AND q.delivery_id > $2 AND ($3::text IS NULL OR q.status::text = $3)
ORDER BY q.delivery_id LIMIT $4

-- name: first_recipient
-- With what its mail is made of.
SELECT delivery_id, recipient_key AS key, email, name, data FROM recipients WHERE campaign_id = $1 ORDER BY delivery_id LIMIT 1
