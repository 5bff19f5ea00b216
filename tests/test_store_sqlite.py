"""The store on a SQLite file: the contract, and what can go wrong with a file and several processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from crdt_board.clock import ManualClock
from crdt_board.errors import BoardCorrupt, StoreUnavailable
from crdt_board.journal import GENESIS_HASH, verify_chain
from crdt_board.store import sqlite
from crdt_board.store.contract import Appended, Store
from crdt_board.store.sql_files import load_migrations
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.journals import JournalWriter, key, make_board, payloads, schema, snapshot, tombstone
from crdt_board.testing.store_contract import DEADLINE_SECONDS, DurableStoreContract
from support.disk import file_size_limit
from support.waiting import eventually

APPENDER = """
import asyncio, sys
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.journals import append_patiently, make_board

async def main(path, name, count):
    store = await SqliteStore.open(path)
    await make_board(store)
    for number in range(count):
        await append_patiently(store, f"{name}/{number}", 1)
        print(f"{name}/{number} 0", flush=True)
    await store.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Every connection that a test opened has ended with its thread."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and "connection" in thread.name]
    for thread in left:
        thread.join(DEADLINE_SECONDS)
    assert not [thread for thread in left if thread.is_alive()]


class TestSqliteStore(DurableStoreContract):
    """The store on a SQLite file keeps every promise of the contract."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "boards.db"

    async def make_store(self) -> Store:
        return await SqliteStore.open(self.path)

    async def open_second(self, store: Store) -> Store:
        return await SqliteStore.open(self.path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "boards.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, clock=ManualClock(42))
    yield store
    await store.close()


def start_appender(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def damage(path: Path, statement: str, *values: object) -> None:
    """Change a stored row behind the store's back."""
    connection = sqlite3.connect(path)
    with connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


# Opening


async def test_a_file_of_another_program_is_left_alone(path: Path) -> None:
    """A SQLite database of another program is refused, and neither it nor its folder is touched."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE music (title TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=r"boards\.db: it is not a CRDT Board database; choose another file"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["boards.db"]


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    """A text file is refused and keeps its bytes."""
    path.write_text("Dear diary, " * 100)
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match="not a CRDT Board database"):
        await SqliteStore.open(path)
    assert path.read_bytes() == before


async def test_a_folder_is_no_database(tmp_path: Path) -> None:
    """A path that names a folder is refused by what it is."""
    with pytest.raises(StoreUnavailable, match="it is not a file; name a file"):
        await SqliteStore.open(tmp_path)


async def test_a_socket_is_no_database(path: Path) -> None:
    """A path that names something that cannot be read as a file is refused without waiting for it."""
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(path))
        with pytest.raises(StoreUnavailable, match="it is not a file"):
            await SqliteStore.open(path)


async def test_an_unreadable_path_is_named_with_its_cause(path: Path) -> None:
    """A path that the system does not open is refused with the system's reason."""
    path.symlink_to(path)
    with pytest.raises(StoreUnavailable, match=r"boards\.db: it cannot be read \(.*symbolic links\)"):
        await SqliteStore.open(path)


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The store makes no folders: it says which one is missing."""
    with pytest.raises(StoreUnavailable, match=r"the folder .*elsewhere does not exist; make it first"):
        await SqliteStore.open(tmp_path / "elsewhere" / "boards.db")
    assert os.listdir(tmp_path) == []


async def test_a_newer_file_is_left_alone(path: Path) -> None:
    """A file that a newer version wrote is refused with both numbers, and stays as it is."""
    await (await SqliteStore.open(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreUnavailable, match=r"a newer CRDT Board wrote it \(schema 99, known here: \d+\); upgrade"):
        await SqliteStore.open(path)


async def test_a_damaged_file_is_reported_not_replaced(path: Path) -> None:
    """Guarantee 7: a database whose pages are garbage is reported and keeps its bytes."""
    await (await SqliteStore.open(path)).close()
    garbage = path.read_bytes()[:100] + b"\xff" * 20_000
    path.write_bytes(garbage)
    with pytest.raises(StoreUnavailable, match=r"it is damaged|it is no SQLite database"):
        await SqliteStore.open(path)
    assert path.read_bytes() == garbage


async def test_an_empty_file_becomes_a_database(path: Path) -> None:
    """A file of no bytes, as ``touch`` or ``mkstemp`` make it, is taken as new."""
    path.touch()
    store = await SqliteStore.open(path)
    assert await store.boards() == []
    await store.close()


async def test_a_database_without_anything_becomes_one_of_boards(path: Path) -> None:
    """A SQLite file with a header and no table, as one is for a moment when it is made, is taken as new."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.close()
    assert path.stat().st_size > 0
    store = await SqliteStore.open(path)
    assert await store.boards() == []
    await store.close()


async def test_any_file_name_will_do(tmp_path: Path) -> None:
    """A name with characters that mean something in a URI is that file and no other."""
    name = "50% of #1?mode=memory & more ü.db"
    store = await SqliteStore.open(tmp_path / name)
    await make_board(store)
    await store.close()
    assert os.listdir(tmp_path) == [name]


async def test_after_closing_one_file_is_left(path: Path) -> None:
    """Closing folds the write-ahead log into the file and leaves nothing beside it."""
    store = await SqliteStore.open(path)
    await store.append([JournalWriter(await make_board(store)).updates(b"x")])
    await store.close()
    assert os.listdir(path.parent) == ["boards.db"]


async def test_many_open_a_new_file_at_once(path: Path) -> None:
    """W12: twenty stores that open one new file at the same moment all work, on one schema."""
    stores = await asyncio.gather(*(SqliteStore.open(path) for _ in range(20)))
    heads = await asyncio.gather(*(make_board(store) for store in stores))
    assert len(set(heads)) == 1
    await asyncio.gather(*(store.close() for store in stores))


async def test_opening_can_be_cancelled(path: Path) -> None:
    """Opening that is cancelled at any moment leaves nothing open and a file that opens."""
    for yields in range(20):
        opening = asyncio.create_task(SqliteStore.open(path))
        for _ in range(yields):
            await asyncio.sleep(0)
        opening.cancel()
        (result,) = await asyncio.gather(opening, return_exceptions=True)
        if isinstance(result, SqliteStore):
            await result.close()
    await (await SqliteStore.open(path)).close()


async def test_the_clock_can_be_set(store: SqliteStore) -> None:
    """The store's clock is the one that it was given."""
    assert await store.now_ms() == 42


async def test_syncing_is_full_unless_told_otherwise(store: SqliteStore, tmp_path: Path) -> None:
    """Guarantee 1: by default each commit waits until the disk has it."""
    relaxed = await SqliteStore.open(tmp_path / "relaxed.db", synchronous="NORMAL")
    for which, level in ((store, 2), (relaxed, 1)):
        assert await which._file._writer.run(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (level,)
    await relaxed.close()


def test_migrations_are_numbered_without_gaps() -> None:
    """The migrations are the only source of the schema; they run in the order of their numbers."""
    migrations = load_migrations("sqlite")
    assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1))
    assert all(migration.statements for migration in migrations)


# Several processes


async def test_eight_processes_append_to_one_new_file(path: Path) -> None:
    """D9: eight processes, a hundred commits each, one file that did not exist: all succeed, in one chain."""
    processes = [start_appender(path, f"p{number}", 100) for number in range(8)]
    outputs = [await asyncio.to_thread(process.communicate, None, DEADLINE_SECONDS * 4) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8
    store = await SqliteStore.open(path)
    found = await store.entries("job", after=0, limit=10_000)
    await store.close()
    verify_chain(GENESIS_HASH, 0, found)
    written = sorted(line.encode() for out, _ in outputs for line in out.splitlines())
    assert len(written) == 800
    assert sorted(payloads(found)) == written


async def test_acknowledged_entries_survive_kill(path: Path) -> None:
    """D1: what a process had acknowledged when it was killed while it appended is there, and the chain verifies."""
    for round_ in range(3):
        process = start_appender(path, f"round{round_}", 100_000)
        assert process.stdout is not None
        acknowledged = [await asyncio.to_thread(process.stdout.readline) for _ in range(50)]
        process.kill()
        acknowledged += (await asyncio.to_thread(process.communicate))[0].splitlines(keepends=True)
        complete = [line.strip().encode() for line in acknowledged if line.endswith("\n")]
        store = await SqliteStore.open(path)
        found = await store.entries("job", after=0, limit=1_000_000)
        head = await store.head("job")
        await store.close()
        assert head is not None
        assert verify_chain(GENESIS_HASH, 0, found) == (head.hash, head.seq)
        assert len(complete) >= 50
        assert set(complete) <= set(payloads(found))


async def test_a_locked_file_is_waited_for(store: SqliteStore, path: Path) -> None:
    """An append waits while another process writes, and succeeds when that one has finished; reads do not wait."""
    writer = JournalWriter(await make_board(store))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    append = asyncio.create_task(store.append([writer.updates(b"x")]))
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await store.entries("job", after=0, limit=1) == []
        assert not append.done()
        other.execute("COMMIT")
        assert await append == [Appended(seq=1)]
    other.close()


async def test_a_file_that_stays_locked_is_unavailable(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for a lock ends at the deadline with an error that says who is to blame; afterwards the store works."""
    monkeypatch.setattr("crdt_board.store.sqlite_file._BUSY_SECONDS_MAX", 0.05)
    writer = JournalWriter(await make_board(store))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    request = writer.updates(b"x")
    with pytest.raises(StoreUnavailable, match="another process has kept it locked") as caught:
        await store.append([request])
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    other.close()
    assert await store.append([request]) == [Appended(seq=1)]


# A disk that fails


async def test_a_full_database_is_unavailable_until_there_is_space(store: SqliteStore) -> None:
    """D6: an append that finds the disk full is not there at all, and the next one works once there is space."""
    writer = JournalWriter(await make_board(store))
    pages = await store._file._writer.run(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    await store._file._writer.run(lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
    request = writer.updates(b"small", b"x" * 100_000)
    with pytest.raises(StoreUnavailable, match="the disk is full; free some space"):
        await store.append([request])
    assert await store.entries("job", after=0, limit=10) == []
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        await store.save_snapshot(snapshot("job", 1, b"x" * 100_000))
    await store._file._writer.run(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
    assert await store.append([request]) == [Appended(seq=2)]
    await store.save_snapshot(snapshot("job", 1, b"x" * 100_000))


async def test_a_disk_that_refuses_is_unavailable_until_it_works(store: SqliteStore, path: Path) -> None:
    """D6: an append during which the system refuses to write is not there at all, and the next one works."""
    writer = JournalWriter(await make_board(store))
    request = writer.updates(b"x" * 300_000)
    with file_size_limit(Path(f"{path}-wal").stat().st_size + 50_000):
        with pytest.raises(StoreUnavailable, match=r"the disk (is full|did not read or write)"):
            await store.append([request])
        assert await store.entries("job", after=0, limit=10) == []
    assert await store.append([request]) == [Appended(seq=1)]
    verify_chain(GENESIS_HASH, 0, await store.entries("job", after=0, limit=10))


async def test_a_file_that_is_gone_acknowledges_nothing(tmp_path: Path) -> None:
    """Guarantee 1: when the folder was deleted under the store, an append is refused instead of written to nowhere."""
    folder = tmp_path / "gone"
    folder.mkdir()
    store = await SqliteStore.open(folder / "boards.db")
    writer = JournalWriter(await make_board(store))
    shutil.rmtree(folder)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="the file was moved, deleted or replaced while it was open"):
            await store.append([writer.updates(b"x")])
    await store.close()


# Damaged rows


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE entries SET hash = ? WHERE place & 0xFFFFFFFFF = 2", b"short"),
        ("UPDATE entries SET paths = ? WHERE place & 0xFFFFFFFFF = 2", '["draft"'),
        ("UPDATE entries SET paths = ? WHERE place & 0xFFFFFFFFF = 2", '{"draft":1}'),
        ("UPDATE entries SET kind = ? WHERE place & 0xFFFFFFFFF = 2", 77),
        ("UPDATE entries SET kind = ? WHERE place & 0xFFFFFFFFF = 2", -1),
        ("UPDATE entries SET author = CAST(? AS TEXT) WHERE place & 0xFFFFFFFFF = 2", b"\xff\xfe"),
    ],
)
async def test_a_damaged_entry_is_named(store: SqliteStore, path: Path, statement: str, value: object) -> None:
    """D8: an entry that cannot be read back raises `BoardCorrupt` with the board and the seq."""
    await store.append([JournalWriter(await make_board(store)).updates(b"a", b"b", b"c")])
    damage(path, statement, value)
    with pytest.raises(BoardCorrupt, match="board job: the record of journal entry 2 cannot be read") as caught:
        await store.entries("job", after=0, limit=10)
    assert (caught.value.board_id, caught.value.seq) == ("job", 2)


async def test_what_a_killed_deletion_left_goes_when_the_file_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the background, a part at a time, also over several openings; a board of the same name is left alone."""
    monkeypatch.setattr(sqlite, "_PURGE_ROWS", 10)
    monkeypatch.setattr(sqlite, "_PURGE_PAUSE_SECONDS", 0.0)
    store = await SqliteStore.open(path)
    await store.append([JournalWriter(await make_board(store)).updates(*[b"x"] * 50)])
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(sqlite, "_purge", lambda _connection: False)
        assert await store.delete(tombstone("job"))
    await store.create("job", epoch="epoch-2", created_ms=2, anew=True)
    await store.close()
    for _ in range(2):
        await (await SqliteStore.open(path)).close()
    store = await SqliteStore.open(path)

    async def is_gone() -> bool:
        ((left,),) = await store._file.read("SELECT count(*) FROM boards", {})
        return bool(left == 1)

    await eventually(is_gone, "one board")
    assert await store._file.read("SELECT * FROM entries", {}) == []
    heads = await store.boards()
    assert [(each.board_id, each.epoch) for each in heads] == [("job", "epoch-2")]
    await store.close()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "\udcff"])
async def test_a_damaged_checkpoint_is_named(store: SqliteStore, path: Path, text: str) -> None:
    """D8: a checkpoint that cannot be read back raises `BoardCorrupt` with the board and its entry."""
    await store.append([JournalWriter(await make_board(store)).commit("plan")])
    damage(path, "UPDATE entries SET checkpoint = CAST(? AS TEXT)", text.encode(errors="surrogateescape"))
    with pytest.raises(BoardCorrupt, match="the record of journal entry 1 cannot be read"):
        await store.checkpoints("job")


async def test_a_checkpoint_without_its_entry_is_named(store: SqliteStore, path: Path) -> None:
    """D8: a checkpoint whose journal entry is missing raises `BoardCorrupt`."""
    await store.append([JournalWriter(await make_board(store)).commit("plan")])
    damage(path, "DELETE FROM entries")
    with pytest.raises(BoardCorrupt, match="the record of journal entry 1 cannot be read"):
        await store.checkpoint("job", 1)


@pytest.mark.parametrize(
    ("statement", "value", "method"),
    [
        ("UPDATE boards SET hash = ?", b"", "head"),
        ("UPDATE boards SET epoch = CAST(? AS TEXT)", b"\xff", "head"),
        ("UPDATE boards SET hash = ?", b"", "boards"),
        ("UPDATE boards SET seq = ?", -1, "append"),
        ("UPDATE schemas SET document = CAST(? AS TEXT)", b"\xff", "schemas"),
        ("UPDATE keys SET fingerprint = CAST(? AS TEXT)", b"\xff", "keys"),
        ("UPDATE snapshots SET sha256 = ?", b"", "snapshots"),
        ("UPDATE snapshots SET meta = CAST(? AS TEXT)", b"\xff", "snapshots"),
    ],
)
async def test_any_damaged_row_is_reported(
    store: SqliteStore, path: Path, statement: str, value: object, method: str
) -> None:
    """D8: whatever row cannot be read back, the error is `BoardCorrupt` and names the board."""
    writer = JournalWriter(await make_board(store))
    await store.append([writer.commit("plan", key=key("k"))])
    await store.add_schema("job", schema(1))
    await store.save_snapshot(snapshot("job", 1))
    damage(path, statement, value)
    calls = {
        "head": lambda: store.head("job"),
        "boards": store.boards,
        "append": lambda: store.append([writer.updates(b"x")]),
        "schemas": lambda: store.schemas("job"),
        "keys": lambda: store.keys("job", ["k"]),
        "snapshots": lambda: store.snapshots("job"),
    }
    with pytest.raises(BoardCorrupt, match="board job"):
        await calls[method]()


async def test_garbage_in_the_file_is_reported(path: Path) -> None:
    """D8: pages of a board that turn to garbage raise `BoardCorrupt`, with SQLite's own words."""
    store = await SqliteStore.open(path)
    await store.append([JournalWriter(await make_board(store)).updates(*[b"x" * 1000] * 100)])
    await store.close()
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    store = await SqliteStore.open(path)
    with pytest.raises(BoardCorrupt, match=r"board job: .*it is damaged"):
        await store.entries("job", after=0, limit=1000)
    await store.close()


# Size


async def test_an_entry_costs_less_than_a_hundred_bytes(path: Path) -> None:
    """Beyond its payload an entry takes at most a hundred bytes of the file."""
    await (await SqliteStore.open(path)).close()
    empty = path.stat().st_size
    store = await SqliteStore.open(path)
    writer = JournalWriter(await make_board(store), author="planner")
    await store.close()
    empty, store = path.stat().st_size, await SqliteStore.open(path)
    await store.append([writer.updates(*[b"x" * size for size in range(20, 420)] * 10)])
    entries = await store.entries("job", after=0, limit=5000)
    await store.close()
    carried = sum(len(entry.payload) + sum(map(len, entry.paths)) for entry in entries)
    assert (path.stat().st_size - empty - carried) / len(entries) <= 100
