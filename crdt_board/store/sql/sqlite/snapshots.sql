SELECT s.place & 0xFFFFFFFFF, s.entry_hash, s.version, s.checkpoint_hash, s.meta, s.data, s.sha256, s.pinned
FROM boards AS b
JOIN snapshots AS s ON s.place BETWEEN b.key << 36 AND (b.key << 36) + :at_most
WHERE b.id = :board_id
ORDER BY s.place DESC
LIMIT :limit
