SELECT max(place), count(*)
FROM (
    SELECT place
    FROM entries
    WHERE place > :board << 36 AND place <= (:board << 36) + (SELECT base_seq FROM boards WHERE key = :board)
    ORDER BY place
    LIMIT :limit
)
