UPDATE boards
SET id = '/' || key, parent = '', parent_id = ''
WHERE id = :board_id AND epoch = :epoch
RETURNING key
