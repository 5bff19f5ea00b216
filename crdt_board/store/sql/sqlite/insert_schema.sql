INSERT INTO schemas (board, number, fingerprint, document)
SELECT :board, :number, :fingerprint, :document
WHERE :number = 1 + (SELECT coalesce(max(number), 0) FROM schemas WHERE board = :board)
