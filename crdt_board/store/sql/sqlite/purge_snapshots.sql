DELETE FROM snapshots
WHERE place BETWEEN :board << 36 AND ((:board + 1) << 36) - 1
