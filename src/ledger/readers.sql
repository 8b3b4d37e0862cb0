-- name: described
-- What a mail's own page needs: whose mail it is, from whom, which list, and what holds already. $1 campaign, $2 delivery.
SELECT r.email, c.mail_from, l.name AS list_name,
       EXISTS (SELECT FROM suppressions x WHERE x.address_hash = r.address_hash) AS suppressed,
       EXISTS (SELECT FROM contacts k JOIN subscriptions s ON s.contact_id = k.id
               WHERE k.address_hash = r.address_hash AND s.list_id = c.list_id AND NOT s.subscribed) AS off_list
FROM recipients r JOIN campaigns c ON c.id = r.campaign_id LEFT JOIN lists l ON l.id = c.list_id
WHERE r.campaign_id = $1 AND r.delivery_id = $2

-- name: unsubscribe
SELECT unsubscribe_delivery($1, $2, $3, $4)

-- name: note_engagement
SELECT note_engagement($1, $2, $3, $4, $5)
