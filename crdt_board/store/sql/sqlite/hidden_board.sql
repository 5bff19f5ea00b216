SELECT key
FROM boards
WHERE id < '0'
LIMIT 1
