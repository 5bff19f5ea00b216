SELECT id, epoch, seq, hash, version, checkpoint_hash, created_ms, parent, base_seq
FROM boards
WHERE id = :board_id
