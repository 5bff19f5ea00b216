SELECT id, epoch, seq, hash, version, checkpoint_hash, created_ms, parent, base_seq
FROM boards
WHERE id > :after AND id >= '0'
ORDER BY id
LIMIT :limit
