SELECT DISTINCT k.version
FROM boards AS b
JOIN keys AS k ON k.board = b.key
WHERE b.id = :board_id AND k.version <= :at_most
ORDER BY k.version
