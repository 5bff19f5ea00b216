DELETE FROM checkpoints
WHERE
    board = :board
    AND content = ''
    AND version IN (
        SELECT CASE WHEN json_valid(checkpoint) THEN json_extract(checkpoint, '$.version') END
        FROM entries
        WHERE place > :board << 36 AND place <= :last AND checkpoint <> ''
    )
