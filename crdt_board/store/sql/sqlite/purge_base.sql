DELETE FROM bases
WHERE board = :board
