SELECT s.number, s.fingerprint, s.document
FROM boards AS b
JOIN schemas AS s ON s.board = b.key
WHERE b.id = :board_id
ORDER BY s.number
