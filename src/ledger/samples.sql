-- name: by_id
-- With what their mail is made of.
SELECT r.delivery_id, r.recipient_key AS key, r.email, r.name, r.data, q.attempt
FROM recipients r JOIN recipient_queue q USING (campaign_id, delivery_id) WHERE r.campaign_id = $1 AND r.delivery_id = $2

-- name: first
-- The same of who came first and was not erased.
SELECT r.delivery_id, r.recipient_key AS key, r.email, r.name, r.data, q.attempt
FROM recipients r JOIN recipient_queue q USING (campaign_id, delivery_id)
WHERE r.campaign_id = $1 AND r.email IS NOT NULL ORDER BY r.delivery_id LIMIT 1

-- name: nobody
-- A delivery that no recipient has: what is made of it leads to nobody.
SELECT nextval('delivery_ids')

-- name: suppressed
-- Which of these nobody mails.
SELECT a.email FROM unnest($1::text[]) AS a(email) JOIN suppressions s ON s.address_hash = address_hash(a.email)
