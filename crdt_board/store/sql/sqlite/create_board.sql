INSERT INTO boards (id, epoch, seq, hash, version, checkpoint_hash, created_ms)
SELECT :board_id, :epoch, 0, :hash, 0, :checkpoint_hash, :created_ms
WHERE :anew OR NOT EXISTS (SELECT 1 FROM tombstones WHERE id = :board_id)
ON CONFLICT (id) DO NOTHING
