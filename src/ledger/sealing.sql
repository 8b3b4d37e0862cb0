-- name: seal
-- The new block, 0 when there was nothing to seal, null when somebody else is at it.
SELECT seal()
