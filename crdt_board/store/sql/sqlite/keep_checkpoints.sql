UPDATE checkpoints
SET content = (SELECT checkpoint FROM entries WHERE place = (:board << 36) + checkpoints.seq)
WHERE
    board = :board
    AND version IN (SELECT value FROM json_each(:versions))
    AND content = ''
    AND EXISTS (SELECT 1 FROM entries WHERE place = (:board << 36) + checkpoints.seq)
