-- What the journal of a board up to boards.base_seq has become; entries up to there are not read any more.
ALTER TABLE boards ADD COLUMN base_seq INTEGER NOT NULL DEFAULT 0;

CREATE TABLE bases (
    board INTEGER PRIMARY KEY REFERENCES boards (key),
    seq INTEGER NOT NULL,
    entry_hash BLOB NOT NULL,
    version INTEGER NOT NULL,
    checkpoint_hash BLOB NOT NULL,
    meta TEXT NOT NULL,
    data BLOB NOT NULL,
    origins BLOB NOT NULL,
    sha256 BLOB NOT NULL
) STRICT;

-- The checkpoint itself, when it is to outlive the entry that made it; empty otherwise.
ALTER TABLE checkpoints ADD COLUMN content TEXT NOT NULL DEFAULT '';

ALTER TABLE snapshots ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
