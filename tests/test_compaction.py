"""Retention and compaction: what stays is as it was, what goes is said, and nothing on the way can lose anything."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import io
import json
import random
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pycrdt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from crdt_board import (
    BadRequest,
    Board,
    BoardHost,
    BoardModel,
    Counter,
    IdempotencyMismatch,
    NotFound,
    Strict,
    Text,
    VersionConflict,
    migrates,
    open_board,
)
from crdt_board.checkpoints import Checkpoint, CommitRequest, make_checkpoint
from crdt_board.engine import Engine
from crdt_board.errors import BoardCorrupt, Conflict, LimitExceeded, StoreUnavailable
from crdt_board.exports import export_board
from crdt_board.group_commit import GroupCommit
from crdt_board.history import BoardHistory, CompactionReport, Retention, Stretch
from crdt_board.history.blame import Origin, Origins
from crdt_board.history.pins import pointers_in
from crdt_board.history.retention import plan_retention
from crdt_board.imports import import_board
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.publishing import PublishedEntry
from crdt_board.snapshots import superfluous
from crdt_board.store.contract import BoardHead, Store
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.testing.faults import FaultyStore
from crdt_board_client import connect
from support.relay import Cut, Message, Way, relay_to
from support.serving import serving
from support.stock import stock_peer
from support.waiting import DEADLINE_SECONDS, eventually

BOARD = "job-884"


class Finding(BoardModel):
    title: str = ""
    notes: Text


class Migration(BoardModel):
    target: str = ""
    budget: int = 0
    status: Annotated[str, Strict()] = "OPEN"
    plan: list[str] = []
    labels: set[str] = set()
    findings: dict[str, Finding] = {}
    draft: Text
    spent: Counter


@contextlib.asynccontextmanager
async def hosting(store: Store) -> AsyncIterator[BoardHost]:
    async with BoardHost(store) as host:
        yield host


async def edit(board: Board[Migration], seeded: random.Random) -> None:
    """One edit of some kind."""
    state, word = board.state, seeded.choice(("cost", "Größe", "😀", "risk"))
    match seeded.randrange(8):
        case 0:
            state.target = word
        case 1:
            state.draft.insert(seeded.randint(0, len(state.draft)), f"{word} ")
        case 2 if len(state.draft) > 3:
            start = seeded.randint(0, len(state.draft) - 3)
            state.draft.delete(start, start + 3)
        case 3:
            state.plan.append(word)
        case 4 if state.plan:
            del state.plan[seeded.randrange(len(state.plan))]
        case 5:
            state.findings[word].notes.append(f"{word}!")
        case 6 if "risk" in state.findings:
            del state.findings["risk"]
        case _:
            state.spent += 1


async def write(host: BoardHost, seed: int, versions: int, *, board_id: str = BOARD) -> list[Checkpoint]:
    """A board of that many versions, of two agents, some versions with tags and some with keys."""
    seeded = random.Random(seed)
    made: list[Checkpoint] = []
    async with (
        open_board(host, board_id, Migration, agent="ann") as ann,
        open_board(host, board_id, Migration, agent="bob") as bob,
    ):
        for number in range(versions):
            for _ in range(seeded.randint(1, 4)):
                who = seeded.choice((ann, bob))
                await edit(who, seeded)
                await who.flush(DEADLINE_SECONDS)
            made.append(
                await ann.commit(
                    f"step {number}",
                    patch={"budget": number},
                    tags=["release"] if seeded.random() < 0.2 else [],
                    idempotency_key=f"key {seed} {number}" if seeded.random() < 0.3 else None,
                )
            )
        await edit(bob, seeded)
        await bob.flush(DEADLINE_SECONDS)
    return made


async def history_of(store: Store, board_id: str = BOARD) -> BoardHistory:
    return await BoardHistory.open(store, board_id)


def undated(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Without the version that a stretch went into, which may be gone."""
    return [each.model_copy(update={"version": None, "step": None}) for each in stretches]


async def told(store: Store, versions: Sequence[int]) -> dict[str, Any]:
    """What a board's history tells about these versions and the present."""
    history = await history_of(store)
    found: dict[str, Any] = {
        "now": (await history.state(None)).state,
        "blame": undated(await history.blame("draft", None)),
    }
    for before, version in zip((0, *versions), versions, strict=False):
        found[f"at {version}"] = await history.state_at(version)
        found[f"diff {before} {version}"] = await history.diff(before, version)
        found[f"blame {version}"] = undated(await history.blame("draft", version))
    return found


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), keep=st.integers(1, 6))
async def test_states_in_a_row_are_those_of_each_version(seed: int, keep: int) -> None:
    """Following a board from version to version gives what loading each one gives, without those compacted away."""
    store = MemoryStore()
    async with hosting(store) as host:
        await write(host, seed, 8)
        history = await history_of(store)
        report = await history.compact(Retention(keep_versions=keep))
        await write(host, seed + 1, 4)
        async with open_board(host, BOARD, agent="plain") as plain:
            newest = (await plain.commit("last")).version
        kept = [version for version in kept_versions(report) if version >= 2]
        wanted = [*kept, *range(report_end(report) + 1, newest + 1)]
        found = [each async for each in history.states(2, newest + 5)]
        assert [checkpoint.version for checkpoint, _ in found] == wanted
        assert found == [await history.state_at(version) for version in wanted]


def report_end(report: CompactionReport) -> int:
    """The newest version that a compaction has seen."""
    return max(kept_versions(report))


def kept_versions(report: CompactionReport) -> list[int]:
    return [version for each in report.kept for version in range(each.first, each.last + 1)]


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policies=st.lists(
        st.builds(Retention, keep_versions=st.integers(1, 6), keep_tagged=st.booleans()), min_size=1, max_size=3
    ),
)
async def test_what_stays_is_as_it_was(seed: int, policies: list[Retention]) -> None:
    """load(compact(x)) == load(x): the present, and states, differences and authors of the versions that were kept."""
    store = MemoryStore()
    async with hosting(store) as host:
        for number, policy in enumerate(policies):
            await write(host, seed + number, 6)
            history = await history_of(store)
            planned = await history.compact(policy, dry_run=True)
            before = await told(store, kept_versions(planned))
            report = await history.compact(policy)
            assert report.model_copy(update={"base_bytes": 0, "dry_run": True}) == planned
            assert await told(store, kept_versions(report)) == before
            for gone in report.dropped:
                for version in range(gone.first, gone.last + 1):
                    with pytest.raises(NotFound, match=f"version {version} of board {BOARD} was compacted away"):
                        await history.state_at(version)
            verification = await history.verify()
            assert verification.ok, str(verification)
            assert verification.good_version == (await store.checkpoints(BOARD))[0].version
            assert (await history.compact(policy)).entries == 0


async def test_a_dry_run_changes_nothing() -> None:
    """What would go is said, with everything still there."""
    store = FaultyStore(MemoryStore())
    async with hosting(store) as host:
        await write(host, 1, 8)
        writes = ("append", "save_snapshot", "keep_checkpoints", "move_base", "drop_squashed", "give_back")
        before = {name: store.calls[name] for name in writes}
        report = await (await history_of(store)).compact(Retention(keep_versions=3, keep_tagged=False), dry_run=True)
        assert {name: store.calls[name] for name in writes} == before
        assert (report.dropped_versions, report.dry_run) == (5, True)
        assert "5 versions" in str(report)
        assert "would go: versions 1 to 5" in str(report)
        assert "stays: 6 to 8, one of the newest 3" in str(report)


async def test_the_board_goes_on_after_a_compaction() -> None:
    """Open replicas, new ones, and a process that opens the board later write on as ever."""
    store = MemoryStore()
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        await write(host, 2, 6)
        await (await history_of(store)).compact(Retention(keep_versions=1, keep_tagged=False))
        made = await ann.commit("after", patch={"target": "pg"}, expected_version=6)
        assert made.version == 7
        async with open_board(host, BOARD, Migration, agent="eva") as eva:
            assert eva.snapshot() == ann.snapshot()
        assert [each.version for each in await ann.checkpoints()] == [7, 6, *_keyed(await store.checkpoints(BOARD))]
        async with hosting(store.peer()) as other, open_board(other, BOARD, Migration, agent="bob") as bob:
            assert bob.snapshot() == ann.snapshot()
            assert (await bob.verify()).ok


def _keyed(checkpoints: Sequence[Checkpoint]) -> list[int]:
    return [each.version for each in checkpoints if each.version < 6]


async def test_a_repeated_request_gets_its_first_result() -> None:
    """One key, one effect: also when the version that it led to was compacted away."""
    store = MemoryStore()
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        first = await ann.commit("pay", patch={"budget": 1}, idempotency_key="pay", output={"receipt": 7})
        for number in range(5):
            await ann.commit("step", patch={"budget": 10 + number})
        report = await (await history_of(store)).compact(Retention(keep_versions=1))
        assert (report.records, report.dropped_versions) == (1, 5)
        again = await ann.commit("pay", patch={"budget": 1}, idempotency_key="pay", output={"receipt": 7})
        assert again == first
        with pytest.raises(IdempotencyMismatch):
            await ann.commit("pay", patch={"budget": 2}, idempotency_key="pay")
        with pytest.raises(NotFound, match="was compacted away"):
            await ann.at(first)
        assert ann.version == 6


async def test_a_commit_on_a_version_that_went_is_no_less_strict() -> None:
    """One expected version, one winner: with ``reads`` too it conflicts, though what changed since is not known."""
    store = MemoryStore()
    async with (
        hosting(store) as host,
        open_board(host, BOARD, Migration, agent="ann") as ann,
        open_board(host, BOARD, Migration, agent="bob") as bob,
    ):
        for number in range(4):
            await ann.commit("step", patch={"budget": number, "target": str(number)})
        await bob.wait_for(lambda _: bob.version == 4, DEADLINE_SECONDS)
        await (await history_of(store)).compact(Retention(keep_versions=1))
        for reads in (None, ["budget"]):
            with pytest.raises(VersionConflict):
                await bob.commit("late", patch={"target": "x"}, expected_version=2, reads=reads)


async def test_versions_that_agents_who_work_together_need_stay() -> None:
    """Those to which a pending approval is bound, until it is decided, and to which a task points."""
    store = MemoryStore()
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        made = [await ann.commit("one")]
        await ann.tasks.put({"look at": made[0].pointer}, key="look")
        await ann.commit("two")
        await ann.ask("Ship it?", about=["target"], key="ship")
        await ann.commit("three")
        await ann.commit("four")
        history = await history_of(store)

        async def kept() -> dict[int, str]:
            report = await history.compact(Retention(keep_versions=1))
            return {each.first: each.why for each in report.kept}

        looked_at = {1: "a pointer to it stands on the board", 4: "the newest"}
        assert await kept() == {2: "approval ship is pending, and bound to it", **looked_at}
        assert (await ann.at(2)).target == ""
        await ann.decide("ship", "approve")
        assert await kept() == looked_at


async def test_versions_that_something_needs_stay() -> None:
    """Tagged ones, and those to which a pointer on the board or in a hand-over of a kept version leads."""
    store = MemoryStore()
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        made = [await ann.commit(f"step {n}", patch={"budget": n}, tags=["v1"] if n == 2 else []) for n in range(7)]
        ann.state.target = f"see {made[0].pointer}"
        made.append(await ann.commit("tagged", tags=["v2"], handoff={"look at": made[4].pointer}))
        made += [await ann.commit(f"more {n}", patch={"budget": n}) for n in range(3)]
        history = await history_of(store)
        report = await history.compact(Retention(keep_versions=2))
        assert {each.first: each.why for each in report.kept} == {
            1: "a pointer to it stands on the board",
            3: "tagged v1",
            5: "version 8 hands over a pointer to it",
            8: "tagged v2",
            10: "one of the newest 2",
        }
        for version, budget in ((1, 0), (3, 2), (5, 4), (8, 6)):
            assert (await ann.at(made[version - 1].pointer)).budget == budget
        assert len(await store.snapshots(BOARD)) == 4
        report = await history.compact(Retention(keep_versions=2, keep_tagged=False))
        assert [each.first for each in report.kept] == [1, 10]
        assert [each.version for each in await store.checkpoints(BOARD)] == [11, 10, 1]
        assert len(await store.snapshots(BOARD)) == 1
        assert (await history.verify()).ok


async def test_a_fork_can_be_merged_after_both_were_compacted() -> None:
    """Where a fork began, and the last merges, stay on both boards; a fork of what went is refused."""
    store = MemoryStore()
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        for number in range(4):
            await ann.commit(f"step {number}", patch={"budget": number})
        async with host.board(BOARD) as engine:
            await engine.branching.fork(2, "fork", agent="ann", epoch="f")
        async with open_board(host, "fork", Migration, agent="bob") as bob:
            for number in range(4):
                await bob.commit(f"fork {number}", patch={"labels": {str(number)}})
            async with host.board("fork") as engine:
                await engine.branching.merge(BOARD, agent="bob")
            for _ in range(3):
                bob.state.draft.append("f")
                await bob.commit("more")
            for _ in range(3):
                ann.state.draft.append("a")
                await ann.commit("more")
            reports = {}
            for name in (BOARD, "fork"):
                history = await history_of(store, name)
                reports[name] = await history.compact(Retention(keep_versions=1))
                assert (await history.verify()).ok
            assert {each.first: each.why for each in reports[BOARD].kept} == {
                2: "board fork was forked from it",
                4: "board fork has merged it",
                7: "the newest",
            }
            assert {each.first: each.why for each in reports["fork"].kept} == {
                6: f"it has merged board {BOARD}",
                9: "the newest",
            }
            async with host.board(BOARD) as engine:
                merged = await engine.branching.merge("fork", agent="ann")
                with pytest.raises(NotFound, match="was compacted away"):
                    await engine.branching.fork(1, "other", agent="ann", epoch="g")
            await ann.wait_for(lambda _: ann.version >= merged.version, DEADLINE_SECONDS)
            assert sorted(str(ann.state.draft)) == list("aaafff")
            assert ann.state.labels == {"3"}


class Count(BoardModel):
    count: int = 0
    draft: Text


class Total(BoardModel):
    total: int = 0
    draft: list[str] = []

    @migrates(from_version=1)
    @classmethod
    def from_count(cls, old: dict[str, Any]) -> dict[str, Any]:
        return {"total": old.get("count", 0), "draft": str(old.get("draft", "")).split()}


async def test_versions_from_before_a_migration_stay_as_they_were() -> None:
    """V11: each version that stays is read under its own schema, wherever the base is."""
    store = MemoryStore()
    async with hosting(store) as host:
        async with open_board(host, BOARD, Count, agent="ann") as ann:
            for number in range(1, 5):
                ann.state.draft.append(f"w{number} ")
                await ann.commit(f"step {number}", patch={"count": number}, tags=["t"] if number == 2 else [])
        async with open_board(host, BOARD, Total, agent="bob") as bob:
            made = await bob.commit("after", patch={"total": 10})
            history = await history_of(store)
            expected = {version: await history.state_at(version) for version in (2, 4, made.version)}
            assert expected[2][1] == {"count": 2, "draft": "w1 w2 "}
            for keep, versions in ((2, (2, 4, made.version)), (1, (2, made.version))):
                await (await history_of(store)).compact(Retention(keep_versions=keep))
                history = await history_of(store)
                assert {version: await history.state_at(version) for version in versions} == {
                    version: expected[version] for version in versions
                }
                verification = await history.verify()
                assert verification.ok, str(verification)
            assert bob.state.draft == ["w1", "w2", "w3", "w4"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_export_of_a_compacted_board_is_what_is_left_of_it_elsewhere(kind: str, tmp_path: Path) -> None:
    """Every version that was kept, blame, keys and edits since the base are the same elsewhere, and go on there."""
    store = MemoryStore()
    async with hosting(store.peer()) as host, open_board(host, BOARD, Migration, agent="ann") as board:
        await board.commit("keyed", idempotency_key="k")
        await write(host, 4, 6)
        await board.commit("sent", tags=["sent"])
        await write(host, 5, 6)
        await (await history_of(store)).compact(Retention(keep_versions=3))
        board.state.draft.append("after the base")
        await board.commit("after")
        file = io.BytesIO()
        head = await export_board(store, BOARD, file, artifacts=None)
        assert head.base_seq > 0
        other: Store = MemoryStore() if kind == "memory" else await SqliteStore.open(tmp_path / "other.db")
        file.seek(0)
        assert (await import_board(other, file)).head == head
        there, here = await BoardHistory.open(other, BOARD), await history_of(store)
        assert (await there.verify()).ok
        assert await other.checkpoints(BOARD) == await store.checkpoints(BOARD)
        readable = 0
        for made in await store.checkpoints(BOARD):
            with contextlib.suppress(NotFound):  # of some only the record is left, for its key
                expected = await here.state_at(made.version)
                assert await there.state_at(made.version) == expected
                readable += 1
        assert readable > 4
        assert await there.blame("draft", None) == await here.blame("draft", None)
        async with hosting(other) as second, open_board(second, BOARD, Migration, agent="bob") as bob:
            assert bob.snapshot() == board.snapshot()
            assert (await bob.commit("keyed", idempotency_key="k")).version == 1
            bob.state.draft.append("!")
            assert (await bob.commit("on")).version == board.version + 1
            assert (await bob.verify()).ok
            await (await BoardHistory.open(other, BOARD)).compact(Retention(keep_versions=1))
            assert (await bob.verify()).ok


async def test_an_export_of_a_board_that_was_squashed_as_a_whole_holds_it(tmp_path: Path) -> None:
    """A base without an entry after it is a board, too."""
    store, other = MemoryStore(), await SqliteStore.open(tmp_path / "other.db")
    async with hosting(store.peer()) as host:
        await write(host, 4, 3)
        async with open_board(host, BOARD, Migration, agent="ann") as board:
            await board.commit("last")
        await (await history_of(store)).compact(Retention(keep_versions=1))
    head = await store.head(BOARD)
    assert head is not None
    assert head.base_seq == head.seq
    file = io.BytesIO()
    await export_board(store, BOARD, file, artifacts=None)
    file.seek(0)
    assert (await import_board(other, file)).head == head
    assert (await (await BoardHistory.open(other, BOARD)).verify()).ok
    await other.close()


async def test_an_export_that_a_compaction_overtakes_is_that_of_the_compacted_board() -> None:
    """What is squashed while a board is being read is no damage: the export begins anew, with nothing twice."""
    inner = MemoryStore()
    store = FaultyStore(inner)
    async with hosting(inner.peer()) as host:
        await write(host, 4, 4)
    gate = store.hold("entries", call=1)
    file = io.BytesIO()
    exporting = asyncio.create_task(export_board(store, BOARD, file, artifacts=None))
    async with asyncio.timeout(DEADLINE_SECONDS):
        await gate.reached.wait()
        await (await history_of(inner)).compact(Retention(keep_versions=1))
        gate.release()
        head = await exporting
    assert head.base_seq > 0
    file.seek(0)
    assert (await import_board(MemoryStore(), file)).head == head


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda line: {**line, "meta": line["meta"] + " "} if "base" in line else line, BoardCorrupt),
        (lambda line: {**line, "version": 99} if "state" in line else line, BoardCorrupt),
        (lambda line: {"artifact": "sha256:00"} if "kept" in line else line, BadRequest),
        (lambda line: {**line, "kept": line["kept"] + 1} if "kept" in line else line, BadRequest),
        (lambda line: {"origins": "", **line, "data": bomb()} if "base" in line else line, LimitExceeded),
    ],
    ids=["base", "state", "unknown kind", "checkpoint", "bomb"],
)
async def test_an_altered_export_of_a_compacted_board_is_refused(
    change: Callable[[dict[str, Any]], dict[str, Any]], error: type[Exception]
) -> None:
    """However its own hash was made right, nothing is made of it."""
    store = MemoryStore()
    async with hosting(store.peer()) as host, open_board(host, BOARD, Migration, agent="ann") as board:
        await board.commit("sent", tags=["sent"])
        await write(host, 4, 4)
    await (await history_of(store)).compact(Retention(keep_versions=2))
    file = io.BytesIO()
    await export_board(store, BOARD, file, artifacts=None)
    lines = [json.loads(line) for line in gzip.decompress(file.getvalue()).splitlines()][:-1]
    content = b"".join(json.dumps(change(line)).encode() + b"\n" for line in lines)
    content += json.dumps({"sha256": hashlib.sha256(content).hexdigest()}).encode() + b"\n"
    other = MemoryStore()
    limits = replace(DEFAULT_LIMITS, import_line_bytes_max=1_000_000)
    with pytest.raises(error):
        await import_board(other, io.BytesIO(gzip.compress(content)), limits=limits)
    assert await other.boards() == []


def bomb() -> str:
    """Few bytes that unpack to many."""
    return base64.b64encode(zlib.compress(bytes(5_000_000))).decode()


async def test_a_boards_own_retention_is_applied_while_it_is_written(tmp_path: Path) -> None:
    """After every so many entries the versions that the stored policy does not keep go; by default none does."""
    store = await SqliteStore.open(tmp_path / "boards.db")
    limits = replace(DEFAULT_LIMITS, retention_every_entries=20)
    async with BoardHost(store, limits=limits) as host, open_board(host, BOARD, Migration, agent="ann") as board:
        history = await history_of(store)
        assert await history.retention() == Retention()
        for number in range(30):
            await board.commit(f"step {number}", tags=["sent"] if number == 3 else [])
        assert (await store.head(BOARD)).base_seq == 0  # type: ignore[union-attr]
        await history.set_retention(Retention(keep_versions=5))
        for number in range(30, 60):
            await board.commit(f"step {number}")

        async def squashed() -> bool:
            head = await store.head(BOARD)
            return head is not None and head.base_seq > 0

        await eventually(squashed, "the board is compacted")
        kept = [made.version for made in await store.checkpoints(BOARD)]
        assert kept[-1] == 4, "the tagged one"
        assert kept[:5] == [60, 59, 58, 57, 56]
        assert len(kept) < 40
        assert (await board.verify()).ok
        report = await compacted(history)
        assert [(each.first, each.why) for each in report.kept] == [(4, "tagged sent"), (56, "one of the newest 5")]
        await history.set_retention(Retention())
        assert (await compacted(history)).dropped_versions == 0


async def compacted(history: BoardHistory) -> CompactionReport:
    """By the board's own retention, when nobody else does it at the moment."""

    async def compact() -> CompactionReport | None:
        with contextlib.suppress(Conflict):
            return await history.compact()
        return None

    report: CompactionReport = await eventually(compact, "a compaction that nobody else makes")
    return report


async def test_several_processes_apply_one_retention(tmp_path: Path) -> None:
    """Who comes second while a board is compacted leaves it; nothing is lost, and nothing raises."""
    limits = replace(DEFAULT_LIMITS, retention_every_entries=5)
    file = tmp_path / "boards.db"
    async with contextlib.AsyncExitStack() as stack:
        hosts = [
            await stack.enter_async_context(BoardHost(await SqliteStore.open(file), limits=limits)) for _ in range(3)
        ]
        boards = [
            await stack.enter_async_context(open_board(host, BOARD, Migration, agent=f"agent-{number}"))
            for number, host in enumerate(hosts)
        ]
        await (await history_of(hosts[0].store)).set_retention(Retention(keep_versions=3))
        for number in range(12):
            await asyncio.gather(*(board.commit(f"step {number}") for board in boards))
        await compacted(await history_of(hosts[0].store))
        assert len(await hosts[1].store.checkpoints(BOARD)) == 3
        for board in boards:
            assert (await board.verify()).ok


async def test_a_long_journal_is_looked_at_when_the_board_is_opened() -> None:
    """What was written while nobody applied the policy is squashed by the next who opens the board."""
    store = MemoryStore()
    async with hosting(store.peer()) as host:
        await write(host, 4, 6)
    await (await history_of(store)).set_retention(Retention(keep_versions=1))
    limits = replace(DEFAULT_LIMITS, retention_every_entries=3)
    async with BoardHost(store.peer(), limits=limits) as host, open_board(host, BOARD, Migration, agent="ann"):

        async def squashed() -> bool:
            head = await store.head(BOARD)
            return head is not None and head.base_seq > 0

        await eventually(squashed, "the journal is squashed")


async def test_a_compacted_board_can_be_deleted(tmp_path: Path) -> None:
    """Nothing of it is left, and a board of its name begins anew."""
    file = tmp_path / "boards.db"
    async with hosting(await SqliteStore.open(file)) as host:
        await write(host, 4, 4)
        await (await history_of(host.store)).compact(Retention(keep_versions=1))
        await host.delete(BOARD, agent="ann")
        assert await host.store.base(BOARD) is None
        head = await host.create(BOARD)
        assert (head.seq, head.base_seq) == (0, 0)
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM bases").fetchone() == (0,)
    connection.close()


async def test_a_board_without_versions_becomes_its_state() -> None:
    """Edits that no commit ever followed are squashed too; authors stay known."""
    store = MemoryStore()
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        bob = ann.as_agent("bob")
        for number in range(30):
            (ann if number % 2 else bob).state.draft.append(f"{number} ")
            await ann.flush(DEADLINE_SECONDS)
        history = await history_of(store)
        before = await history.blame("draft", None)
        report = await history.compact(Retention(keep_versions=1))
        assert report.entries == 30
        assert await store.entries(BOARD, after=0, limit=10) == []
        assert await history.blame("draft", None) == before
        assert await history.edits("draft", before=None, limit=10) == []
        assert (await history.verify()).ok
        ann.state.draft.append("more")
        await ann.flush(DEADLINE_SECONDS)
        assert len(await history.edits("draft", before=None, limit=10)) == 1


@pytest.mark.parametrize("versions", [0, 3])
async def test_keeping_everything_removes_nothing(versions: int) -> None:
    """Without a rule all stays, and so does what is newer than the age asked for."""
    store = MemoryStore()
    async with hosting(store) as host:
        await write(host, 3, versions)
        head = await store.head(BOARD)
        for policy in (Retention(), Retention(newer_than=timedelta(days=1)), Retention(keep_tagged=False)):
            report = await (await history_of(store)).compact(policy)
            assert (report.entries, report.dropped) == (0, ())
        assert await store.head(BOARD) == head


# Clients that were away


class _Recorder:
    """A listener that keeps a document as a replica does."""

    def __init__(self) -> None:
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc()
        self.seqs: list[int] = []

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        for shown in entries:
            self.seqs.append(shown.entry.seq)
            for update in shown.updates:
                self.doc.apply_update(update)

    def stopped(self, error: Exception) -> None:
        raise AssertionError(error)

    @property
    def text(self) -> str:
        return str(self.doc.get("draft", type=pycrdt.Text))


@contextlib.asynccontextmanager
async def engine_on(store: Store) -> AsyncIterator[Engine]:
    engine = await Engine.open(store, GroupCommit(store), BOARD, epoch="e")
    try:
        yield engine
    finally:
        await engine.close()


async def submit(engine: Engine, updates: Sequence[bytes], source: object = None) -> Receipt:
    answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
    engine.submit(Submission(updates=updates, author="peer", source=source, written=answer.set_result))
    return await asyncio.wait_for(answer, DEADLINE_SECONDS)


class Typist:
    """A stock Yjs document that types into the draft; what it sends is in ``updates``."""

    def __init__(self) -> None:
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc()
        self.text = self.doc.get("draft", type=pycrdt.Text)

    def type(self, text: str, index: int | None = None) -> bytes:
        before = self.doc.get_state()
        self.text.insert(len(str(self.text).encode()) if index is None else index, text)
        return self.doc.get_update(before)


async def test_a_client_that_was_away_syncs_with_a_small_difference() -> None:
    """Item ids stay: what a stock client holds is not sent again, and what it wrote meanwhile merges in its place."""
    store = MemoryStore()
    typist, away = Typist(), Typist()
    async with engine_on(store) as engine:
        for number in range(300):
            await submit(engine, [typist.type(f"word {number}. ")])
        away.doc.apply_update(await engine.read(lambda document: document.encode()))
        offline = away.type("<here>", index=len("word 0. "))
        await submit(engine, [typist.type("The end.")])
        await (await history_of(store)).compact(Retention(keep_versions=1))
    async with engine_on(store) as engine:
        assert await store.entries(BOARD, after=0, limit=1) == []
        state = away.doc.get_state()
        difference = await engine.read(lambda document: document.encode(state))
        assert len(difference) < 100
        away.doc.apply_update(difference)
        assert (await submit(engine, [offline])).seq == 302
        text = await engine.read(lambda document: str(document.doc.get("draft", type=pycrdt.Text)))
        assert text == str(away.text)
        assert text.startswith("word 0. <here>word 1.")
        assert text.endswith("The end.")


@pytest.mark.parametrize("reopened", [False, True])
async def test_our_client_that_was_offline_goes_on(tmp_path: Path, reopened: bool) -> None:
    """Its edits of meanwhile are kept, it is sent a small difference, and it can commit again; also when the server has
    loaded the board from its base meanwhile."""
    store = await SqliteStore.open(tmp_path / "boards.db")
    async with (
        serving(store) as served,
        relay_to(served.url) as relay,
        connect(relay.url, BOARD, Migration, agent="far") as far,
    ):
        async with connect(served.url, BOARD, Migration, agent="near") as near:
            for number in range(200):
                near.state.draft.append(f"word {number}. ")
            first = await near.commit("write")
            await far.wait_for(lambda _: far.version >= first.version, DEADLINE_SECONDS)

            def cut(_way: Way, _message: Message) -> Message:
                raise Cut

            relay.judge = cut
            far.state.draft.insert(len("word 0. "), "<here>")
            far.state.spent += 3
            near.state.draft.append("The end.")
            near.state.spent += 4
            await near.commit("more")
            report = await (await history_of(store)).compact(Retention(keep_versions=1))
            assert report.dropped_versions == 1
        if reopened:
            await eventually(lambda: not served.host.open_boards(), "the board is closed")
        down = 0

        def count(way: Way, message: Message) -> Message:
            nonlocal down
            down += len(message) if way == "down" and isinstance(message, bytes) else 0
            return message

        relay.judge = count
        made = await far.commit("back", timeout=DEADLINE_SECONDS)
        assert made.version == 3
        assert (await far.at(3)).spent == 7
        assert str(far.state.draft).startswith("word 0. <here>word 1.")
        assert str(far.state.draft).endswith("The end.")
        assert down < 500
        async with stock_peer(served.url, BOARD) as stock:
            assert stock.text("draft") == str(far.state.draft)


async def test_a_gap_is_closed_after_a_compaction() -> None:
    """What was not ready before a compaction is taken after it, with what was missing."""
    store = MemoryStore()
    typist = Typist()
    first, second, third = (typist.type(word) for word in ("one ", "two ", "three "))
    async with engine_on(store) as engine:
        await submit(engine, [first])
        assert (await submit(engine, [third])).first_unready == 0
        await (await history_of(store)).compact(Retention(keep_versions=1))
    async with engine_on(store) as engine:
        assert (await submit(engine, [second, third])).first_unready is None
        text = await engine.read(lambda document: str(document.doc.get("draft", type=pycrdt.Text)))
        assert text == "one two three "
        assert (await (await history_of(store)).verify()).ok


async def test_a_process_that_fell_behind_the_base_catches_up() -> None:
    """Entries that were squashed before a process saw them are made good by the whole board: nothing stops, nothing is
    lost, and what it goes on to write is accepted."""
    store = MemoryStore()
    other = store.peer()
    async with engine_on(store) as engine, engine_on(other) as behind:
        here, typist, mine = _Recorder(), Typist(), Typist()
        behind.add_listener(here)
        await submit(behind, [mine.type("mine ")], source=here)
        for number in range(5):
            await submit(engine, [typist.type(f"{number} ")])
        await engine.commit(CommitRequest(step="s", agent="a", fingerprint="f"))
        await (await history_of(store)).compact(Retention(keep_versions=1))
        assert await store.entries(BOARD, after=0, limit=10) == []
        assert (await submit(behind, [mine.type("more")], source=here)).seq == 8
        assert here.seqs[-2:] == [7, 8]
        assert (behind.version, behind.seq) == (1, 8)
        text = await behind.read(lambda document: str(document.doc.get("draft", type=pycrdt.Text)))
        here.doc.apply_update(mine.doc.get_update())
        assert here.text == text
        assert text in ("mine more0 1 2 3 4 ", "0 1 2 3 4 mine more")


# Failures on the way


async def _outcome(store: Store) -> tuple[Any, list[int]]:
    versions = [each.version for each in await store.checkpoints(BOARD)]
    kept = sorted(versions)[-2:]
    return await told(store, kept), kept


async def test_a_store_that_fails_at_any_step_loses_nothing() -> None:
    """D6, D7: whichever call fails, before or after it took place, the board is the same, and the next one goes on."""
    policy = Retention(keep_versions=2)
    for when in ("before", "after"):
        call = 0
        while True:
            call += 1
            inner = MemoryStore()
            async with hosting(inner.peer()) as host:
                await write(host, 5, 6)
                expected = await _outcome(inner)
                store = FaultyStore(inner)
                history = await history_of(store)
                order = _Nth(store, call, when)
                try:
                    await history.compact(policy)
                    failed = False
                except StoreUnavailable:
                    failed = True
                order.end()
                assert await _outcome(inner) == expected
                assert (await (await history_of(inner)).verify()).ok
                async with open_board(host, BOARD, Migration, agent="eva") as eva:
                    eva.state.spent += 1
                    await eva.flush(DEADLINE_SECONDS)
                await (await history_of(inner)).compact(policy)
                head = await inner.head(BOARD)
                assert head is not None
                assert head.base_seq > 0
                assert await inner.drop_squashed(BOARD, limit=1) == 0
                assert (await (await history_of(inner)).verify()).ok
            if not failed:
                assert call > 10
                break


class _Nth:
    """Lets the n-th call of a store fail, whatever method it is."""

    def __init__(self, store: FaultyStore, number: int, when: str) -> None:
        self._store, self._through = store, store._through
        count = 0

        async def through(method: str, inner: Any) -> Any:
            nonlocal count
            count += 1
            if count == number and when == "before":
                raise StoreUnavailable(f"on order before {method}")
            result = await inner()
            if count == number:
                raise StoreUnavailable(f"on order after {method}")
            return result

        store._through = through  # type: ignore[method-assign]

    def end(self) -> None:
        self._store._through = self._through  # type: ignore[method-assign]


async def test_a_compaction_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """D7: after ``kill -9`` at each call of the store the file opens to the same board; opening removes the rest."""
    file = tmp_path / "boards.db"
    async with hosting(await SqliteStore.open(file)) as host:
        await write(host, 6, 6)
        expected = await _outcome(host.store)
    command = [sys.executable, "-m", "support.compacting", str(file), BOARD]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    copies = [Path(line) for line in done.stdout.split()]
    assert len(copies) > 10
    moved = 0
    for copy in copies:
        async with hosting(await SqliteStore.open(copy)) as host:
            assert await _outcome(host.store) == expected
            async with open_board(host, BOARD, Migration, agent="eva") as eva:
                assert (await eva.verify()).ok
            head = await host.store.head(BOARD)
            assert head is not None
            moved += head.base_seq > 0
            async with asyncio.timeout(DEADLINE_SECONDS):
                while _squashed(copy):  # opening goes on with what was left
                    async with open_board(host, BOARD, Migration, agent="eva"):
                        await asyncio.sleep(0.01)
    assert 0 < moved < len(copies)


def _squashed(file: Path) -> int:
    connection = sqlite3.connect(file)
    (count,) = connection.execute(
        "SELECT count(*) FROM entries AS e JOIN boards AS b ON e.place >> 36 = b.key "
        "WHERE e.place & 0xFFFFFFFFF <= b.base_seq"
    ).fetchone()
    connection.close()
    return int(count)


async def test_a_full_disk_in_the_middle_of_a_compaction(tmp_path: Path) -> None:
    """D6: a compaction that finds no space changes nothing, and works once there is some."""
    store = await SqliteStore.open(tmp_path / "boards.db")
    async with hosting(store) as host:
        async with open_board(host, BOARD, Migration, agent="ann") as ann:
            seeded = random.Random(1)
            for number in range(6):
                ann.state.draft.append("".join(seeded.choices("abcdefghijklmnopqrstuvwxyz ", k=30_000)))
                await ann.commit(f"step {number}", tags=["t"] if number == 2 else [])
        expected = await _outcome(store)
        writer = store._file._writer
        pages = await writer.run(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
        for spare in (0, 8, 14):
            await writer.run(lambda c, spare=spare: c.execute(f"PRAGMA max_page_count = {pages + spare}").fetchone())
            with pytest.raises(StoreUnavailable, match="the disk is full"):
                await (await history_of(store)).compact(Retention(keep_versions=2))
            assert await _outcome(store) == expected
        await writer.run(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
        await (await history_of(store)).compact(Retention(keep_versions=2))
        assert await _outcome(store) == expected
        assert (await (await history_of(store)).verify()).ok


async def test_the_file_shrinks(tmp_path: Path) -> None:
    """D7: space of what was squashed goes back to the file system while the board is open."""
    file = tmp_path / "boards.db"
    store = await SqliteStore.open(file)
    async with hosting(store) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        seeded = random.Random(1)
        for number in range(200):
            ann.state.target = "".join(seeded.choices("abcdefghijklmnopqrstuvwxyz", k=10_000))
            await ann.commit(f"step {number}")
        await store._file._writer.run(lambda c: c.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall())
        before = file.stat().st_size
        await (await history_of(store)).compact(Retention(keep_versions=2))
        assert before > 2_000_000
        assert file.stat().st_size < before / 4
        await ann.commit("after")


async def test_two_compactions_at_once(tmp_path: Path) -> None:
    """Of several at the same time each ends, with its report or with a conflict, and the board is right."""
    store = await SqliteStore.open(tmp_path / "boards.db")
    async with hosting(store) as host:
        await write(host, 8, 8)
        expected = await _outcome(store)
        histories = [await history_of(store) for _ in range(4)]
        found = await asyncio.gather(
            *(history.compact(Retention(keep_versions=2 + n)) for n, history in enumerate(histories)),
            return_exceptions=True,
        )
        assert all(isinstance(each, CompactionReport | Conflict) for each in found), found
        assert any(isinstance(each, CompactionReport) for each in found)
        assert await _outcome(store) == expected
        assert (await histories[0].verify()).ok


async def test_agents_write_on_while_their_board_is_compacted(tmp_path: Path) -> None:
    """What they are told is durable is there, in two processes' stores, again and again."""
    file = tmp_path / "boards.db"
    async with (
        hosting(await SqliteStore.open(file)) as one,
        hosting(await SqliteStore.open(file)) as two,
        open_board(one, BOARD, Migration, agent="ann") as ann,
        open_board(two, BOARD, Migration, agent="bob") as bob,
    ):
        stop = asyncio.Event()

        async def work(board: Board[Migration]) -> int:
            count = 0
            while not stop.is_set():
                board.state.spent += 1
                board.state.draft.append("x")
                await board.flush(DEADLINE_SECONDS)
                count += 1
                if count % 3 == 0:
                    await board.commit("step", patch={"budget": count})
            return count

        working = [asyncio.create_task(work(board)) for board in (ann, bob)]
        try:
            for _ in range(8):
                target = ann.version + 4
                await ann.wait_for(lambda _, target=target: ann.version >= target, DEADLINE_SECONDS)
                with contextlib.suppress(Conflict):
                    await (await history_of(two.store)).compact(Retention(keep_versions=1))
        finally:
            stop.set()
            counts = await asyncio.gather(*working)
        made = await ann.commit("end")
        await bob.wait_for(lambda _: bob.version >= made.version, DEADLINE_SECONDS)
        assert int(ann.state.spent) == int(bob.state.spent) == sum(counts) == len(ann.state.draft)
        assert (await ann.verify()).ok
        assert [each.agent for each in await ann.blame("draft")]


# Damage

_DAMAGE = {
    "document of the base": ("UPDATE bases SET data = zeroblob(length(data))", "base", 5),
    "authors in the base": ("UPDATE bases SET origins = zeroblob(length(origins))", "base", 5),
    "missing base": ("DELETE FROM bases", "base", 5),
    "kept state": ("UPDATE snapshots SET data = zeroblob(length(data)) WHERE pinned", "snapshot", 6),
    "kept record": (
        "UPDATE checkpoints SET content = replace(content, 'step', 'stop') WHERE version = 3",
        "checkpoint",
        6,
    ),
    "entry after the base": ("UPDATE entries SET author = 'eve'", "entry", 5),
    "listed checkpoint": ("DELETE FROM checkpoints WHERE version = 6", "checkpoint", 6),
    "head": ("UPDATE boards SET hash = zeroblob(32)", "head", 6),
}


@pytest.mark.parametrize("what", _DAMAGE)
async def test_damage_around_a_base_is_named(tmp_path: Path, what: str) -> None:
    """D8: whatever is altered is found and named, the newest good version is offered, a bad base never passed over."""
    file = tmp_path / "boards.db"
    async with hosting(await SqliteStore.open(file)) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        for number in range(6):
            await ann.commit(f"step {number}", patch={"budget": number}, tags=["t"] if number == 2 else [])
        await (await history_of(host.store)).compact(Retention(keep_versions=2))
    statement, record, good = _DAMAGE[what]
    with sqlite3.connect(file) as connection:
        assert connection.execute(statement).rowcount > 0
    connection.close()
    store = await SqliteStore.open(file)
    try:
        found = await (await history_of(store)).verify()
        assert not found.ok
        assert record in {problem.record for problem in found.problems}, str(found)
        assert found.good_version == (3 if record == "base" else good), str(found)
        if record == "base" and "authors" not in what:
            with pytest.raises(BoardCorrupt, match="base at entry 5"):
                await (await history_of(store)).state(None)
        if what == "kept state":
            with pytest.raises(BoardCorrupt, match="the state that was kept at entry 3 is unusable"):
                await (await history_of(store)).state(3)
    finally:
        await store.close()


async def test_a_journal_that_does_not_verify_is_not_squashed(tmp_path: Path) -> None:
    """Guarantee 7: what is damaged is reported, and nothing of it is removed."""
    file = tmp_path / "boards.db"
    async with hosting(await SqliteStore.open(file)) as host:
        await write(host, 9, 6)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE entries SET author = 'eve' WHERE place = (SELECT min(place) + 2 FROM entries)")
    connection.close()
    store = await SqliteStore.open(file)
    try:
        count = len(await store.entries(BOARD, after=0, limit=1000))
        with pytest.raises(BoardCorrupt, match="journal entry 3 does not match its hash"):
            await (await history_of(store)).compact(Retention(keep_versions=1))
        assert len(await store.entries(BOARD, after=0, limit=1000)) == count
    finally:
        await store.close()


# What stays, by itself

HEAD = BoardHead(board_id=BOARD, epoch="e", seq=1000, hash="0" * 64, version=0, checkpoint_hash="0" * 64, created_ms=0)


def checkpoint(version: int, *, tags: Sequence[str] = (), time_ms: int = 0) -> Checkpoint:
    return make_checkpoint(
        board_id=BOARD, epoch="e", version=version, seq=10 * version, parent_hash="", checksum="", agent="a", step="s",
        schema_version=1, time_ms=time_ms, tags=tuple(tags),
    )  # fmt: skip


@given(
    tagged=st.lists(st.booleans(), min_size=1, max_size=12),
    ages=st.lists(st.integers(0, 20), min_size=12, max_size=12),
    pinned=st.sets(st.integers(1, 12)),
    policy=st.builds(
        Retention,
        keep_versions=st.none() | st.integers(1, 12),
        newer_than=st.none() | st.integers(1, 20).map(lambda n: timedelta(seconds=n)),
        keep_tagged=st.booleans(),
    ),
)
def test_every_version_that_a_rule_keeps_stays(
    tagged: list[bool], ages: list[int], pinned: set[int], policy: Retention
) -> None:
    """Each version is kept, for a rule that keeps it, or dropped, when none does."""
    now_ms = 100_000
    made = [
        checkpoint(version, tags=["t"] if tag else [], time_ms=now_ms - 1000 * age)
        for version, (tag, age) in enumerate(zip(tagged, ages, strict=False), 1)
    ][::-1]
    pins = dict.fromkeys(pinned, "needed")
    plan = plan_retention(policy, HEAD, made, pins=pins, with_state=(), now_ms=now_ms)
    kept = {each.version: why for each, why in (*plan.pinned, *plan.whole)}
    assert {each.version for each in made} == kept.keys() | {each.version for each in plan.dropped}
    assert not kept.keys() & {each.version for each in plan.dropped}
    for rank, each in enumerate(made):
        age = (now_ms - each.time_ms) / 1000
        is_kept = (
            policy.keeps_all
            or rank < (policy.keep_versions or 1)
            or (policy.newer_than is not None and age < policy.newer_than.total_seconds())
            or (policy.keep_tagged and bool(each.tags))
            or each.version in pinned
        )
        assert (each.version in kept) == is_kept or kept[each.version] == "the newer ones follow it"
    assert all(each.seq < plan.base_seq for each, _ in plan.pinned)
    assert all(each.seq < plan.base_seq for each in plan.dropped)
    if plan.base_seq:
        assert plan.base_seq == plan.whole[0][0].seq
    else:
        assert not plan.dropped
    if policy.newer_than is not None and ages[: len(made)][::-1] == sorted(ages[: len(made)]):
        # Where the clock never went back, no edit is squashed that is newer.
        assert all(
            each.time_ms <= now_ms - 1000 * policy.newer_than.total_seconds()
            for each in made
            if each.seq <= plan.base_seq
        )


@pytest.mark.parametrize("arguments", [{"keep_versions": 0}, {"newer_than": timedelta(0)}, {"keep": 3}])
def test_a_policy_that_means_nothing_is_refused(arguments: dict[str, Any]) -> None:
    """No version at all, or no time at all, cannot be kept."""
    with pytest.raises(ValidationError):
        Retention(**arguments)


def test_pointers_are_found_wherever_they_stand() -> None:
    """In keys, in values and inside longer texts; those to other boards, also to look-alikes, are not meant."""
    hash_ = "0123456789abcdef"
    content = {
        "a": [f"see board:{BOARD}@12#{hash_} and", {f"board:{BOARD}@3#{hash_}": None}],
        "b": f"board:x@1#{hash_}",
    }
    assert sorted(pointers_in(content, BOARD)) == [3, 12]
    assert pointers_in([f"board:{BOARD}-2@4#{hash_}", f"board:{BOARD}@0#{hash_}", f"board:{BOARD}@7#beef"], BOARD) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.sampled_from(["ann", "bob", "Ünal"])), max_size=30))
def test_authors_outlive_their_entries(written: list[tuple[int, int, str]]) -> None:
    """What knows the entry of each clock says the same after it was stored."""
    origins = Origins()
    docs = [pycrdt.Doc(client_id=2**52 + number) for number in range(4)]
    ends = [0] * 4
    for seq, (who, count, author) in enumerate(written, 1):
        before = docs[who].get_state()
        docs[who].get("t", type=pycrdt.Text).insert(0, "x" * count)
        origins.add([docs[who].get_update(before)], Origin(seq, author, 1_700_000_000_000 - 7 * seq))
        ends[who] += count
    copied = Origins.decode(origins.encode())
    for number, end in enumerate(ends):
        for clock in range(end):
            assert copied.of(2**52 + number, clock) == origins.of(2**52 + number, clock)


# Snapshots


@given(
    steps=st.lists(st.integers(1, 50), max_size=80),
    newest=st.integers(1, 3),
    spread=st.integers(0, 8),
    apart=st.integers(0, 60),
)
def test_snapshots_are_thinned_evenly(steps: list[int], newest: int, spread: int, apart: int) -> None:
    """The newest stay, the number is bounded, and no gap is larger than four times an even one."""
    kept: list[int] = []
    seq = 0
    for step in steps:
        seq += step
        kept.append(seq)
        dropped = superfluous(kept, newest=newest, spread=spread, apart=apart)
        assert not set(dropped) & set(kept[-newest:])
        kept = [each for each in kept if each not in dropped]
        assert len(kept) <= newest + spread
    if spread and kept:
        bounds = [0, *kept[:-newest], kept[-newest:][0]]
        gaps = [after - before for before, after in pairwise(bounds)]
        assert max(gaps) <= max(4 * bounds[-1] / (spread + 1), 2 * max(steps), 2 * apart)
        assert all(one + other >= 2 * apart for one, other in pairwise(gaps))


async def test_a_version_far_back_is_near_a_snapshot() -> None:
    """A board of many entries keeps a bounded number of snapshots all over its journal."""
    limits = Limits(snapshot_every_entries=5, snapshots_spread=6, snapshot_time_share=1.0)
    store = MemoryStore()
    async with BoardHost(store, limits=limits) as host, open_board(host, BOARD, Migration, agent="ann") as ann:
        for number in range(200):
            made = await ann.commit("step", patch={"budget": number})
            if number % 5 == 4:  # a snapshot is taken beside the writer, and another one only when that has ended
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while (await store.snapshot_seqs(BOARD) or [0])[-1] < made.seq - 5:
                        await asyncio.sleep(0.001)
        seqs = await store.snapshot_seqs(BOARD)
    assert 6 <= len(seqs) <= limits.snapshots_spread + limits.snapshots_kept
    assert max(after - before for before, after in zip([0, *seqs], seqs, strict=False)) < 100
    assert DEFAULT_LIMITS.snapshots_spread > 0


async def test_a_damaged_snapshot_far_back_costs_time_only() -> None:
    """The one before it is taken instead, down to the beginning."""
    store = MemoryStore()
    async with BoardHost(store, limits=Limits(snapshot_every_entries=5, snapshot_time_share=1.0)) as host:
        async with open_board(host, BOARD, Migration, agent="ann") as ann:
            for number in range(60):
                await ann.commit("step", patch={"budget": number})
        history = await history_of(store)
        expected = await history.state_at(58)
        for record in await store.snapshots(BOARD):
            board = store._database.boards[BOARD]
            board.snapshots[record.seq] = replace(record, data=record.data[:-1])
            assert await history.state_at(58) == expected
