-- Text is compared byte by byte (BINARY), which for UTF-8 is the order of code points. Hashes are 32 raw bytes.

-- The head row of each board: where its journal ends. The guard of every append is on this row.
CREATE TABLE boards (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    version INTEGER NOT NULL,
    checkpoint_hash BLOB NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

-- The place of an entry or a snapshot is boards.key * 2^36 + seq: one integer keeps the rows of a board together and in
-- order without a second index, and a rowid table keeps payloads of up to a page in the row (WITHOUT ROWID: a quarter).
-- The epoch is that of the board.
CREATE TABLE entries (
    place INTEGER PRIMARY KEY,
    kind INTEGER NOT NULL,      -- position in the list of kinds
    author TEXT NOT NULL,
    time_ms INTEGER NOT NULL,
    paths TEXT NOT NULL,        -- JSON array
    checkpoint TEXT NOT NULL,   -- JSON object, or empty
    payload BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

-- Which entry made which version; the checkpoint itself is in the entry.
CREATE TABLE checkpoints (
    board INTEGER NOT NULL REFERENCES boards (key),
    version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (board, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
    board INTEGER NOT NULL REFERENCES boards (key),
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (board, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE schemas (
    board INTEGER NOT NULL REFERENCES boards (key),
    number INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (board, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    place INTEGER PRIMARY KEY,
    entry_hash BLOB NOT NULL,
    version INTEGER NOT NULL,
    checkpoint_hash BLOB NOT NULL,
    meta TEXT NOT NULL,
    data BLOB NOT NULL,
    sha256 BLOB NOT NULL
) STRICT;
