REPLACE INTO bases (board, seq, entry_hash, version, checkpoint_hash, meta, data, origins, sha256)
VALUES (:board, :seq, :entry_hash, :version, :checkpoint_hash, :meta, :data, :origins, :sha256)
