-- name: tally
-- How often each thing happened to the people of a campaign; `code` tells a relay's words from a lost connection.
SELECT type, coalesce(body ->> 'code', body ->> 'reason', '') AS code, count(*) AS times
FROM events WHERE campaign_id = $1 AND delivery_id <> 0 GROUP BY 1, 2
