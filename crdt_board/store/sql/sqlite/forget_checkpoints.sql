UPDATE checkpoints
SET content = ''
WHERE board = :board AND version IN (SELECT value FROM json_each(:forgotten))
