"""States that are read again and again: what was not touched is not read again, and nobody can tell."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import pycrdt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BeforeValidator, ConfigDict, JsonValue, PrivateAttr, model_validator

from crdt_board import BoardCorrupt, BoardHost, BoardModel, Strict, Text, open_board
from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.history import BoardHistory
from crdt_board.live import Snapshots, snapshot_from_wire
from crdt_board.store.memory import MemoryStore
from support.agents import LiveAgent
from support.histories import LAYOUT, Everything, History


def exact(state: object) -> str:
    """Text that tells 1 from 1.0 and True; the keys of objects have no order."""
    return json.dumps(state, sort_keys=True)


def read_anew(document: Document, *, strays: bool = False) -> Document:
    fresh = Document(document.layout, strays=strays)
    fresh.apply_or_raise([document.encode()])
    return fresh


class ReadHistory(History):
    """Reads the state of who wrote or heard of something each time, and changes what it was given."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.snapshots = [Snapshots(Everything) for _ in self.authors]

    def act(self, author: LiveAgent) -> None:
        super().act(author)
        self.look(self.authors.index(author))

    def deliver(self, who: int, count: int) -> None:
        super().deliver(who, count)
        self.look(who)

    def look(self, who: int) -> None:
        document = self.authors[who].document
        fresh = read_anew(document)
        made = self.snapshots[who].of(document)
        assert exact(document.wire_state()) == exact(fresh.wire_state())
        assert document.checksum() == fresh.checksum()
        assert made == snapshot_from_wire(fresh.wire_state(), Everything)
        assert made.model_fields_set == snapshot_from_wire(fresh.wire_state(), Everything).model_fields_set
        assert [task._board_base.item for task in made.tasks] == list(document.items("tasks").ids)
        spoil(made)


def spoil(model: BoardModel) -> None:
    """Change everything in a snapshot that can be changed."""
    for value in vars(model).values():
        if isinstance(value, dict | list):
            for inner in value.values() if isinstance(value, dict) else value:
                if isinstance(inner, BoardModel):
                    spoil(inner)
        if isinstance(value, dict | list | set):
            value.clear()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_what_is_read_again_is_what_is_there(seed: int) -> None:
    """After each change the state, its checksum and the snapshot are those that reading everything anew gives."""
    history = ReadHistory(seed)
    history.run(20)
    history.check()


VALUES: list[JsonValue] = [None, True, 1, 1.5, 2**60, 1e300, "é", [1, {"a": 2}], {"b": [None]}, -0.5, 0]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_numbers_and_strays_are_read_again_exactly(seed: int) -> None:
    """Values of every kind, in a dict and beside the model, read as in the JSON of the whole document."""
    source = random.Random(seed)

    class Loose(BoardModel):
        values: dict[str, JsonValue]
        one: JsonValue = None

    kept, writer = Document(Loose.board_layout(), strays=True), Document(Loose.board_layout(), strays=True)
    kept.keep_wires()
    for _ in range(30):
        with writer.doc.transaction():
            for _ in range(source.choice((1, 1, 1, 12))):
                holder = source.choice((writer.map("values"), writer.map("values"), writer.state_map))
                key = source.choice(("one", *map(str, range(20))))
                if source.random() < 0.2 and key in holder:
                    del holder[key]
                elif source.random() < 0.05:
                    holder[key] = pycrdt.Map({"nested": 1})
                else:
                    holder[key] = source.choice(VALUES)
        kept.apply_or_raise([writer.encode(kept.state_vector())])
        only = source.sample(("one", "values", "3", "7"), k=2)
        assert exact(kept.wire_state(only)) == exact(read_anew(kept, strays=True).wire_state(only))
        assert exact(kept.wire_state()) == exact(read_anew(kept, strays=True).wire_state())
        assert kept.checksum() == read_anew(kept, strays=True).checksum()


def test_own_edits_are_seen_inside_their_transaction() -> None:
    """A state that is read in a transaction has what was written in it, and is not taken for the one after it."""
    agent, snapshots = LiveAgent(Everything), Snapshots(Everything)
    assert snapshots.of(agent.document).scores == {}
    with suppress(LookupError), agent.replica.transaction("agent"):
        agent.state.scores["a"], agent.state.title = 1, "new"
        agent.state.draft.append("text")
        seen = snapshots.of(agent.document)
        assert (seen.scores, seen.title, seen.draft) == ({"a": 1}, "new", "text")
        raise LookupError
    seen = snapshots.of(agent.document)
    assert (seen.scores, seen.title, seen.draft) == ({}, "", "")


@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_no_record_is_looked_at_again_too(*, keeps: bool) -> None:
    """An array that another client put among records, and changes, has the state and checksum of now."""
    kept, writer = Document(LAYOUT), Document(LAYOUT)
    if keeps:
        kept.keep_wires()
    with writer.doc.transaction():
        writer.map("findings")["f"] = pycrdt.Array([1])
        writer.map("findings").update({str(number): pycrdt.Map({"title": "t"}) for number in range(20)})
    kept.apply_or_raise([writer.encode()])
    before = kept.checksum(), kept.wire_state()
    with writer.doc.transaction():
        writer.map("findings")["f"].append(2)
    kept.apply_or_raise([writer.encode(kept.state_vector())])
    fresh = read_anew(kept)
    assert (kept.checksum(), kept.wire_state()) == (fresh.checksum(), fresh.wire_state()) != before


def test_a_long_list_is_read_whole_after_its_checksum() -> None:
    """The checksum of a list takes nothing away from what was read of it."""
    agent = LiveAgent(Everything)
    agent.document.keep_wires()
    items: list[JsonValue] = [str(number) for number in range(50)]
    agent.state.plan[:] = items
    agent.document.checksum()
    assert agent.document.wire_state()["plan"] == items
    agent.state.plan.append("more")
    agent.document.checksum()
    assert agent.document.wire_state()["plan"] == [*items, "more"]


def test_what_did_not_change_is_not_read_again() -> None:
    """The wire form of a field that nobody touched is the same object; that of one that was touched is another."""
    agent = LiveAgent(Everything)
    agent.document.keep_wires()
    agent.state.scores["a"], agent.state.plan[:] = 1, ["x"]
    before = agent.document.wire_state()
    agent.state.scores["b"] = 2
    after = agent.document.wire_state()
    assert after["plan"] is before["plan"]
    assert (before["scores"], after["scores"]) == ({"a": 1}, {"a": 1, "b": 2})


class Ruled(BoardModel):
    """A model whose validator also works something out."""

    low: int = 0
    high: int = 9
    names: list[str] = []
    _span: int = PrivateAttr(default=0)

    @model_validator(mode="after")
    def ordered(self) -> Ruled:
        if self.low > self.high:
            raise ValueError("low is above high")
        self._span = self.high - self.low
        return self


def test_validators_of_a_model_run_on_each_snapshot() -> None:
    """What a validator works out is there, and a state that breaks its rule can be read, as without sharing."""
    agent, snapshots = LiveAgent(Ruled), Snapshots(Ruled)
    for low, span in ((1, 8), (2, 7), (20, 0), (3, 6)):
        agent.state.low = low
        made = snapshots.of(agent.document)
        assert (made.low, made._span) == (low, span)
        assert made._span == snapshot_from_wire(agent.document.wire_state(), Ruled)._span


def a_list(value: object) -> object:
    return value


class Odd(BoardModel):
    """Values that look alike and are not."""

    model_config = ConfigDict(str_strip_whitespace=True)

    name: str = ""
    marks: list[bool] = []
    parts: dict[str, float] = {}
    pairs: list[tuple[str, int]] = []
    anything: list[Annotated[JsonValue, BeforeValidator(a_list)]] = []


def test_what_can_be_changed_inside_is_made_anew() -> None:
    """A caller who changes what is deep in a snapshot changes nobody else's."""
    agent, snapshots = LiveAgent(Odd), Snapshots(Odd)
    agent.state.anything.append({"deep": [1]})
    agent.state.pairs.append(("a", 1))
    agent.state.parts["x"] = 2.0
    first: Any = snapshots.of(agent.document)
    first.anything[0]["deep"].append(2)
    first.pairs.clear()
    second = snapshots.of(agent.document)
    assert (second.anything, second.pairs, second.parts) == ([{"deep": [1]}], [("a", 1)], {"x": 2.0})
    assert type(second.parts["x"]) is float


def test_a_value_that_does_not_fit_is_named_as_ever() -> None:
    """What another client wrote and does not fit raises the error that reading from nothing raises, and goes again."""
    agent, snapshots = LiveAgent(Odd), Snapshots(Odd)
    assert snapshots.of(agent.document) == Odd()
    with agent.document.doc.transaction():
        agent.document.map("parts")["x"] = "no number"
    with pytest.raises(InvalidValue) as shared:
        snapshots.of(agent.document)
    with pytest.raises(InvalidValue) as alone:
        snapshot_from_wire(agent.document.wire_state(), Odd)
    assert (str(shared.value), shared.value.data) == (str(alone.value), alone.value.data)
    with agent.document.doc.transaction():
        del agent.document.map("parts")["x"]
    assert snapshots.of(agent.document) == Odd()


class Job(BoardModel):
    status: str = ""
    notes: dict[str, str] = {}
    tree: JsonValue = None
    verdict: Annotated[str, Strict()] = "open"
    log: list[str] = []
    draft: Text


async def write_job(host: BoardHost, seed: int, steps: int) -> int:
    """Random steps on a board, some of several entries; returns its newest version."""
    source = random.Random(seed)
    async with open_board(host, "job", Job, agent="writer") as board:
        for _ in range(steps):
            for _ in range(source.randint(0, 3)):
                match source.randrange(5):
                    case 0:
                        board.state.notes[str(source.randrange(20))] = f"note {source.random()}"
                    case 1:
                        board.state.log.append("line")
                    case 2:
                        board.state.draft.append("word ")
                    case 3:
                        board.state.tree = {"branch": [source.randrange(5)]}
                    case _:
                        board.state.notes.pop(str(source.randrange(20)), None)
                if source.random() < 0.5:
                    await board.flush()
            await board.commit("step", patch={"status": f"{source.randrange(3)}"})
        return board.version


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
async def test_states_in_a_row_share_nothing_that_can_be_changed(seed: int) -> None:
    """Whoever changes a state that history gave finds the next one as loading it alone gives it, as JSON and as a
    model."""
    store = MemoryStore()
    async with BoardHost(store) as host:
        newest = await write_job(host, seed, 12)
        history = await BoardHistory.open(store, "job")
        async for checkpoint, state in history.states(1, newest):
            assert exact(state) == exact((await history.state_at(checkpoint.version))[1])
            for wire in state.values():
                if isinstance(wire, dict):
                    wire["branch"] = wire["spoilt"] = 1
                elif isinstance(wire, list):
                    wire.append("spoilt")
        seen = 0
        async for checkpoint, model in history.snapshots(1, newest, Job):
            assert model == snapshot_from_wire((await history.state_at(checkpoint.version))[1], Job)
            spoil(model)
            seen += 1
        assert seen == newest


def stored(store: MemoryStore) -> Any:
    """What the store holds of the board, to damage it."""
    return store._find("job")


async def versions_until_damage(history: BoardHistory, last: int) -> tuple[list[int], BoardCorrupt]:
    """The versions up to ``last`` that history gives before it says what is wrong."""
    seen: list[int] = []
    try:
        async for checkpoint, _ in history.states(1, last):
            seen.append(checkpoint.version)
    except BoardCorrupt as error:
        return seen, error
    raise AssertionError("nothing was found")


async def test_a_state_without_its_checksum_is_found_while_following() -> None:
    """A version whose checksum is not that of its state ends the row there, and the error names the entry."""
    store = MemoryStore()
    async with BoardHost(store) as host:
        newest = await write_job(host, 1, 8)
        checkpoints = stored(store).checkpoints
        damaged = checkpoints[newest - 2].model_copy(update={"checksum": "0" * 64})
        checkpoints[damaged.version] = damaged
        history = await BoardHistory.open(store, "job")
        seen, error = await versions_until_damage(history, newest)
        assert (seen, error.seq) == (list(range(1, damaged.version)), damaged.seq)
        assert "checksum" in str(error)


async def test_a_damaged_entry_is_found_while_following() -> None:
    """An entry whose bytes are others than when it was written ends the row of states before it."""
    store = MemoryStore()
    async with BoardHost(store) as host:
        newest = await write_job(host, 1, 8)
        history = await BoardHistory.open(store, "job")
        board = stored(store)
        checkpoint = board.checkpoints[newest - 2]
        entries = board.entries
        damaged = next(at for at, entry in enumerate(entries) if entry.seq == checkpoint.seq)
        entries[damaged] = replace(entries[damaged], payload=entries[damaged].payload + b"x")
        seen, error = await versions_until_damage(history, newest)
        assert (seen, error.seq) == (list(range(1, checkpoint.version)), checkpoint.seq)


async def test_a_plain_state_is_the_callers_own() -> None:
    """Without a model, too, what was read can be changed without anybody seeing it."""
    async with BoardHost(MemoryStore()) as host, open_board(host, "plain", agent="a") as board:
        board.state["tree"] = {"a": [1]}
        for _ in range(2):
            seen = board.snapshot()
            assert seen == {"tree": {"a": [1]}}
            seen["tree"]["a"].append(2)
            board.state["tree"]["a"].append(3)
        assert board.snapshot() == {"tree": {"a": [1]}}
