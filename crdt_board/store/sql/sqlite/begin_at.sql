UPDATE boards
SET seq = :seq, hash = :entry_hash, version = :version, checkpoint_hash = :checkpoint_hash, base_seq = :seq
WHERE key = :board
