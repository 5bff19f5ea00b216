REPLACE INTO snapshots (place, entry_hash, version, checkpoint_hash, meta, data, sha256)
VALUES ((:board << 36) + :seq, :entry_hash, :version, :checkpoint_hash, :meta, :data, :sha256)
