SELECT key
FROM boards
WHERE id = :board_id
