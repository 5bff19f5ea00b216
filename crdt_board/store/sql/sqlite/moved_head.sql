-- After move_head, in its transaction: RETURNING would make a table there, which takes longer than this.
SELECT key, version
FROM boards
WHERE id = :board_id
