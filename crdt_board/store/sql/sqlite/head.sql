SELECT id, epoch, seq, hash, version, checkpoint_hash, created_ms, parent
FROM boards
WHERE id = :board_id
