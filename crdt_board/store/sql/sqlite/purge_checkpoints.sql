DELETE FROM checkpoints
WHERE board = :board
