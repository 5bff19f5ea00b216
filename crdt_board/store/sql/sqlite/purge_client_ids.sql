DELETE FROM free_client_ids
WHERE board = :board
