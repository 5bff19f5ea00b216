SELECT s.place & 0xFFFFFFFFF
FROM boards AS b
JOIN snapshots AS s ON s.place BETWEEN b.key << 36 AND ((b.key + 1) << 36) - 1
WHERE b.id = :board_id AND s.pinned = :pinned
ORDER BY s.place
