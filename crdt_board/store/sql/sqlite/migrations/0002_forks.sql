-- What a board was forked from: a pointer to a checkpoint, and the board in it; both empty for all others.
ALTER TABLE boards ADD COLUMN parent TEXT NOT NULL DEFAULT '';
ALTER TABLE boards ADD COLUMN parent_id TEXT NOT NULL DEFAULT '';
CREATE INDEX forks ON boards (parent_id, id) WHERE parent_id <> '';

-- Boards that were deleted. The row of such a board in `boards` has the id '/' and its key, which no board can have,
-- until everything of it is gone: so its key is not given to another board meanwhile.
CREATE TABLE tombstones (
    id TEXT NOT NULL,
    epoch TEXT NOT NULL,
    deleted_ms INTEGER NOT NULL,
    agent TEXT NOT NULL,
    clients BLOB NOT NULL,      -- Yjs state vector
    PRIMARY KEY (id, epoch)
) STRICT, WITHOUT ROWID;
