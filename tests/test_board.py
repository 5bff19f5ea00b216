"""The board as agents use it: one suite, with its writer in this process and at a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
import pytest_asyncio
from pydantic import BaseModel, ConfigDict, Field, JsonValue

import crdt_board.changes
from crdt_board import (
    AgentPresence,
    BadRequest,
    Board,
    BoardClosed,
    BoardError,
    BoardModel,
    Change,
    Checkpoint,
    Counter,
    IdempotencyMismatch,
    InvalidBoardId,
    InvalidValue,
    LimitExceeded,
    ModelError,
    NotFound,
    SchemaMismatch,
    Text,
    Unavailable,
    VersionConflict,
    WriteRejected,
    items_of,
    parse_pointer,
)
from crdt_board.checkpoints import is_intact
from crdt_board.journal import unpack_updates
from support.places import BOARD, Place, PlaceKind, has_version, level, place_of
from support.waiting import DEADLINE_SECONDS


class Finding(BaseModel):
    model_config = ConfigDict(frozen=True)

    title: str
    severity: Annotated[int, Field(ge=0, le=10)] = 0


class Migration(BoardModel):
    target_service: str = ""
    status: Literal["PENDING", "ANALYSED", "DONE"] = "PENDING"
    budget: int = 0
    dependencies: set[str] = set()
    findings: dict[str, Finding] = {}
    plan: list[str] = []
    notes: dict[str, JsonValue] = {}
    draft: Text
    tokens_spent: Counter


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def board(place: Place) -> AsyncIterator[Board[Migration]]:
    async with place.open(Migration) as board:
        yield board


@pytest_asyncio.fixture
async def pair(place: Place) -> AsyncIterator[list[Board[Migration]]]:
    """Two agents, each with a replica of its own."""
    async with place.open_all(Migration, "ann", "bob") as boards:
        yield boards


async def first_of(changes: AsyncIterator[Change], count: int) -> list[Change]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [await anext(changes) for _ in range(count)]


@contextlib.asynccontextmanager
async def watched(board: Board[Migration], path: str = "") -> AsyncIterator[AsyncIterator[asyncio.Task[Change]]]:
    """What ``board.changes(path)`` gives, from now on: as tasks, the first of which waits already."""
    changes = board.changes(path)

    async def ask() -> Change:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await anext(changes)

    asked = asyncio.create_task(ask())
    await asyncio.sleep(0)

    async def tasks() -> AsyncIterator[asyncio.Task[Change]]:
        yield asked
        while True:
            yield asyncio.create_task(ask())

    try:
        yield tasks()
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await changes.aclose()


# The whole of it


async def test_the_first_example_works(board: Board[Migration]) -> None:
    """Edits take effect at once, are durable after flush, and a commit gives a pointer to hand over."""
    board.state.dependencies.add("postgres-15")
    board.state.findings["f1"] = Finding(title="implicit cast", severity=3)
    board.state.draft.append("TODO: risks")
    board.state.draft.replace("TODO: risks", "Risks: …")
    board.state.tokens_spent += 812
    await board.flush(DEADLINE_SECONDS)
    assert board.unacknowledged == 0
    made = await board.commit("extract_dependencies", patch={"status": "ANALYSED"}, expected_version=board.version)
    assert (made.version, made.agent, made.step, board.version) == (1, "writer", "extract_dependencies", 1)
    pointer = parse_pointer(made.pointer)
    assert (pointer.board_id, pointer.version) == (BOARD, 1)
    assert made.hash.startswith(pointer.hash)
    assert board.snapshot() == Migration(
        status="ANALYSED",
        dependencies={"postgres-15"},
        findings={"f1": Finding(title="implicit cast", severity=3)},
        draft="Risks: …",
        tokens_spent=812,
    )


async def test_what_was_flushed_or_committed_is_in_a_cold_reload(place: Place) -> None:
    """After a restart the board holds every edit that was flushed, and the patches of commits."""
    async with place.open(Migration) as board:
        board.state.draft.append("naïve 🚢")
        await board.flush(DEADLINE_SECONDS)
        await board.commit("plan", patch={"plan": ["read", "write"]})
        before = board.snapshot()
    await place.restart()
    async with place.open(Migration) as board:
        assert board.snapshot() == before
        assert board.version == 1


async def test_leaving_the_block_makes_everything_durable(place: Place) -> None:
    """An edit without a flush is durable when the block was left without an error."""
    async with place.open(Migration) as board:
        board.state.plan.append("last words")
    await place.restart()
    async with place.open(Migration) as board:
        assert board.state.plan == ["last words"]


# Merging


async def test_whole_documents_that_differ_in_other_fields_both_land(
    place: Place, pair: list[Board[Migration]]
) -> None:
    """M1: two whole-document writes with disjoint changes both land, and only what they changed is written."""
    ann, bob = pair
    ann.state.draft.append("A long text that nobody changes. " * 100)
    ann.state.plan.extend(["one", "two"])
    await level(ann, bob)
    of_ann = ann.snapshot().model_copy(update={"status": "DONE"})
    of_bob = bob.snapshot().model_copy(update={"plan": ["one", "two", "three"]})
    await asyncio.gather(ann.commit("ann", patch=of_ann), bob.commit("bob", patch=of_bob))
    await level(ann, bob)
    assert ann.snapshot() == bob.snapshot()
    assert (bob.state.status, list(ann.state.plan)) == ("DONE", ["one", "two", "three"])
    commits = {entry.author: entry for entry in await place.entries() if entry.kind == "commit" and entry.payload}
    assert {author: entry.paths for author, entry in commits.items()} == {"ann": ("status",), "bob": ("plan",)}
    assert max(len(entry.payload) for entry in commits.values()) < 80


async def test_a_whole_document_without_a_change_writes_no_operation(place: Place, board: Board[Migration]) -> None:
    """M1: fields that are as they were produce no operation at all."""
    board.state.draft.append("text")
    board.state.findings["f1"] = Finding(title="one")
    await board.commit("same", patch=board.snapshot())
    *_, entry = await place.entries()
    assert (entry.kind, entry.paths, entry.payload) == ("commit", (), b"")


async def test_the_same_value_from_two_agents_is_no_conflict(pair: list[Board[Migration]]) -> None:
    """M2: the same value for one field from two agents in one tick succeeds and is there once."""
    ann, bob = pair
    ann.state.budget = bob.state.budget = 7
    ann.state.dependencies.add("pg")
    bob.state.dependencies.add("pg")
    first, second = await asyncio.gather(
        ann.commit("ann", patch={"status": "DONE"}), bob.commit("bob", patch={"status": "DONE"})
    )
    assert {first.version, second.version} == {1, 2}
    await level(ann, bob)
    assert ann.snapshot() == bob.snapshot() == Migration(budget=7, dependencies={"pg"}, status="DONE")


async def test_ten_agents_add_five_entries_each_under_one_dict(place: Place) -> None:
    """M3: ten agents add five entries each at once: fifty entries, no exception."""
    async with place.open_all(Migration, *(f"agent-{number}" for number in range(10))) as boards:
        for number in range(5):
            for board in boards:
                board.state.findings[f"{board.agent}/{number}"] = Finding(title=board.agent)
        await level(*boards)
        expected = {f"agent-{a}/{n}": Finding(title=f"agent-{a}") for a in range(10) for n in range(5)}
        for board in boards:
            assert board.snapshot().findings == expected


async def test_a_hundred_rounds_of_two_agents_lose_nothing(pair: list[Board[Migration]]) -> None:
    """M4: appends to one list, adds to one set and increments of one counter at once, a hundred rounds: all there."""
    for number in range(100):
        for board in pair:
            board.state.plan.append(f"{board.agent} {number}")
            board.state.dependencies.add(f"{board.agent} {number}")
            board.state.dependencies.add(f"both {number}")
            board.state.tokens_spent += 3
        await asyncio.gather(*(board.flush(DEADLINE_SECONDS) for board in pair))
    await level(*pair)
    ann, bob = (board.snapshot() for board in pair)
    assert ann == bob
    for agent in ("ann", "bob"):
        assert [item for item in ann.plan if item.startswith(agent)] == [f"{agent} {n}" for n in range(100)]
    assert len(ann.plan) == 200
    assert ann.dependencies == {f"{who} {n}" for who in ("ann", "bob", "both") for n in range(100)}
    assert ann.tokens_spent == 600


class Level(Enum):
    LOW = 1
    HIGH = "high"


class Odd(BoardModel):
    """Values of types that JSON does not have."""

    when: datetime | None = None
    owner: UUID | None = None
    price: Decimal = Decimal(0)
    level: Level = Level.LOW
    big: int = 0
    ratio: float = 0.0
    whole: float = 0.0
    raw: bytes = b""
    pair: tuple[int, str] = (0, "")
    finding: Finding | None = None
    owners: set[UUID] = set()
    prices: dict[str, Decimal] = {}
    dates: list[datetime] = []


ODD: dict[str, Any] = {
    "when": datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "owner": UUID(int=2**127 + 1),
    "price": Decimal("1.10"),
    "level": Level.HIGH,
    "big": -(2**200) - 1,
    "ratio": 0.1 + 0.2,
    "whole": 3.0,
    "raw": b"\x00\xff",
    "pair": (2**53, "ü"),
    "finding": Finding(title="größer", severity=10),
    "owners": {UUID(int=1), UUID(int=2)},
    "prices": {"a/b": Decimal("0.000"), "~": Decimal("1E+5")},
    "dates": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)],
}


def exactly(value: Any) -> Any:
    """Values that are equal only when types and all digits are, too."""
    match value:
        case dict():
            return {key: exactly(item) for key, item in value.items()}
        case list() | tuple() | set():
            return type(value), sorted(map(repr, map(exactly, value)))
        case datetime():
            return value.isoformat()
    return type(value), repr(value)


@pytest.mark.parametrize("way", ["live", "patch"])
async def test_every_type_of_value_comes_back_as_it_was(place: Place, way: str) -> None:
    """M6: values equal in type and content at another agent, in history and after a restart."""

    def check(found: Odd) -> None:
        values = {name: getattr(found, name) for name in ODD}
        assert values == ODD
        assert exactly(values) == exactly(ODD)

    async with place.open_all(Odd, "ann", "bob") as (ann, bob):
        if way == "live":
            for name, value in ODD.items():
                setattr(ann.state, name, value)
        made = await ann.commit("write", patch=ODD)
        await has_version(bob, made.version)
        check(ann.snapshot())
        check(bob.snapshot())
        assert exactly(bob.state.big) == exactly(ODD["big"])
    await place.restart()
    async with place.open(Odd) as board:
        check(board.snapshot())
        check(await board.at(1))


async def test_what_was_handed_over_is_a_copy(place: Place, board: Board[Migration]) -> None:
    """M7: changing an object after it was written, patched or committed changes nothing on the board or in history."""
    handed: dict[str, Any] = {"items": [1]}
    output: dict[str, Any] = {"found": ["x"]}
    plan = ["one"]
    board.state.notes["live"] = handed
    board.state.plan = plan
    handed["items"].append(2)
    plan.append("two")
    patch = {"notes": {"live": {"items": [1]}, "patched": (patched := {"items": [3]})}}
    committing = asyncio.ensure_future(board.commit("step", patch=patch, output=output, handoff=output))
    await asyncio.sleep(0)
    patched["items"].append(4)
    output["found"].append("y")
    made = await committing
    assert made.output == made.handoff == {"found": ["x"]}
    expected = {"live": {"items": [1]}, "patched": {"items": [3]}}
    assert board.state.notes == (await board.at(1)).notes == expected
    assert board.state.plan == ["one"]


async def test_what_was_read_is_a_copy(board: Board[Migration]) -> None:
    """M7: changing what was read changes nothing on the board or in history."""
    board.state.notes["n"] = {"items": [1]}
    board.state.plan.append("one")
    await board.commit("step", output={"found": ["x"]})
    for taken in (board.snapshot(), await board.at(1)):
        taken.notes["n"]["items"].append(2)  # type: ignore[index,union-attr,call-overload]
        taken.plan.append("two")
    board.state.notes["n"]["items"].append(2)  # type: ignore[index,union-attr,call-overload]
    (listed,) = await board.checkpoints()
    listed.output["found"].append("y")  # type: ignore[index,call-overload,union-attr]
    assert board.snapshot() == await board.at(1) == Migration(notes={"n": {"items": [1]}}, plan=["one"])
    assert (await board.checkpoints())[0].output == {"found": ["x"]}


# Versions and conflicts


async def test_one_expected_version_has_one_winner(pair: list[Board[Migration]]) -> None:
    """V1: of two commits that expect the same version one is made; the other hears who was first and what changed."""
    for board in pair:
        board.state.draft.append(board.agent)
    results = await asyncio.gather(
        *(board.commit("race", patch={"budget": 1}, expected_version=0) for board in pair), return_exceptions=True
    )
    (made,) = [result for result in results if isinstance(result, Checkpoint)]
    (conflict,) = [result for result in results if isinstance(result, VersionConflict)]
    assert (made.version, conflict.current_version, conflict.author) == (1, 1, made.agent)
    assert conflict.changed == ["budget", "draft"]
    assert sorted(await pair[0].checkpoints(), key=lambda one: one.version) == [made]


async def test_without_an_expected_version_all_commits_are_in_one_chain(pair: list[Board[Migration]]) -> None:
    """V1: without a precondition both merge, and every accepted commit is reachable from the head."""
    made = await asyncio.gather(*(board.commit(f"step {n}") for n in range(5) for board in pair))
    listed = await pair[0].checkpoints()
    assert [one.version for one in listed] == list(range(10, 0, -1))
    assert {one.hash for one in listed} == {one.hash for one in made}
    assert all(is_intact(one) for one in listed)
    assert [one.parent_hash for one in listed[:-1]] == [one.hash for one in listed[1:]]


async def test_somebody_elses_edit_does_not_fail_a_commit(pair: list[Board[Migration]]) -> None:
    """V2: while one agent writes a text, another one changes another field; the first one's commit succeeds."""
    ann, bob = pair
    version = ann.version
    for word in ("The ", "quick ", "fox"):
        ann.state.draft.append(word)
        await ann.flush(DEADLINE_SECONDS)
        bob.state.target_service = word
        await bob.flush(DEADLINE_SECONDS)
    assert (await ann.commit("draft", expected_version=version)).version == 1


async def test_somebody_elses_commit_conflicts_only_on_what_was_read(pair: list[Board[Migration]]) -> None:
    """V2: with ``reads``, a commit in between conflicts when it changed one of these fields, and only then."""
    ann, bob = pair
    version = ann.version
    ann.state.draft.append("mine")
    await bob.commit("bob", patch={"budget": 5})
    assert (await ann.commit("ann", expected_version=version, reads=["draft", "plan"])).version == 2
    with pytest.raises(VersionConflict, match="budget") as refused:
        await ann.commit("ann", expected_version=version, reads=["budget"])
    assert refused.value.changed == ["budget"]


async def test_reads_alone_start_at_what_the_replica_holds(place: Place, pair: list[Board[Migration]]) -> None:
    """Without an expected version, ``reads`` conflicts with what this replica had not seen when commit was called."""
    ann, bob = pair
    bob.state.budget = 5
    await level(bob, ann)
    assert (await ann.commit("seen", reads=["budget"])).version == 2
    gate = place.store.hold("append")
    bob.state.budget = 6
    await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
    committing = asyncio.ensure_future(ann.commit("unseen", reads=["budget"]))
    await asyncio.sleep(0)
    gate.release()
    with pytest.raises(VersionConflict, match="budget"):
        await committing


async def test_a_client_does_not_conflict_with_itself(board: Board[Migration]) -> None:
    """V3: writes, and commits with one's own last known version and reads, never conflict with one another."""
    for number in range(5):
        board.state.budget = number
        await board.flush(DEADLINE_SECONDS)
        made = await board.commit("a", expected_version=board.version, reads=["budget"], patch={"budget": number + 1})
        assert made.version == board.version == 2 * number + 1
        assert (await board.commit("b", expected_version=made.version)).version == 2 * number + 2


async def test_fifty_commits_with_one_key_are_one(place: Place, pair: list[Board[Migration]]) -> None:
    """V4: fifty submissions under one key while the first still runs: one execution, fifty equal results."""
    gate = place.store.hold("append")
    commits = [
        asyncio.ensure_future(board.commit("pay", patch={"tokens_spent": 5}, idempotency_key="pay-1", output={"n": 1}))
        for _ in range(25)
        for board in pair
    ]
    await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
    gate.release()
    results = await asyncio.gather(*commits)
    assert [one.version for one in results] == [1] * 50
    assert len({one.hash for one in results}) == 1
    assert len(await pair[0].checkpoints()) == 1
    assert pair[0].state.tokens_spent == 5


async def test_one_key_for_two_requests_is_refused(place: Place) -> None:
    """V4: the same key with another body is refused, naming the version that it made; also after a restart."""
    async with place.open(Migration) as board:
        first = await board.commit("pay", patch={"budget": 5}, idempotency_key="k")
    await place.restart()
    async with place.open(Migration) as board:
        for other in ({"patch": {"budget": 6}}, {"patch": {"budget": 5}, "output": 1}, {}):
            with pytest.raises(IdempotencyMismatch) as refused:
                await board.commit("pay", idempotency_key="k", **other)  # type: ignore[arg-type]
            assert refused.value.version == 1
        assert await board.commit("pay", patch={"budget": 5}, idempotency_key="k") == first
        assert board.version == 1


async def test_a_repeat_with_a_key_does_nothing_though_the_board_went_on(pair: list[Board[Migration]]) -> None:
    """A repeated commit returns the first result also when its patch would now change something, or conflict."""
    ann, bob = pair
    first = await ann.commit("step", patch={"budget": 1}, idempotency_key="k", expected_version=0)
    second = await bob.commit("other", patch={"budget": 2})
    await has_version(ann, second.version)
    assert await ann.commit("step", patch={"budget": 1}, idempotency_key="k", expected_version=0) == first
    await level(ann, bob)
    assert ann.state.budget == bob.state.budget == 2


async def test_a_refused_commit_leaves_no_trace(place: Place, pair: list[Board[Migration]]) -> None:
    """The patch of a commit that conflicts is on no replica and not in the journal."""
    ann, bob = pair
    first = await bob.commit("bob")
    await has_version(ann, first.version)
    seen: list[str] = []
    for board in pair:
        board._session.replica.watchers.append(lambda changes: seen.extend(change.path for change in changes))
    with pytest.raises(VersionConflict):
        await ann.commit("ann", patch={"budget": 9, "plan": ["no"], "draft": "no"}, expected_version=0)
    assert len(await place.entries()) == 1
    await level(ann, bob)
    assert ann.snapshot() == bob.snapshot() == Migration()
    assert seen == []


async def test_a_patch_merges_with_what_others_write_meanwhile(pair: list[Board[Migration]]) -> None:
    """A patch of text, list, set or dict is built on what its agent saw, and keeps what others write meanwhile."""
    ann, bob = pair
    ann.state.draft.append("Hello world")
    ann.state.plan.extend(["one", "two", "three"])
    ann.state.dependencies = {"pg", "redis"}
    ann.state.notes = {"x": 1, "y": 2}
    await level(ann, bob)
    bob.state.draft.insert(0, "🎉 ")
    bob.state.draft.replace("world", "World")
    bob.state.plan.insert(0, "zero")
    del bob.state.plan[-1]
    bob.state.dependencies.add("kafka")
    bob.state.notes["z"] = 3
    patch = {
        "draft": "Hello world!",
        "plan": ["one", "between", "two", "three"],
        "dependencies": {"pg"},
        "notes": {"x": 10, "y": 2},
    }
    await asyncio.gather(bob.flush(DEADLINE_SECONDS), ann.commit("patch", patch=patch))
    await level(ann, bob)
    assert ann.snapshot() == bob.snapshot()
    assert ann.snapshot() == Migration(
        draft="🎉 Hello World!",
        plan=["zero", "one", "between", "two"],
        dependencies={"pg", "kafka"},
        notes={"x": 10, "y": 2, "z": 3},
    )


async def test_a_commit_covers_what_its_agent_wrote_before(board: Board[Migration]) -> None:
    """The checkpoint holds the edits made before the call without a flush, and names the changed fields."""
    board.state.draft.append("before")
    board.state.budget = 3
    made = await board.commit("step", patch={"status": "DONE"})
    board.state.draft.append(" and after")
    assert made.fields == ("budget", "draft", "status")
    assert await board.at(1) == Migration(draft="before", budget=3, status="DONE")


# attempt


async def test_attempt_runs_again_with_a_fresh_snapshot(pair: list[Board[Migration]]) -> None:
    """When others were first, the work runs again on what they left, and its result is committed once."""
    ann, bob = pair
    seen: list[int] = []

    async def add_one(before: Migration) -> dict[str, object]:
        seen.append(before.budget)
        if len(seen) < 3:
            await bob.commit("bob", patch={"budget": 10 * len(seen)})
        return {"budget": before.budget + 1}

    made = await ann.attempt(add_one, step="add")
    assert seen == [0, 10, 20]
    assert (made.version, made.step) == (3, "add")
    assert ann.state.budget == 21


async def test_attempt_is_bounded(pair: list[Board[Migration]]) -> None:
    """After the last attempt its conflict is raised, and the work was not run more often."""
    ann, bob = pair
    runs = 0

    async def always_late(_before: Migration) -> None:
        nonlocal runs
        runs += 1
        await bob.commit(f"bob {runs}")

    with pytest.raises(VersionConflict) as refused:
        await ann.attempt(always_late, step="late", attempts=3)
    assert (runs, refused.value.current_version) == (3, 3)
    with pytest.raises(BadRequest, match="at least 1"):
        await ann.attempt(always_late, step="late", attempts=0)


async def test_attempt_with_reads_minds_these_fields_only(pair: list[Board[Migration]]) -> None:
    """With ``reads``, commits and edits of other fields do not make the work run again; of these fields they do."""
    ann, bob = pair
    seen: list[int] = []

    async def work(before: Migration) -> dict[str, object]:
        seen.append(before.budget)
        await bob.commit("elsewhere", patch={"target_service": str(len(seen))})
        if len(seen) == 1:
            bob.state.budget = 10
            await bob.flush(DEADLINE_SECONDS)
        return {"plan": [str(before.budget)]}

    await ann.attempt(work, step="add", reads=["budget"])
    assert seen == [0, 10]
    assert ann.state.plan == ["10"]


async def test_attempt_reads_again_when_it_holds_the_checkpoint(
    board: Board[Migration], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work does not run again between the arrival of the other's entry and that of its checkpoint."""
    link, replica, loop = board._session.link, board._session.replica, asyncio.get_running_loop()
    versions: list[int] = []
    made = await board.commit("before")

    def arrive(turns: int) -> None:
        if turns:
            loop.call_soon(arrive, turns - 1)
        else:
            replica.reached(version=5)

    async def commit(_request: Any) -> Checkpoint:
        if len(versions) > 1:
            return made
        loop.call_soon(lambda: replica.reached(seq=50))
        loop.call_soon(arrive, 10)
        raise VersionConflict("others were first", current_version=5, author="bob", changed=[], seq=50)

    async def work(_before: Migration) -> None:
        versions.append(board.version)

    monkeypatch.setattr(link, "commit", commit)
    await board.attempt(work, step="x")
    assert versions == [1, 5]


async def test_attempt_raises_what_the_work_raises(board: Board[Migration]) -> None:
    """An error of the work, or a patch that does not fit, is the caller's, at the first run; nothing is committed."""

    async def fails(_before: Migration) -> None:
        raise LookupError("mine")

    async def misfits(_before: Migration) -> dict[str, object]:
        return {"budget": "many"}

    with pytest.raises(LookupError, match="mine"):
        await board.attempt(fails, step="x")
    with pytest.raises(InvalidValue, match="budget"):
        await board.attempt(misfits, step="x")
    assert await board.checkpoints() == []


async def test_attempts_of_many_agents_all_count(place: Place) -> None:
    """V1: five agents that each add one to a plain number ten times by ``attempt`` make it fifty."""
    async with place.open_all(Migration, *(f"agent-{n}" for n in range(5))) as boards:

        async def add_one(before: Migration) -> dict[str, object]:
            return {"budget": before.budget + 1}

        async def work(board: Board[Migration]) -> None:
            for _ in range(10):
                await board.attempt(add_one, step="add", attempts=1000)

        await asyncio.gather(*(work(board) for board in boards))
        await level(*boards)
        assert {board.state.budget for board in boards} == {50}


# History


async def test_checkpoints_are_listed_in_pages(board: Board[Migration]) -> None:
    """Newest first, at most ``limit``, before a version; none before the first."""
    assert await board.checkpoints() == []
    made = [await board.commit(f"step {number}", tags=["t", str(number)]) for number in range(5)]
    assert await board.checkpoints() == made[::-1]
    assert await board.checkpoints(limit=2) == [made[4], made[3]]
    assert await board.checkpoints(before=4, limit=2) == [made[2], made[1]]
    assert await board.checkpoints(before=1) == []
    assert made[3].tags == ("t", "3")


async def test_a_version_reads_as_it_was(board: Board[Migration]) -> None:
    """``at`` gives each version's own state, whatever came later; a version that is not there is NotFound."""
    for number in range(1, 6):
        board.state.draft.append(str(number))
        board.state.plan = [str(number)]
        await board.commit(f"step {number}", patch={"budget": number})
    board.state.draft.apply("something else")
    for number in (1, 3, 5):
        expected = Migration(budget=number, plan=[str(number)], draft="12345"[:number])
        assert await board.at(number) == expected
    with pytest.raises(NotFound, match="version 6"):
        await board.at(6)


async def test_what_the_next_agent_needs_is_kept(place: Place) -> None:
    """Output, confidence, trace, handoff and tags come back as given, for others and after a restart."""
    said: dict[str, Any] = {
        "output": {"files": ["a", None, 1.5]},
        "confidence": 0.75,
        "trace": "trace-1",
        "handoff": ["next", {"x": True}],
        "tags": ("reviewed", "größer"),
    }
    async with place.open(Migration) as board:
        made = await board.commit("step", **said)
    await place.restart()
    async with place.open(Migration, "other") as board:
        assert await board.checkpoints() == [made]
        assert {name: getattr(made, name) for name in said} == said


# Who writes


async def test_agents_of_one_replica_write_under_their_own_names(place: Place, board: Board[Migration]) -> None:
    """``as_agent`` shares the live board; journal and checkpoints name each agent."""
    reviewer = board.as_agent("reviewer")
    board.state.draft.append("text")
    reviewer.state.budget = 1
    board.state.plan.append("x")
    made = await reviewer.commit("review")
    assert (made.agent, reviewer.agent, board.agent) == ("reviewer", "reviewer", "writer")
    assert board.snapshot() == reviewer.snapshot()
    entries = await place.entries()
    written = {(entry.author, path) for entry in entries for path in entry.paths}
    assert written == {("writer", "draft"), ("writer", "plan"), ("reviewer", "budget")}


async def test_agents_of_one_replica_may_take_turns(place: Place, board: Board[Migration]) -> None:
    """Edits of one replica under alternating names keep their order, and each is acknowledged."""
    reviewer = board.as_agent("reviewer")
    for number in range(20):
        board.state.plan.append(f"writer {number}")
        reviewer.state.plan.append(f"reviewer {number}")
    await board.flush(DEADLINE_SECONDS)
    assert {entry.kind for entry in await place.entries()} == {"update"}
    assert board.state.plan == [f"{agent} {number}" for number in range(20) for agent in ("writer", "reviewer")]


async def test_changes_tell_who_changed_what(pair: list[Board[Migration]]) -> None:
    """Own changes come at once, others' when durable, each with its path and agent."""
    ann, bob = pair
    async with watched(ann) as tasks:
        ann.state.findings["f/1"] = Finding(title="x")
        assert await (await anext(tasks)) == Change("findings/f~11", "ann", True)
        bob.state.budget = 1
        other = await (await anext(tasks))
        assert (other.path, other.agent, other.local) == ("budget", "bob", False)
        assert other.seq is not None
        ann.as_agent("reviewer").state.draft.append("x")
        assert await (await anext(tasks)) == Change("draft", "reviewer", True)
        made = await bob.commit("patch", patch={"status": "DONE"})
        assert await (await anext(tasks)) == Change("status", "bob", False, made.seq)


async def test_changes_of_a_path(pair: list[Board[Migration]]) -> None:
    """A path gives what is at it and below it, and nothing beside it."""
    ann, bob = pair
    async with watched(ann, "findings") as of_field, watched(ann, "findings/b") as of_key:
        bob.state.budget = 1
        for key in ("a", "b", "bb"):
            bob.state.findings[key] = Finding(title=key)
        assert [(await (await anext(of_field))).path for _ in range(3)] == ["findings/a", "findings/b", "findings/bb"]
        assert (await (await anext(of_key))).path == "findings/b"
        bob.state.findings["b"] = Finding(title="again")
        assert (await (await anext(of_key))).path == "findings/b"
    with pytest.raises(BadRequest, match="finding"):
        await anext(ann.changes("finding/b"))


async def test_changes_that_nobody_takes_are_bounded(board: Board[Migration], monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that falls too far behind gets one clear error, and the board goes on."""
    monkeypatch.setattr(crdt_board.changes, "QUEUED_MAX", 10)
    async with watched(board) as tasks:
        for number in range(20):
            board.state.budget = number + 1
        first = await anext(tasks)
        with pytest.raises(LimitExceeded, match="10 changes behind"):
            await first
    board.state.budget = 99
    await board.flush(DEADLINE_SECONDS)


async def test_changes_end_when_the_board_is_closed(place: Place) -> None:
    """A loop over changes hears that the board was closed."""
    async with place.open(Migration) as board, watched(board) as tasks:
        await board.close()
        waiting = await anext(tasks)
        with pytest.raises(BoardClosed):
            await waiting


async def test_wait_for_sees_others(pair: list[Board[Migration]]) -> None:
    """``wait_for`` returns a snapshot of the moment when the condition holds."""
    ann, bob = pair
    waiting = asyncio.create_task(ann.wait_for(lambda state: state.status == "ANALYSED", DEADLINE_SECONDS))
    await asyncio.sleep(0)
    bob.state.budget = 1
    await bob.flush(DEADLINE_SECONDS)
    assert not waiting.done()
    bob.state.status = "ANALYSED"
    assert await waiting == Migration(budget=1, status="ANALYSED")


async def test_wait_for_has_a_deadline_and_raises_the_conditions_error(board: Board[Migration]) -> None:
    """Without the condition TimeoutError; an error inside the condition is raised to who waits."""
    with pytest.raises(TimeoutError):
        await board.wait_for(lambda state: state.budget == 1, timeout=0.01)

    def fails(state: Migration) -> bool:
        return 1 // (1 - state.budget) > 5

    waiting = asyncio.create_task(board.wait_for(fails, DEADLINE_SECONDS))
    await asyncio.sleep(0)
    board.state.budget = 1
    with pytest.raises(ZeroDivisionError):
        await waiting
    assert board.state.budget == 1


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ({"when": [1, datetime(2026, 1, 1, tzinfo=UTC)]}, "output/when/1: datetime is not a JSON value"),
        ((1, 2), "output: tuple is not a JSON value"),
        ({"counts": {1: 2}}, "output/counts: has a key that is no str: 1"),
    ],
)
async def test_an_output_that_is_no_json_is_refused_where_it_is_none(
    board: Board[Migration], output: Any, told: str
) -> None:
    """The path leads to what is no JSON, and its type is named."""
    with pytest.raises(InvalidValue) as refused:
        await board.commit("step", output=output)
    assert str(refused.value) == told


async def test_everybody_hears_who_is_there(pair: list[Board[Migration]]) -> None:
    """``announce`` reaches everybody on the board, also for further agents of one replica; leaving ends it."""
    ann, bob = pair
    ann.announce(role="planner", step="outline", focus="draft")
    ann.as_agent("helper").announce(role="helper")
    expected = [
        AgentPresence(agent="ann", role="planner", step="outline", focus="draft"),
        AgentPresence(agent="bob"),
        AgentPresence(agent="helper", role="helper"),
    ]
    for board in pair:
        await board.wait_for(lambda _state, board=board: board.agents == expected, DEADLINE_SECONDS)  # type: ignore[misc]
    await ann.close()
    await bob.wait_for(lambda _state: bob.agents == [AgentPresence(agent="bob")], DEADLINE_SECONDS)


# Transactions


async def test_a_transaction_is_one_update(place: Place, pair: list[Board[Migration]]) -> None:
    """The edits of a transaction are one update, which others see as a whole; a nested one joins it."""
    ann, bob = pair
    torn: list[tuple[int, str]] = []

    def look(_changes: object) -> None:
        torn.append((bob.state.budget, str(bob.state.draft)))

    bob._session.replica.watchers.append(look)
    with ann.transaction():
        ann.state.budget = 1
        with ann.as_agent("other").transaction():
            ann.state.draft.append("x")
        ann.state.plan.append("y")
    assert ann.unacknowledged == 1
    await level(ann, bob)
    assert set(torn) == {(1, "x")}
    entry = (await place.entries())[0]
    assert (entry.author, len(unpack_updates(entry.payload))) == ("ann", 1)


async def test_an_exception_takes_the_whole_transaction_back(pair: list[Board[Migration]]) -> None:
    """Every kind of field is as before, text positions too, and others never see anything of it."""
    ann, bob = pair
    ann.state.draft.append("größe")
    ann.state.plan.extend(["one", "two"])
    ann.state.dependencies = {"pg"}
    ann.state.notes = {"x": 1}
    ann.state.tokens_spent += 5
    await level(ann, bob)
    before = ann.snapshot()
    seen: list[Migration] = []
    bob._session.replica.watchers.append(lambda _changes: seen.append(bob.snapshot()))

    def edit_everything() -> None:
        with ann.transaction():
            ann.state.draft.insert(2, "🎉")
            ann.state.draft.delete(0, 1)
            ann.state.plan[0] = "changed"
            del ann.state.plan[1]
            ann.state.dependencies.add("redis")
            ann.state.dependencies.discard("pg")
            ann.state.notes["x"] = 2
            ann.state.notes["y"] = 2
            ann.state.tokens_spent += 5
            with ann.transaction():
                ann.state.budget = 7
                raise LookupError

    with pytest.raises(LookupError):
        edit_everything()
    assert ann.snapshot() == before
    ann.state.draft.insert(3, "ß")
    assert ann.state.draft == "größße"
    await level(ann, bob)
    assert bob.snapshot() == ann.snapshot()
    assert {(snap.budget, snap.tokens_spent, tuple(snap.plan)) for snap in seen} <= {(0, 5, ("one", "two"))}


async def test_a_refused_value_inside_a_transaction_takes_it_back(board: Board[Migration]) -> None:
    """A value that does not fit raises at the call and takes the edits before it back."""

    def edit() -> None:
        with board.transaction():
            board.state.plan.append("x")
            board.state.budget = "many"  # type: ignore[assignment]

    with pytest.raises(InvalidValue, match="budget"):
        edit()
    assert board.snapshot() == Migration()


# Failures


async def test_flush_has_a_deadline_and_keeps_the_edits(place: Place, board: Board[Migration]) -> None:
    """A flush that takes too long says how much is not durable; the edits are kept and become durable later."""
    gate = place.store.hold("append")
    board.state.plan.extend(["a"])
    board.state.plan.extend(["b"])
    with pytest.raises(Unavailable, match="2 edits are not durable"):
        await board.flush(timeout=0.05)
    assert board.unacknowledged == 2
    gate.release()
    await board.flush(DEADLINE_SECONDS)
    assert board.unacknowledged == 0


async def test_flush_waits_for_what_was_before_it_only(place: Place, board: Board[Migration]) -> None:
    """A flush returns when the edits before it are durable, however much is written after it."""
    board.state.plan.append("before")
    flushing = asyncio.create_task(board.flush(DEADLINE_SECONDS))
    gate = place.store.hold("append", call=place.store.calls["append"] + 2)
    await flushing
    board.state.plan.append("after")
    await asyncio.wait_for(gate.reached.wait(), DEADLINE_SECONDS)
    assert board.unacknowledged == 1
    gate.release()


async def test_a_store_that_fails_for_a_while_loses_nothing(place: Place, board: Board[Migration]) -> None:
    """Edits and commits made while the store is down are made good once when it answers again."""
    place.store.break_down("append")
    board.state.tokens_spent += 5
    committing = asyncio.create_task(board.commit("step", patch={"budget": 1}))
    with pytest.raises(Unavailable):
        await board.flush(timeout=0.1)
    place.store.repair()
    assert (await committing).version == 1
    assert await board.at(1) == Migration(tokens_spent=5, budget=1)


WRONG_EDITS: list[tuple[str, type[Exception], Callable[[Any], object]]] = [
    ("budgt", AttributeError, lambda state: setattr(state, "budgt", 1)),
    ("budget", InvalidValue, lambda state: setattr(state, "budget", "many")),
    ("status", InvalidValue, lambda state: setattr(state, "status", "OVER")),
    ("draft", InvalidValue, lambda state: state.draft.append(5)),
    ("plan", InvalidValue, lambda state: state.plan.extend(["ok", 5])),
    ("dependencies", InvalidValue, lambda state: state.dependencies.add(None)),
    ("findings/f1", InvalidValue, lambda state: state.findings.__setitem__("f1", {"severity": 11})),
    ("tokens_spent", InvalidValue, lambda state: state.tokens_spent.__iadd__(0.5)),
    ("tokens_spent", TypeError, lambda state: setattr(state, "tokens_spent", 5)),
]


@pytest.mark.parametrize(("names", "kind", "edit"), WRONG_EDITS)
async def test_a_wrong_edit_is_one_error_and_changes_nothing(
    board: Board[Migration], names: str, kind: type[Exception], edit: Callable[[Any], object]
) -> None:
    """Unknown fields and values that do not fit raise at the call, naming the path."""
    with pytest.raises(kind, match=names):
        edit(board.state)
    assert board.unacknowledged == 0
    assert board.snapshot() == Migration()


WRONG_COMMITS: list[tuple[str, type[BoardError], dict[str, Any]]] = [
    ("budgt.*did you mean 'budget'", InvalidValue, {"patch": {"budgt": 1}}),
    ("budget", InvalidValue, {"patch": {"status": "DONE", "budget": "many"}}),
    ("patch", InvalidValue, {"patch": ["budget"]}),
    ("Odd.*Migration", InvalidValue, {"patch": Odd()}),
    ("expected_version", InvalidValue, {"expected_version": "1"}),
    ("expected_version", InvalidValue, {"expected_version": True}),
    ("nonsense", BadRequest, {"reads": ["nonsense"]}),
    ("reads", BadRequest, {"reads": "budget"}),
    ("reads", BadRequest, {"reads": 5}),
    ("output", InvalidValue, {"output": object()}),
    ("output", InvalidValue, {"output": float("nan")}),
    ("handoff", InvalidValue, {"handoff": {"x": "\ud800"}}),
    ("confidence", InvalidValue, {"confidence": 1.5}),
    ("trace", InvalidValue, {"trace": 5}),
    ("trace", InvalidValue, {"trace": "\ud800"}),
    ("tags", InvalidValue, {"tags": "abc"}),
    ("tags", InvalidValue, {"tags": [1]}),
    ("step is empty", InvalidValue, {"step": ""}),
    ("step", LimitExceeded, {"step": "x" * 201}),
    ("step", InvalidValue, {"step": "\ud800"}),
    ("step", InvalidValue, {"step": None}),
    ("idempotency_key is empty", InvalidValue, {"idempotency_key": ""}),
    ("idempotency_key", InvalidValue, {"idempotency_key": 5}),
    ("output, handoff, trace and tags", LimitExceeded, {"output": "x" * 300_000}),
    ("version 7 was expected", VersionConflict, {"expected_version": 7}),
    ("version -1 was expected", VersionConflict, {"expected_version": -1}),
    ("version 7 was expected", VersionConflict, {"expected_version": 7, "reads": ["budget"]}),
    ("version -1 was expected", VersionConflict, {"expected_version": -1, "reads": []}),
    ("was expected", VersionConflict, {"expected_version": 2**70, "reads": ["budget"], "patch": {"budget": 1}}),
]


@pytest.mark.parametrize(("names", "kind", "arguments"), WRONG_COMMITS)
async def test_a_wrong_commit_is_one_error_and_changes_nothing(
    board: Board[Migration], names: str, kind: type[BoardError], arguments: dict[str, Any]
) -> None:
    """An argument that is not what it should be raises one error that names it; nothing is committed."""
    with pytest.raises(kind, match=names):
        await board.commit(**{"step": "step", **arguments})
    assert board.snapshot() == Migration()
    assert await board.checkpoints() == []


@pytest.mark.parametrize(
    ("names", "ask"),
    [
        ("limit", lambda board: board.checkpoints(limit=0)),
        ("limit", lambda board: board.checkpoints(limit=1001)),
        ("before", lambda board: board.checkpoints(before=-1)),
        ("before", lambda board: board.checkpoints(before="1")),
        ("version", lambda board: board.at(1.5)),
        ("version", lambda board: board.at(-1)),
        ("version", lambda board: board.at(2**60)),
        ("path", lambda board: board.history("a\ud800")),
        ("path", lambda board: board.blame("\ud800")),
        ("took_place", lambda board: board.resolve_effect("pay", "k", took_place="yes")),
    ],
)
async def test_a_wrong_question_is_one_error(board: Board[Migration], names: str, ask: Callable[[Any], Any]) -> None:
    """Numbers outside their bounds, and what is no number, are refused naming the argument."""
    with pytest.raises(InvalidValue, match=names) as refused:
        await ask(board)
    assert refused.value.path == names


@pytest.mark.parametrize("board_id", ["", "a/b", "../x", "ü", "x" * 129, ".a", "a b"])
async def test_a_bad_board_id_is_refused(place: Place, board_id: str) -> None:
    """H4: a board id outside the alphabet is refused, and makes no board."""
    with pytest.raises(InvalidBoardId, match="board id"):
        await place.open(Migration, board_id=board_id).__aenter__()
    assert await place.store.boards() == []


@pytest.mark.parametrize(
    ("agent", "error", "message"),
    [
        ("", InvalidValue, "agent is empty"),
        *((agent, LimitExceeded, "agent must be") for agent in ("a\nb", "x" * 129, "\ud800", None)),
    ],
)
async def test_a_bad_agent_name_is_refused(place: Place, agent: Any, error: type[BoardError], message: str) -> None:
    """An agent's name that is empty, too long or not printable is refused, and makes no board."""
    with pytest.raises(error, match=message):
        await place.open(Migration, agent).__aenter__()
    assert await place.store.boards() == []
    async with place.open(Migration) as board:
        with pytest.raises(error, match=message):
            board.as_agent(agent)


async def test_closing_is_idempotent_and_ends_every_handle(place: Place) -> None:
    """After close every call that writes or asks raises BoardClosed, on all handles; reading the replica goes on."""
    async with place.open(Migration) as board:
        other = board.as_agent("other")
        board.state.budget = 1
        await board.close()
        await board.close()
        await other.close()
        for handle in (board, other):
            for use in (
                lambda handle=handle: setattr(handle.state, "budget", 2),
                lambda handle=handle: handle.state.draft.append("x"),
                lambda handle=handle: handle.transaction().__enter__(),
                lambda handle=handle: handle.announce(role="x"),
            ):
                with pytest.raises(BoardClosed):
                    use()
            for ask in (
                handle.commit("x"),
                handle.checkpoints(),
                handle.at(1),
                handle.wait_for(lambda state: state.budget == 5),
                handle.attempt(_nothing, step="x"),
            ):
                with pytest.raises(BoardClosed):
                    await ask
        assert board.snapshot().budget == 1
        assert board.unacknowledged == 0


async def _nothing(_before: Migration) -> None:
    return None


async def test_closing_says_what_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the edits do not become durable in time, leaving the block raises how many are lost."""
    monkeypatch.setitem(Board.close.__kwdefaults__, "timeout", 0.05)
    opened = place.open(Migration)
    board = await opened.__aenter__()
    gate = place.store.hold("append")
    board.state.budget = 1
    with pytest.raises(Unavailable, match="1 edits are not durable"):
        await opened.__aexit__(None, None, None)
    gate.release()


async def test_an_error_in_the_block_is_the_one_that_is_raised(place: Place) -> None:
    """What the block raises is not hidden by closing, and what was written before it is durable."""

    async def fail() -> None:
        async with place.open(Migration) as board:
            board.state.budget = 1
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()
    async with place.open(Migration) as board:
        assert board.state.budget == 1


class Needy(BoardModel):
    name: str
    budget: int = 0


async def test_a_snapshot_that_does_not_fit_the_model_names_the_path(place: Place) -> None:
    """A required field that nobody wrote makes reading raise InvalidValue with its path, until it is written."""
    async with place.open(Needy) as board:
        with pytest.raises(InvalidValue, match="name") as refused:
            board.snapshot()
        assert refused.value.path == "name"
        await board.commit("without a name")
        with pytest.raises(InvalidValue, match="name"):
            await board.at(1)
        board.state.name = "x"
        assert board.snapshot() == Needy(name="x")


async def test_a_value_of_another_client_that_does_not_fit_is_named(board: Board[Migration]) -> None:
    """What was written past the model is reported when it is read, and taken back by the board's writer."""
    replica = board._session.replica
    with replica.edit("stranger"):
        replica.document.state_map["budget"] = "many"
    with pytest.raises(InvalidValue, match="budget") as refused:
        board.snapshot()
    assert refused.value.path == "budget"
    board.state.budget = 5
    assert board.snapshot() == Migration(budget=5)
    with pytest.raises(WriteRejected, match="budget"):
        await board.flush()
    assert board.snapshot() == Migration(budget=5)


# Models


class Renamed(BoardModel):
    """`Migration` with a text that became a plain value."""

    draft: str = ""


class Extended(Migration):
    reviewer: str = ""
    risks: list[str] = []


class Demanding(Migration):
    reviewer: str


async def test_another_model_is_refused_naming_the_field(place: Place) -> None:
    """V11: a model that changes a field, or adds a required one, is refused naming it; nothing is changed."""
    async with place.open(Migration) as board:
        board.state.draft.append("text")
        await board.flush(DEADLINE_SECONDS)
        for model, field in ((Renamed, "draft"), (Demanding, "reviewer")):
            with pytest.raises(SchemaMismatch, match=field) as refused:
                await place.open(model, "other").__aenter__()
            assert any(field in sentence for sentence in refused.value.fields)
            assert refused.value.board_schema == 1
        board.state.budget = 1
        await board.flush(DEADLINE_SECONDS)
    assert len(await place.store.schemas(BOARD)) == 1


async def test_a_model_with_optional_additions_joins(place: Place) -> None:
    """V11: old and new model work on one board at once; history stays readable, and checksums hold."""
    async with place.open(Migration, "old") as old:
        old.state.draft.append("text")
        await old.commit("old", patch={"budget": 1})
        async with place.open(Extended, "new") as new:
            new.state.reviewer = "eva"
            new.state.risks.append("late")
            old.state.budget = 2
            made = await new.commit("new", patch={"status": "DONE"})
            assert (made.version, made.schema_version) == (2, 2)
            await old.wait_for(lambda state: state.status == "DONE", DEADLINE_SECONDS)
            assert await new.at(1) == Extended(draft="text", budget=1)
            seen = await new.at(2)
            assert (seen.reviewer, seen.risks, seen.status) == ("eva", ["late"], "DONE")
            assert await old.at(1) == Migration(draft="text", budget=1)
    await place.restart()
    async with place.open(Migration) as old:
        assert (old.state.budget, old.state.status) == (2, "DONE")
        assert (await old.at(2)).status == "DONE"


class Record(BoardModel):
    title: str = ""
    severity: int = 0
    notes: Text
    plan: list[str] = []
    hits: Counter


class Inquiry(BoardModel):
    records: dict[str, Record] = {}


@pytest_asyncio.fixture
async def inquiry(place: Place) -> AsyncIterator[list[Board[Inquiry]]]:
    """Two agents, each with a replica of its own, on a board with records."""
    async with place.open_all(Inquiry, "ann", "bob") as boards:
        yield boards


@pytest.mark.parametrize("deleted_before", [False, True])
async def test_a_record_that_two_open_at_once_keeps_the_work_of_both(
    place: Place, inquiry: list[Board[Inquiry]], deleted_before: bool
) -> None:
    """M5: both open a new key at once: both texts and fields are on every replica, and there after a restart."""
    ann, bob = inquiry
    if deleted_before:
        bob.state.records["r"].notes.append("old")
        await level(ann, bob)
        del ann.state.records["r"]
        await level(ann, bob)
    ann.state.records["r"].title = "title"
    bob.state.records["r"].severity = 5
    for board in (ann, bob):
        board.state.records["r"].notes.append(board.agent)
        board.state.records["r"].plan.append(board.agent)
        board.state.records["r"].hits += 1
    await level(ann, bob)
    found = ann.snapshot()
    assert found == bob.snapshot()
    record = found.records["r"]
    assert (record.title, record.severity, record.hits, sorted(record.plan)) == ("title", 5, 2, ["ann", "bob"])
    assert record.notes in ("annbob", "bobann")
    async with place.open(Inquiry, "late", BOARD) as late:
        assert late.snapshot() == found
        assert await late.at(late.version) == found


async def test_records_outlive_a_restart(place: Place) -> None:
    """What was opened and assigned is there when the board is read from disk, and can be opened further."""
    async with place.open(Inquiry) as board:
        board.state.records["opened"].notes.append("né")
        board.state.records["given"] = Record(title="x", notes=Text("y"), hits=Counter(3))
        made = await board.commit("records")
        written = board.snapshot()
    await place.restart()
    async with place.open_all(Inquiry, "ann", "bob") as boards:
        for board in boards:
            assert board.snapshot() == await board.at(made.version) == written
            board.state.records["opened"].notes.append("!")
            board.state.records["given"].hits += 1
        await level(*boards)
        assert boards[0].snapshot() == boards[1].snapshot()
        assert boards[1].snapshot().records["opened"].notes == "né!!"
        assert boards[1].snapshot().records["given"].hits == 5


async def test_commits_of_whole_boards_with_records_both_land(inquiry: list[Board[Inquiry]]) -> None:
    """M1: two agents commit their copies of one snapshot, each with another field of one record changed."""
    ann, bob = inquiry
    ann.state.records["r"] = Record(title="a", notes=Text("one two"))
    await level(ann, bob)
    taken = [board.snapshot() for board in (ann, bob)]
    changes: list[dict[str, Any]] = [
        {"title": "b", "notes": Text("ONE two")},
        {"severity": 3, "notes": Text("one TWO")},
    ]
    for board, base, change in zip((ann, bob), taken, changes, strict=True):
        record = base.records["r"].model_copy(update=change)
        made = await board.commit("edit", patch=base.model_copy(update={"records": {"r": record}}))
        assert made.fields == ("records",)
    await level(ann, bob)
    assert ann.snapshot() == bob.snapshot()
    assert ann.snapshot().records == {"r": Record(title="b", severity=3, notes=Text("ONE TWO"))}


async def test_changes_in_records_are_told_by_path(inquiry: list[Board[Inquiry]]) -> None:
    """A watcher of a path in a record hears of that path, and of what happens to the record as a whole."""
    ann, bob = inquiry
    ann.state.records["r"].title = "first"
    await level(ann, bob)
    listening = bob.changes("records/r/title")
    ann.state.records["r"].severity = 1
    ann.state.records["r"].title = "second"
    await level(ann, bob)
    ann.state.records["r"] = Record(title="third")
    seen = await first_of(listening, 2)
    assert [(change.path, change.agent) for change in seen] == [("records/r/title", "ann"), ("records/r", "ann")]
    await listening.aclose()


class Section(BoardModel):
    title: str = ""
    body: Text
    remarks: list[Record] = []


class Outline(BoardModel):
    sections: list[Section] = []


@pytest_asyncio.fixture
async def outline(place: Place) -> AsyncIterator[list[Board[Outline]]]:
    """Two agents, each with a replica of its own, on a board with four sections."""
    async with place.open_all(Outline, "ann", "bob") as boards:
        boards[0].state.sections.extend([Section(title=title) for title in "abcd"])
        await level(*boards)
        yield boards


def titles(board: Board[Outline]) -> str:
    return "".join(section.title for section in board.snapshot().sections)


async def test_an_item_is_edited_while_others_shift_the_list(place: Place, outline: list[Board[Outline]]) -> None:
    """An edit by handle or by id lands on its item, whatever others insert, move and delete at the same time."""
    ann, bob = outline
    section = ann.state.sections[2]
    identity = items_of(ann.state.sections).id_of(section)
    bob.state.sections.insert(0, Section(title="new"))
    del bob.state.sections[1]
    items_of(bob.state.sections).move(3, 0)
    section.title = "C"
    section.remarks.append(Record(title="first"))
    items_of(bob.state.sections).by_id(identity).remarks.append(Record(title="second"))
    await level(ann, bob)
    assert titles(ann) == titles(bob) == "dnewbC"
    assert sorted(remark.title for remark in section.remarks) == ["first", "second"]
    async with place.open(Outline, "late") as late:
        assert late.snapshot() == ann.snapshot() == await late.at(late.version)
        assert items_of(late.state.sections).by_id(identity).title == "C"


async def test_lists_of_records_outlive_a_restart(place: Place) -> None:
    """Items, their order and their ids are there when the board is read from disk, now and at an older version."""
    async with place.open(Outline) as board:
        board.state.sections.extend([Section(title="b", body=Text("né")), Section(title="a")])
        await board.commit("first")
        board.state.sections.move(1, 0)
        board.state.sections[0].remarks.append(Record(title="r"))
        made = await board.commit("second")
        written, ids = board.snapshot(), board.state.sections.ids
    await place.restart()
    async with place.open_all(Outline, "ann", "bob") as boards:
        for board in boards:
            assert board.snapshot() == await board.at(made.version) == written
            assert board.state.sections.ids == ids
        for board in boards:
            board.state.sections.append(Section(title=board.agent))
        before = await boards[0].at(1)
        assert [section.title for section in before.sections] == ["b", "a"]
        await level(*boards)
        assert titles(boards[0]) == titles(boards[1])
        assert titles(boards[0]) in ("abannbob", "abbobann")
        await boards[0].commit("back", patch={"sections": before.sections})
        assert boards[0].snapshot().sections == before.sections
        assert boards[0].state.sections.ids == ids[::-1]


async def test_versions_of_a_list_are_compared_and_restored(outline: list[Board[Outline]]) -> None:
    """A comparison names items by their ids, with what was moved; a version is restored with its order and content."""
    ann, bob = outline
    ids, before = items_of(ann.state.sections).ids, ann.snapshot()
    version = ann.version
    items_of(ann.state.sections).move(3, 0)
    ann.state.sections[1].title = "A"
    ann.state.sections[2].remarks.append(Record(title="r"))
    ann.state.sections.remove(ann.state.sections[3])
    await ann.commit("changed")
    (remark,) = items_of(ann.state.sections[2].remarks).ids
    found = await ann.diff(version, ann.version)
    assert {
        each.path: (each.kind, each.before, each.after) for each in found.differences if "/remarks" not in each.path
    } == {
        f"sections/{ids[0]}/title": ("changed", "a", "A"),
        f"sections/{ids[2]}": ("removed", {"title": "c"}, None),
        f"sections/{ids[3]}/$place": ("changed", 3, 0),
    }
    assert [each.path for each in found.differences if "/remarks" in each.path] == [
        f"sections/{ids[1]}/remarks/{remark}"
    ]
    await bob.restore(version)
    await level(ann, bob)
    assert ann.snapshot() == before
    assert [items_of(ann.state.sections).ids[index] for index in (0, 1, 3)] == [ids[0], ids[1], ids[3]]


async def test_commits_of_whole_lists_both_land(outline: list[Board[Outline]]) -> None:
    """M1: two agents commit their copies of one snapshot, one reordered and edited, the other edited and extended."""
    ann, bob = outline
    (a, b, c, d), taken = ann.snapshot().sections, bob.snapshot()
    by_ann = [d, a, b.model_copy(update={"title": "B"}), c]
    by_bob = [*taken.sections[:1], taken.sections[1].model_copy(update={"body": Text("by bob")}), *taken.sections[2:]]
    await ann.commit("edit", patch={"sections": by_ann})
    made = await bob.commit("edit", patch=taken.model_copy(update={"sections": [*by_bob, Section(title="e")]}))
    assert made.fields == ("sections",)
    await level(ann, bob)
    assert ann.snapshot() == bob.snapshot()
    assert ann.snapshot().sections == [
        d.model_copy(), Section(title="e"), a, Section(title="B", body=Text("by bob")), c,
    ]  # fmt: skip


async def test_a_repeated_step_with_a_list_is_the_same_request(outline: list[Board[Outline]]) -> None:
    """M1: a step that inserts an item, repeated with its key, inserts it once."""
    ann, bob = outline
    patch = {"sections": [Section(title="x"), *ann.snapshot().sections]}
    first = await ann.commit("insert", patch=patch, idempotency_key="k")
    await has_version(bob, first.version)
    assert await bob.commit("insert", patch=patch, idempotency_key="k") == first
    assert titles(bob) == "xabcd"


async def test_what_was_done_to_a_list_can_be_taken_back(outline: list[Board[Outline]]) -> None:
    """A move, an insert, an edit and a deletion are undone one by one; what others do in the list stays."""
    ann, bob = outline
    ann.enable_undo()
    handle = ann.state.sections[1]
    items_of(ann.state.sections).move(0, 3)
    ann.state.sections.insert(0, Section(title="new"))
    handle.title = "B"
    ann.state.sections.remove(handle)
    bob.state.sections[3].body.append("by bob")
    bob.state.sections.append(Section(title="e"))
    await level(ann, bob)
    assert titles(ann) == "newcdae"
    seen = [titles(ann) for _ in range(4) if ann.undo()]
    assert seen == ["newBcdae", "newbcdae", "bcdae", "abcde"]
    assert not ann.undo()
    handle.body.append("again")
    await level(ann, bob)
    assert titles(bob) == "abcde"
    assert bob.snapshot().sections[3].body == "by bob"
    assert [titles(ann) for _ in range(2) if ann.redo()] == []


async def test_changes_in_a_list_are_told_by_the_item(outline: list[Board[Outline]]) -> None:
    """A watcher of an item hears of its edits, its moves and its end, and not of its neighbours."""
    ann, bob = outline
    identity = items_of(ann.state.sections).id_of(1)
    listening = bob.changes(f"sections/{identity}")
    ann.state.sections[0].title = "A"
    ann.state.sections[1].title = "B"
    await level(ann, bob)
    items_of(ann.state.sections).move(1, 0)
    await level(ann, bob)
    del ann.state.sections[0]
    seen = await first_of(listening, 3)
    there = f"sections/{identity}"
    assert [change.path for change in seen] == [f"{there}/title", f"{there}/$place", there]
    await listening.aclose()


async def test_a_pointer_leads_to_its_version_and_to_no_other(board: Board[Migration]) -> None:
    """A pointer or checkpoint is read as its version; another board's, or a hash that differs, is refused."""
    made = await board.commit("first", patch={"status": "ANALYSED"})
    await board.commit("second", patch={"status": "DONE"})
    assert (await board.at(made.pointer)).status == "ANALYSED"
    assert (await board.at(made)).status == "ANALYSED"
    with pytest.raises(NotFound, match="hash"):
        await board.at(f"board:{board.id}@1#{'0' * 16}")
    for wrong in (made.pointer.replace(board.id, "another"), "1"):
        with pytest.raises(BadRequest):
            await board.at(wrong)


class Score(BoardModel):
    points: int = 0


async def test_workers_that_share_a_name_lose_no_attempt(place: Place) -> None:
    """V3: attempts of three replicas, and of two tasks on each, under one agent name: every one of them counts."""

    async def increment(seen: Score) -> dict[str, int]:
        return {"points": seen.points + 1}

    async def work(board: Board[Score]) -> None:
        for _ in range(5):
            await board.attempt(increment, step="increment", reads=["points"], attempts=200)

    async with (
        place.open(Score, agent="worker") as one,
        place.open(Score, agent="worker") as two,
        place.open(Score, agent="worker") as three,
    ):
        await asyncio.gather(*(work(board) for board in (one, two, three) for _ in range(2)))
        assert (await one.at(one.version)).points == 30


async def test_an_edit_of_a_neighbour_on_the_same_replica_is_seen(place: Place) -> None:
    """An attempt is run again when another handle on its replica edited what it had read."""
    seen: list[int] = []
    async with place.open(Score) as board:
        neighbour = board.as_agent("neighbour")

        async def work(before: Score) -> dict[str, int]:
            seen.append(before.points)
            if len(seen) == 1:
                neighbour.state.points = 10
            return {"points": before.points + 1}

        await board.attempt(work, step="add", reads=["points"])
        assert seen == [0, 10]
        assert board.state.points == 11


async def test_work_of_an_attempt_may_be_a_plain_function(board: Board[Migration]) -> None:
    """``attempt`` takes functions and coroutine functions alike."""
    made = await board.attempt(lambda seen: {"status": "DONE"}, step="finish")
    assert (made.version, board.state.status) == (1, "DONE")


async def test_a_condition_that_is_a_coroutine_is_refused(board: Board[Migration]) -> None:
    """A coroutine would always count as true; it is refused with a sentence that says what to give."""

    async def condition(state: Migration) -> bool:
        return False

    with pytest.raises(TypeError, match="plain function"):
        await board.wait_for(condition)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [int, dict, Migration(), object()])
async def test_a_model_that_is_none_is_one_error(place: Place, model: Any) -> None:
    """What is not a class made from BoardModel is refused in one sentence."""
    with pytest.raises(ModelError, match="BoardModel"):
        await place.open(model).__aenter__()


async def test_an_error_in_the_block_is_what_comes_out(place: Place) -> None:
    """Leaving a block by an error does not hide it behind edits that are not durable; a note tells of them."""

    async def fail() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS), place.open(Migration) as board:
            place.store.break_down("append")
            board.state.status = "DONE"
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        await fail()
    place.store.repair()
    assert any("not durable" in note for note in raised.value.__notes__)
