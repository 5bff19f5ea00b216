INSERT INTO checkpoints (board, version, seq)
VALUES (:board, :version, :seq)
