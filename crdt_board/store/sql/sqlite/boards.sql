SELECT id, epoch, seq, hash, version, checkpoint_hash, created_ms, parent
FROM boards
WHERE id > :after AND id >= '0'
ORDER BY id
LIMIT :limit
