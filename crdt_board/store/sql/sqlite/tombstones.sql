SELECT epoch, deleted_ms, agent, clients
FROM tombstones
WHERE id = :board_id
ORDER BY deleted_ms DESC, epoch
