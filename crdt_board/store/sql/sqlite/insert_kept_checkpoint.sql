INSERT INTO checkpoints (board, version, seq, content)
VALUES (:board, :version, :seq, :content)
