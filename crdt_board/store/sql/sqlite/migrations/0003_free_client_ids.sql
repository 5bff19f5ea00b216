-- Client ids under which replicas wrote that are done: all of it is in the journal. See crdt_board.client_ids.
CREATE TABLE free_client_ids (
    board INTEGER NOT NULL REFERENCES boards (key),
    client_id INTEGER NOT NULL,
    PRIMARY KEY (board, client_id)
) STRICT, WITHOUT ROWID;
