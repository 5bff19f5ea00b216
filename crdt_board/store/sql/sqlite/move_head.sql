UPDATE boards
SET
    seq = :seq,
    hash = :hash,
    version = version + :commits,
    checkpoint_hash = coalesce(:checkpoint_hash, checkpoint_hash)
WHERE id = :board_id AND epoch = :epoch AND seq = :expected_seq
