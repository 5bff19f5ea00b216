DELETE FROM snapshots
WHERE
    place BETWEEN :board << 36 AND ((:board + 1) << 36) - 1
    AND place NOT IN (
        SELECT place
        FROM snapshots
        WHERE place BETWEEN :board << 36 AND ((:board + 1) << 36) - 1
        ORDER BY place DESC
        LIMIT :keep
    )
