REPLACE INTO tombstones (id, epoch, deleted_ms, agent, clients)
SELECT id, epoch, :deleted_ms, :agent, :clients
FROM boards
WHERE id = :board_id AND epoch = :epoch
