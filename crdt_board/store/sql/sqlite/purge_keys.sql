DELETE FROM keys
WHERE board = :board
