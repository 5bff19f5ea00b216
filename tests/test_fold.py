"""What a journal adds up to besides the document."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdt_board.checkpoints import GENESIS_HASH as NO_CHECKPOINT
from crdt_board.checkpoints import encode_checkpoint, make_checkpoint
from crdt_board.fold import NOWHERE, Fold, bounded_paths
from crdt_board.journal import GENESIS_HASH, Entry, make_entry

Written = tuple[str, tuple[str, ...], bool]
"""Author, paths, and whether it is a commit."""

JOURNALS = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob", "eva"]),
        st.lists(st.sampled_from(["draft", "plan/a", "plan/b~1c", "title"]), unique=True, max_size=3).map(tuple),
        st.booleans(),
    ),
    max_size=12,
)


def journal(written: list[Written]) -> list[Entry]:
    """Sound entries; what their checkpoints say of the state does not matter here."""
    entries: list[Entry] = []
    hash_before, checkpoint_before, version = GENESIS_HASH, NO_CHECKPOINT, 0
    for seq, (author, paths, is_commit) in enumerate(written, start=1):
        checkpoint = ""
        if is_commit:
            version += 1
            made = make_checkpoint(
                board_id="job",
                epoch="e",
                version=version,
                seq=seq,
                parent_hash=checkpoint_before,
                checksum="0" * 64,
                agent=author,
                step="step",
                schema_version=1,
                time_ms=seq,
            )
            checkpoint, checkpoint_before = encode_checkpoint(made), made.hash
        entry = make_entry(
            hash_before,
            board_id="job",
            epoch="e",
            seq=seq,
            kind="commit" if is_commit else "update",
            author=author,
            time_ms=seq,
            paths=paths,
            checkpoint=checkpoint,
            payload=b"",
        )
        entries.append(entry)
        hash_before = entry.hash
    return entries


def folded(entries: list[Entry]) -> Fold:
    fold = Fold(epoch="e")
    for entry in entries:
        fold.advance(entry)
    return fold


def copied(fold: Fold) -> Fold:
    """The fold as a snapshot carries it."""
    return Fold.from_meta(
        fold.to_meta(), seq=fold.seq, hash=fold.hash, version=fold.version, checkpoint_hash=fold.checkpoint_hash
    )


def test_a_new_fold_is_the_empty_board() -> None:
    """Before the first entry: version 0, and the hashes from which both chains begin."""
    fold = Fold(epoch="e")
    assert (fold.seq, fold.version, fold.hash, fold.checkpoint_hash) == (0, 0, GENESIS_HASH, NO_CHECKPOINT)
    assert fold.changed_since(0) == []


def test_it_stands_where_the_journal_ends() -> None:
    """Seq and hash are the last entry's; version, its author and hash are those of the last commit."""
    entries = journal([("ann", ("draft",), True), ("bob", (), True), ("eva", ("plan/a",), False)])
    fold = folded(entries)
    assert (fold.seq, fold.hash) == (3, entries[-1].hash)
    assert (fold.version, fold.version_seq, fold.version_author) == (2, 2, "bob")
    assert json.loads(entries[1].checkpoint)["hash"] == fold.checkpoint_hash


def test_an_entry_out_of_turn_cannot_be_taken_in() -> None:
    """A missing or repeated entry is a fault of the program."""
    first, second = journal([("ann", (), False), ("ann", (), False)])
    with pytest.raises(AssertionError):
        Fold(epoch="e").advance(second)
    fold = folded([first])
    with pytest.raises(AssertionError):
        fold.advance(first)


@given(JOURNALS, st.integers(0, 12), st.sampled_from(["ann", "bob", "eva", "nobody", None]))
def test_it_knows_who_changed_which_field_last(written: list[Written], seq: int, author: str | None) -> None:
    """``changed_since`` names the fields changed after an entry from anywhere but one origin, as a walk would."""
    entries = journal(written)
    expected = {
        path.partition("/")[0]
        for entry in entries
        if entry.seq > seq and (not author or entry.author != author)
        for path in entry.paths
    }
    fold = folded([])
    for entry in entries:
        fold.advance(entry, entry.author)
    assert fold.changed_since(seq, apart_from=author or NOWHERE) == sorted(expected)
    assert copied(fold).changed_since(seq, apart_from=author or NOWHERE) == sorted(expected)


@given(JOURNALS, st.integers(0, 12))
def test_a_snapshot_carries_it(written: list[Written], cut: int) -> None:
    """A fold that went through a snapshot's metadata goes on like one that did not."""
    entries = journal(written)
    resumed = copied(folded(entries[:cut]))
    for entry in entries[cut:]:
        resumed.advance(entry)
    assert resumed == folded(entries)


@pytest.mark.parametrize(
    "meta", ["", "[]", "{}", '{"epoch": "e"}', '{"epoch":"e","version_seq":0,"version_author":"","marks":5}']
)
def test_metadata_that_is_not_its_own_is_refused(meta: str) -> None:
    """Anything but the output of ``to_meta`` raises one of the announced errors."""
    with pytest.raises((ValueError, KeyError, TypeError)):
        Fold.from_meta(meta, seq=0, hash=GENESIS_HASH, version=0, checkpoint_hash=NO_CHECKPOINT)


def test_many_paths_become_the_names_of_their_fields() -> None:
    """Up to the limit all paths are kept, beyond it only the fields, each once."""
    few = ("a/1", "a/2", "b")
    assert bounded_paths(few, 3) == few
    assert bounded_paths([*few, "b/x~1y"], 3) == ("a", "b")
