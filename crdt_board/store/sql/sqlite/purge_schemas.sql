DELETE FROM schemas
WHERE board = :board
