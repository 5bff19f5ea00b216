UPDATE boards
SET retention = :policy
WHERE key = :board
