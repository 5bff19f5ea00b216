"""Entries of coordination, told: who did what with leases, tasks, approvals and the like."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from crdt_board import Board, BoardHost, BoardModel, NotDone, open_board
from crdt_board.clock import ManualClock
from crdt_board.coordination.deeds import Deed
from crdt_board.history import BoardHistory, Retention
from crdt_board.history.narration import DEEDS_MAX, Listener, Narrator
from crdt_board.journal import Entry
from crdt_board.loading import LoadedBoard, load_board
from crdt_board.store.contract import Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.team.reactions import Event
from crdt_board_client import connect
from support.server import ServerProcess
from support.serving import serving
from support.waiting import DEADLINE_SECONDS, eventually
from support.web import web_client

BOARD = "job"
HOUR_MS = 3_600_000


class Report(BoardModel):
    title: str = ""
    scores: dict[str, int] = {}


@pytest_asyncio.fixture
async def host() -> AsyncIterator[BoardHost]:
    clock = ManualClock()
    async with BoardHost(MemoryStore(clock=clock), clock=clock) as host:
        yield host


async def entries_of(store: Store, after: int = 0) -> list[Entry]:
    return await store.entries(BOARD, after=after, limit=10_000)


async def told(store: Store, after: int = 0) -> list[str]:
    by_seq = await Narrator(store, BOARD).tell(await entries_of(store, after))
    return [deed.text for seq in sorted(by_seq) for deed in by_seq[seq]]


async def seq_of(store: Store) -> int:
    head = await store.head(BOARD)
    assert head is not None
    return head.seq


async def test_what_agents_do_is_told(host: BoardHost) -> None:
    """Who took and gave back a lease, did a task, decided an approval, ran an effect, a step or a reaction."""
    async with (
        open_board(host, BOARD, Report, agent="ann") as ann,
        open_board(host, BOARD, Report, agent="bob") as bob,
    ):
        ann.state.title = "one"
        await ann.flush()
        async with ann.lease("payments", ttl=3600):
            pass
        await ann.tasks.put({}, key="t1")
        await ann.tasks.put({}, key="t2", after=["t1"], attempts=1)
        async with bob.tasks.claim() as task:
            await task.complete(7)
        with pytest.raises(ValueError, match="no"):
            async with bob.tasks.claim():
                raise ValueError("no \x1b[2J good")
        await ann.tasks.retry("t2")
        await ann.tasks.cancel("t2")
        await ann.tasks.clear("t2")
        approval = await ann.ask("Ship it?", about=["title"], key="ship")
        await bob.decide("ship", "approve")
        await ann.ask("And this?", about=["title"], key="more")
        bob.state.title = "two"
        await bob.flush()
        await approval.decided()
        await ann.effect("mail", "k", lambda: 1)
        with pytest.raises(NotDone):
            await bob.effect("mail", "other", not_done)
    assert await told(host.store) == [
        "ann takes lease payments (fence 1)",
        "ann gives lease payments back",
        "ann puts task t1",
        "ann puts task t2",
        "bob claims task t1 (attempt 1 of 3)",
        "bob completes task t1",
        "task t2 is open now",
        "bob claims task t2 (attempt 1 of 1)",
        "bob fails at task t2, which has failed: ValueError: no \\x1b[2J good",
        "ann opens task t2 again",
        "ann cancels task t2",
        "ann removes task t2",
        "ann asks for approval ship: Ship it?",
        "approval ship decided: approve, by bob",
        "ann asks for approval more: And this?",
        "approval more superseded: bob changed title",
        "ann begins effect mail k",
        "ann finishes effect mail k",
        "bob begins effect mail other",
        "bob says that effect mail other took no place",
    ]


def not_done() -> None:
    raise NotDone("no")


async def test_reactions_and_steps_are_told(host: BoardHost) -> None:
    """With why they failed, and where; what ends in a commit is told by that."""
    async with open_board(host, BOARD, Report, agent="ann") as ann:
        outcomes: list[Exception | None] = [ValueError("no"), None]

        @ann.on("scores/*", attempts=1)
        def check(_event: Event) -> None:
            outcome = outcomes.pop(0)
            if outcome is not None:
                raise outcome

        ann.state.scores["a"] = 1
        await ann.settled(DEADLINE_SECONDS)
        await ann.retry_reaction("check", "scores/a")
        await ann.settled(DEADLINE_SECONDS)
        with pytest.raises(ValueError, match="none"):
            await ann.step("extract").run(failing)
        await ann.step("extract").run(lambda: 1)
    assert await told(host.store) == [
        "ann runs reaction check at scores/a",
        "reaction check at scores/a has failed for good: ValueError: no",
        "ann arms reaction check at scores/a again",
        "ann runs reaction check at scores/a",
        "ann has run reaction check at scores/a",
        "ann begins step extract (run 1)",
        "ann leaves step extract",
        "ann begins step extract (run 2)",
    ]


def failing() -> None:
    raise ValueError("none")


async def test_what_time_ends_is_told(host: BoardHost) -> None:
    """A claim that ran out, and a lease that was broken, are not taken for given back."""
    clock = host.clock
    assert isinstance(clock, ManualClock)
    async with open_board(host, BOARD, Report, agent="ann") as ann:
        lease = ann.lease("payments", ttl=3600)
        await lease.__aenter__()
        await ann.tasks.put({}, key="t")
        after = await seq_of(host.store)
        clock.advance(2 * HOUR_MS)
        async with open_board(host, BOARD, Report, agent="bob") as bob, bob.lease("payments", ttl=3600):
            pass
    assert await told(host.store, after) == [
        "lease payments of ann has run out",
        "bob takes lease payments (fence 2)",
        "bob gives lease payments back",
    ]


async def test_a_narrator_tells_the_same_wherever_it_begins(host: BoardHost) -> None:
    """In one go, entry by entry, from the middle on, back again, and after a compaction of what was before."""
    async with open_board(host, BOARD, Report, agent="ann") as ann:
        for number in range(6):
            await ann.tasks.put({}, key=f"t{number}")
            ann.state.title = str(number)
            await ann.commit(f"step {number}")
            async with ann.tasks.claim() as task:
                await task.complete()
    entries = await entries_of(host.store)
    whole = await Narrator(host.store, BOARD).tell(entries)
    assert sum(map(len, whole.values())) == 18
    narrator = Narrator(host.store, BOARD)

    async def tell(part: Sequence[Entry]) -> None:
        assert await narrator.tell(part) == {seq: whole[seq] for seq in whole if seq in {each.seq for each in part}}

    for entry in entries:
        await tell([entry])
    middle = len(entries) // 2
    for part in (entries[middle:], entries[:3], entries[-2:], entries[3:middle], entries[2:]):
        await tell(part)
        assert await Narrator(host.store, BOARD).tell(part) == await narrator.tell(part)
    await (await BoardHistory.open(host.store, BOARD)).compact(Retention(keep_versions=1))
    left = await entries_of(host.store)
    assert 0 < len(left) < len(entries)
    late = Narrator(host.store, BOARD)
    assert await late.tell(left) == {seq: whole[seq] for seq in whole if seq >= left[0].seq}
    assert set((await late.tell(entries[3:6])).values()) == {()}


async def test_who_reads_from_the_beginning_holds_up_nobody(host: BoardHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads the board once for all its pages, while others are told what is new; then it is told with them."""
    async with open_board(host, BOARD, Report, agent="ann") as ann:
        for number in range(20):
            await ann.tasks.put({}, key=f"t{number}")
    entries = await entries_of(host.store)
    whole = await Narrator(host.store, BOARD).tell(entries)
    loads: list[int | None] = []

    async def load(*given: Any, until: int | None = None) -> LoadedBoard:
        loads.append(until)
        return await load_board(*given, until=until)

    monkeypatch.setattr("crdt_board.history.narration.load_board", load)
    shared = Narrator(host.store, BOARD)
    live, late = Listener(shared), Listener(shared)
    assert await live.hear(entries[15:16]) == {entries[15].seq: whole[entries[15].seq]}
    for begin in (0, 5, 10):
        page = entries[begin : begin + 5]
        async with shared._telling:  # as while others are told
            assert await late.hear(page) == {entry.seq: whole[entry.seq] for entry in page}
    for listener in (live, late):
        assert await listener.hear(entries[16:]) == {entry.seq: whole[entry.seq] for entry in entries[16:]}
    assert loads == [entries[14].seq, 0]


async def test_one_entry_is_told_up_to_a_bound(host: BoardHost) -> None:
    """What removes hundreds of tasks at once tells of the first, and one more, by which it shows."""
    async with open_board(host, BOARD, Report, agent="ann") as ann:
        for number in range(DEEDS_MAX + 10):
            await ann.tasks.put({}, key=f"t{number}")
            await ann.tasks.cancel(f"t{number}")
        after = await seq_of(host.store)
        await ann.tasks.clear()
    assert len(await told(host.store, after)) == DEEDS_MAX + 1


async def test_a_deed_names_its_record(host: BoardHost) -> None:
    async with open_board(host, BOARD, Report, agent="ann") as ann:
        await ann.tasks.put({}, key="t")
    ((deed,),) = (await Narrator(host.store, BOARD).tell(await entries_of(host.store))).values()
    assert deed == Deed(kind="task", name="t", text="ann puts task t")


async def hostile(board: Board[Report]) -> None:
    """A reaction that failed at a place whose name would clear the screen, and a task."""

    @board.on("scores/*", attempts=1)
    def check(_event: Event) -> None:
        raise ValueError("\x1b[2J\nno")

    board.state.scores["\x1b[2J"] = 1
    await board.settled(DEADLINE_SECONDS)
    await board.tasks.put({}, key="[t]")


@pytest.mark.parametrize("place", ["file", "server"])
async def test_watch_says_who_did_what(place: str, tmp_path: Path) -> None:
    """On one line each, and as JSON; what would steer the terminal is escaped."""
    database = tmp_path / "boards.db"
    program = Path(sys.executable).with_name("crdt-board")
    async with serving(await SqliteStore.open(database)) as served:
        server = f"http://127.0.0.1:{served.port}"
        async with open_board(served.host, BOARD, Report, agent="ann") as ann:
            await hostile(ann)
        where = ["--db", str(database)] if place == "file" else ["--url", server]
        for as_json in ([], ["--json"]):
            process = await asyncio.create_subprocess_exec(
                str(program), "watch", BOARD, "--after", "0", *as_json, *where, stdout=asyncio.subprocess.PIPE
            )
            assert process.stdout is not None
            async with asyncio.timeout(DEADLINE_SECONDS):
                lines = [(await process.stdout.readline()).decode() for _ in range(4)]
                process.send_signal(signal.SIGINT)
                assert await process.wait() in (0, 130)
            assert not any("\x1b" in line for line in lines)
            if as_json:
                deeds = json.loads(lines[3])["deeds"]
                assert deeds == [{"kind": "task", "name": "[t]", "text": "ann puts task [t]"}]
                assert json.loads(lines[2])["deeds"][0]["name"] == "check@scores/\x1b[2J"
            else:
                assert lines[0].endswith("Z ann update scores/\\x1b[2J\n")
                assert lines[2].endswith("has failed for good: ValueError: \\x1b[2J\\nno\n")
                assert lines[3].endswith("Z ann puts task [t]\n")


def has_heard_of(found: list[str], key: str) -> bool:
    return any(text.endswith(key) for text in found)


async def test_the_event_stream_tells_all_who_watch(tmp_path: Path) -> None:
    """Those who are there, and one who reads from the beginning meanwhile."""
    async with (
        serving(await SqliteStore.open(tmp_path / "boards.db")) as served,
        web_client(served.url) as client,
        open_board(served.host, BOARD, Report, agent="ann") as ann,
    ):
        await ann.tasks.put({}, key="t0")

        async def read(after: int, found: list[str]) -> None:
            address = f"/api/boards/{BOARD}/events"
            async with client.stream("GET", address, params={"after": after}) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        found += [deed["text"] for deed in json.loads(line[6:])["deeds"]]

        begin = await seq_of(served.host.store)
        founds: list[list[str]] = [[], [], []]
        readers = [
            asyncio.create_task(read(after, found)) for after, found in zip((begin, begin, 0), founds, strict=True)
        ]
        for number in range(1, 4):
            await ann.tasks.put({}, key=f"t{number}")
            await eventually(lambda key=f"t{number}": all(has_heard_of(found, key) for found in founds), "all are told")
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        expected = [f"ann puts task t{number}" for number in range(4)]
        assert founds == [expected[1:], expected[1:], expected]


async def test_a_client_that_leaves_in_the_middle_of_a_stream_is_no_failure(server: ServerProcess) -> None:
    """It has read one event of many: nothing is in the server's log, and the server stops in order."""
    async with connect(server.url, BOARD, Report, agent="ann") as ann:
        for number in range(300):
            ann.state.scores["a"] = number
            await ann.flush()
    async with web_client(server.http) as client:
        for _ in range(5):
            async with client.stream("GET", f"/api/boards/{BOARD}/events", params={"after": 0}) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        break
        assert (await client.get("/healthz")).status_code == 200
    await server.stop()
    assert "failed" not in server.log()
