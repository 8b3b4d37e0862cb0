-- name: people
-- Who waits for the letter, and who will not get it.
SELECT count(*) FILTER (WHERE q.status = 'pending') AS pending, count(*) FILTER (WHERE q.status = 'skipped') AS skipped, count(*) AS audience
FROM recipient_queue q WHERE q.campaign_id = $1
