DELETE FROM free_client_ids
WHERE
    (board, client_id) IN (
        SELECT free_client_ids.board, free_client_ids.client_id
        FROM free_client_ids
        JOIN boards ON boards.key = free_client_ids.board
        WHERE boards.id = :board_id
        LIMIT :limit
    )
RETURNING client_id
