SELECT c.version, c.seq, CASE WHEN c.content <> '' THEN c.content ELSE e.checkpoint END
FROM boards AS b
JOIN checkpoints AS c ON c.board = b.key AND c.version < :before
LEFT JOIN entries AS e ON e.place = (b.key << 36) + c.seq
WHERE b.id = :board_id AND (c.seq > b.base_seq OR c.content <> '')
ORDER BY c.version DESC
LIMIT :limit
