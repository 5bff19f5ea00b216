DELETE FROM snapshots
WHERE
    place >= :board << 36
    AND place < (:board << 36) + :seq
    AND place NOT IN (SELECT (:board << 36) + value FROM json_each(:pinned))
