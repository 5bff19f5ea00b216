INSERT INTO boards (id, epoch, seq, hash, version, checkpoint_hash, created_ms, parent, parent_id)
VALUES (:board_id, :epoch, 0, :hash, 0, :checkpoint_hash, :created_ms, :parent, :parent_id)
ON CONFLICT (id) DO NOTHING
