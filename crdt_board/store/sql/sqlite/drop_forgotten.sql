DELETE FROM checkpoints
WHERE board = :board AND version IN (SELECT value FROM json_each(:forgotten)) AND seq <= :expected_seq
