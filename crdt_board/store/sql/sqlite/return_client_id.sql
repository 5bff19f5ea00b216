INSERT INTO free_client_ids (board, client_id)
VALUES (:board, :client_id)
ON CONFLICT DO NOTHING
