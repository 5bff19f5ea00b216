SELECT e.place & 0xFFFFFFFFF, b.epoch, e.kind, e.author, e.time_ms, e.paths, e.checkpoint, e.payload, e.hash
FROM boards AS b
JOIN entries AS e ON e.place > (b.key << 36) + max(:after, b.base_seq) AND e.place < (b.key + 1) << 36
WHERE b.id = :board_id
ORDER BY e.place
LIMIT :limit
