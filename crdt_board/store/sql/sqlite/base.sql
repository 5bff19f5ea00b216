SELECT a.seq, a.entry_hash, a.version, a.checkpoint_hash, a.meta, a.data, a.origins, a.sha256
FROM boards AS b
JOIN bases AS a ON a.board = b.key
WHERE b.id = :board_id
