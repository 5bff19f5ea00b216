SELECT id, epoch, seq, hash, version, checkpoint_hash, created_ms, parent, base_seq
FROM boards
WHERE parent_id = :board_id AND parent_id <> '' AND id > :after
ORDER BY id
LIMIT :limit
