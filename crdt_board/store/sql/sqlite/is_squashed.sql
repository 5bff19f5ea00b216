SELECT 1
FROM boards AS b
JOIN entries AS e ON e.place > b.key << 36 AND e.place <= (b.key << 36) + b.base_seq
WHERE b.id = :board_id
LIMIT 1
