SELECT k.key, k.fingerprint, k.version
FROM boards AS b
JOIN keys AS k ON k.board = b.key AND k.key > :after
WHERE b.id = :board_id
ORDER BY k.key
LIMIT :limit
