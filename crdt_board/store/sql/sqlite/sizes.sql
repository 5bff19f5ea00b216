SELECT count(e.place), coalesce(sum(length(e.payload) + length(CAST(e.checkpoint AS BLOB))), 0),
    (
        SELECT count(*)
        FROM boards AS b
        JOIN checkpoints AS c ON c.board = b.key
        WHERE b.id = :board_id AND (c.seq > b.base_seq OR c.content <> '')
    ),
    (
        SELECT count(*)
        FROM boards AS b
        JOIN snapshots AS s ON s.place >= b.key << 36 AND s.place < (b.key + 1) << 36
        WHERE b.id = :board_id
    ) + (SELECT count(*) FROM boards AS b JOIN bases AS t ON t.board = b.key WHERE b.id = :board_id),
    (
        SELECT coalesce(sum(length(s.data)), 0)
        FROM boards AS b
        JOIN snapshots AS s ON s.place >= b.key << 36 AND s.place < (b.key + 1) << 36
        WHERE b.id = :board_id
    ) + (
        SELECT coalesce(sum(length(t.data) + length(t.origins)), 0)
        FROM boards AS b
        JOIN bases AS t ON t.board = b.key
        WHERE b.id = :board_id
    )
FROM boards AS b
JOIN entries AS e ON e.place > (b.key << 36) + b.base_seq AND e.place < (b.key + 1) << 36
WHERE b.id = :board_id
