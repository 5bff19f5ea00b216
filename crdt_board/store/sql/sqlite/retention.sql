SELECT retention
FROM boards
WHERE id = :board_id
