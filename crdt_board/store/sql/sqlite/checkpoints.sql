SELECT c.version, c.seq, e.checkpoint
FROM boards AS b
JOIN checkpoints AS c ON c.board = b.key AND c.version < :before
LEFT JOIN entries AS e ON e.place = (b.key << 36) + c.seq
WHERE b.id = :board_id
ORDER BY c.version DESC
LIMIT :limit
