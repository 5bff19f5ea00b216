SELECT k.key, k.fingerprint, k.version
FROM boards AS b
JOIN keys AS k ON k.board = b.key
WHERE b.id = :board_id AND k.key IN (SELECT value FROM json_each(:keys))
