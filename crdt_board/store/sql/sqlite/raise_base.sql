UPDATE boards
SET base_seq = :seq
WHERE
    id = :board_id
    AND epoch = :epoch
    AND base_seq = :expected_seq
    AND :seq >= :expected_seq
    AND :seq <= seq
    AND json_array_length(:pinned) = (
        SELECT count(*)
        FROM snapshots
        WHERE place IN (SELECT (boards.key << 36) + value FROM json_each(:pinned)) AND pinned
    )
RETURNING key
