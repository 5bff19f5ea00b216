INSERT INTO snapshots (place, entry_hash, version, checkpoint_hash, meta, data, sha256, pinned)
SELECT (:board << 36) + :seq, :entry_hash, :version, :checkpoint_hash, :meta, :data, :sha256, :pinned
WHERE :pinned OR :seq >= (SELECT base_seq FROM boards WHERE key = :board)
ON CONFLICT (place) DO UPDATE
SET
    entry_hash = excluded.entry_hash,
    version = excluded.version,
    checkpoint_hash = excluded.checkpoint_hash,
    meta = excluded.meta,
    data = excluded.data,
    sha256 = excluded.sha256,
    pinned = max(pinned, excluded.pinned)
