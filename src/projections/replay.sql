-- name: replay
-- The events of a campaign in sealed order, what is in no block yet last, each with what its stream's state before it is
-- made of: the version, type and due_at of the change before, and the attempt as the last event set it that sets one.
-- Worked out here because a reader that walks the campaign would have to keep a state for every delivery. (`max` over an
-- array compares its first element, the version; a frame that only grows makes it one step per row.)
WITH sealed AS MATERIALIZED (
    SELECT t.epoch, t.xid, block_of(t.epoch, t.xid) AS block_no
    FROM (SELECT DISTINCT e.epoch, e.xid FROM events e WHERE e.campaign_id = $1) t
)
SELECT position, block_no, campaign_id, delivery_id, version, type, at, body::text AS body,
       max(ARRAY[lpad(version::text, 10, '0'), type, body ->> 'due_at'] COLLATE "C")
           FILTER (WHERE version IS NOT NULL) OVER so_far AS change,
       (max(ARRAY[version::numeric, CASE
               WHEN type IN ('Deferred', 'Sent', 'Failed', 'OutcomeUnknown') AND jsonb_typeof(body -> 'attempt') = 'number'
               THEN (body -> 'attempt')::numeric ELSE 0 END])
           FILTER (WHERE version IS NOT NULL AND (type IN ('Queued', 'Deferred', 'Sent', 'Failed', 'OutcomeUnknown')
               OR type = 'Requeued' AND body ->> 'by' <> 'policy')) OVER so_far)[2] AS attempt
FROM events JOIN sealed USING (epoch, xid) WHERE campaign_id = $1
WINDOW so_far AS (PARTITION BY delivery_id ORDER BY block_no NULLS LAST, position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
ORDER BY block_no NULLS LAST, position
