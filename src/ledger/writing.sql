-- name: same_sender
-- The sender with this URL and secret, if it stands there as it is; looked at without a lock, which would make campaigns
-- through one sender wait for each other's people.
SELECT id FROM senders WHERE name = $1 AND secret IS NOT DISTINCT FROM $2

-- name: never_given
-- Which of these variables no recipient of the campaign has; `name` is the recipient's own, all others are merge data. In
-- the order of the key, so that the planner walks this campaign by its index and stops at the first who has it.
SELECT v.name FROM unnest($2::text[]) AS v(name)
WHERE CASE v.name
    WHEN 'name' THEN (SELECT r.delivery_id FROM recipients r WHERE r.campaign_id = $1 AND r.name IS NOT NULL
                      ORDER BY r.delivery_id LIMIT 1)
    ELSE (SELECT r.delivery_id FROM recipients r WHERE r.campaign_id = $1 AND r.data ? v.name
          ORDER BY r.delivery_id LIMIT 1) END IS NULL
ORDER BY v.name

-- name: has_recipients
SELECT EXISTS (SELECT FROM recipient_queue WHERE campaign_id = $1)

-- name: analyze
-- After many new rows the planner should know of them. Only the owner may; for anybody else it is a warning.
ANALYZE recipients, recipient_queue, events
