DELETE FROM snapshots
WHERE place IN (SELECT (:board << 36) + value FROM json_each(:seqs)) AND NOT pinned
