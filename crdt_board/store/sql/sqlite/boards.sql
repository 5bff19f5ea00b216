SELECT id, epoch, seq, hash, version, checkpoint_hash, created_ms
FROM boards
WHERE id > :after
ORDER BY id
LIMIT :limit
