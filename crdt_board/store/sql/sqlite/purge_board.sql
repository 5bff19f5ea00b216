DELETE FROM boards
WHERE key = :board AND id < '0'
