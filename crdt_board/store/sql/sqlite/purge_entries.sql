DELETE FROM entries
WHERE place IN (
    SELECT place
    FROM entries
    WHERE place BETWEEN :board << 36 AND ((:board + 1) << 36) - 1
    ORDER BY place
    LIMIT :limit
)
