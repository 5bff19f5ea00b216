"""What peers write against the schema is taken back before anybody sees it, and everybody converges."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import pycrdt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

import crdt_board.applying
from crdt_board import BoardModel, Candidates, Counter, InvalidValue, Max, Strict, Text
from crdt_board.checkpoints import AddElement, CommitRequest, Decide, PatchOp, Propose, SetValue, SpliceRange
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import BoardError, LimitExceeded
from crdt_board.host import BoardHost
from crdt_board.layout import SINGLE_KINDS, FieldLayout, Layout
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.live import snapshot_from_wire
from crdt_board.publishing import PublishedEntry
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.wire_values import element_key

BOARD = "job-1"
SMILE = "\N{GRINNING FACE}"


class Part(BoardModel):
    rate: Annotated[float, Field(ge=0)] = 0.0


class Finding(BoardModel):
    title: Annotated[str, Field(max_length=5)] = ""
    severity: Annotated[int, Field(le=10)] = 0
    notes: Text
    tags: list[str] = []
    seen: Counter
    parts: dict[str, Part] = {}


class Sample(BoardModel):
    number: Annotated[int, Field(ge=0, le=10)] = 0
    name: str = ""
    draft: Text
    plan: list[Annotated[str, Field(max_length=5)]] = []
    colors: set[Literal["red", "green"]] = set()
    scores: dict[str, Annotated[int, Field(le=3)]] = {}
    spent: Counter
    best: Annotated[float, Max()] = 0.0
    verdict: Annotated[Literal["ship", "hold"], Candidates()] = "ship"
    status: Annotated[Literal["open", "shut"], Strict()] = "open"
    findings: dict[str, Finding] = {}


class Step(BoardModel):
    title: Annotated[str, Field(max_length=5)] = ""
    notes: Text


class Listed(BoardModel):
    steps: list[Step] = []


LAYOUT = Sample.board_layout()


class Shared(MemoryStore):
    """A store that outlives the hosts that use it, as a file does."""

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def opened(
    store: Any = None, limits: Limits = DEFAULT_LIMITS, layout: Layout | None = LAYOUT
) -> AsyncIterator[Engine]:
    async with BoardHost(store or MemoryStore(), limits=limits) as host, host.board(BOARD) as engine:
        if layout is not None:
            await engine.join(layout)
        yield engine


def content(doc: pycrdt.Doc[Any], layout: Layout = LAYOUT) -> dict[str, Any]:
    """All that a document holds in the roots of a layout, as it stands there."""
    copy = Document(layout)
    copy.apply_or_raise([doc.get_update()])
    fields = [field.name for field in layout.fields if field.kind not in SINGLE_KINDS]
    roots = {name: copy.root(name) for name in ("state", "$board", *fields)}
    return {name: str(root) if isinstance(root, pycrdt.Text) else json.loads(str(root)) for name, root in roots.items()}


def check_valid(doc: pycrdt.Doc[Any]) -> None:
    """A state that the model reads, without anything that it does not know."""
    copy = Document(LAYOUT)
    copy.apply_or_raise([doc.get_update()])
    found = content(doc)
    snapshot_from_wire(copy.wire_state(), Sample)
    assert found["state"].keys() <= {"number", "name"}
    assert found["$board"] == {}
    assert all(isinstance(cell, int) for cell in found["spent"].values())
    assert all(isinstance(cell, int | float) for cell in found["best"].values())
    assert all(key == element_key(item) for key, item in found["colors"].items())
    for record in found["findings"].values():
        assert record.keys() <= {each.name for each in LAYOUT.by_name["findings"].fields}


@dataclass(eq=False)
class Peer:
    """A Yjs client of the board. One of ours is sent the corrections of its own updates, any other all of them."""

    engine: Engine
    client: int = 0
    own: bool = False
    name: str = "peer"
    since: int | None = None
    doc: pycrdt.Doc[Any] = field(init=False)
    seen: list[Sequence[bytes]] = field(default_factory=list)
    delayed: bool = False
    watchful: bool = False

    def __post_init__(self) -> None:
        self.doc = pycrdt.Doc(client_id=self.client or None)
        self.engine.add_listener(self)

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        for shown in entries:
            self.seen.append(shown.corrections if self.own and shown.source is self else shown.updates)
        if not self.delayed:
            self.catch_up()

    def catch_up(self) -> None:
        """Take in what was published, entry by entry; what one entry holds belongs together."""
        for updates in self.seen:
            with self.doc.transaction():
                for update in updates:
                    self.doc.apply_update(update)
            if self.watchful:
                check_valid(self.doc)
        self.seen.clear()

    def stopped(self, error: BoardError) -> None:
        raise error

    def map(self, name: str) -> Any:
        return self.doc.get(name, type=pycrdt.Map)

    def array(self, name: str) -> Any:
        return self.doc.get(name, type=pycrdt.Array)

    def text(self, name: str) -> Any:
        return self.doc.get(name, type=pycrdt.Text)

    def edit(self, change: Callable[[], Any]) -> bytes:
        before = self.doc.get_state()
        with self.doc.transaction():
            change()
        return self.doc.get_update(before)

    def submit(self, updates: Sequence[bytes], *, is_difference: bool = False) -> Awaitable[Receipt]:
        told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.engine.submit(
            Submission(
                updates=updates, author=self.name, source=self, origin=self.name, written=told.set_result,
                is_difference=is_difference, since=self.since,
            )
        )  # fmt: skip
        return told

    async def write(self, *changes: Callable[[], Any]) -> list[tuple[int, str, str]]:
        """Make changes, one update each, and send them together; answer what was refused."""
        receipt = await self.submit([self.edit(change) for change in changes])
        assert receipt.error is None
        assert receipt.seq is not None
        return [(each.index, value.path, value.rule) for each in receipt.rejected for value in each.values]


async def everybody_agrees(engine: Engine, store: Any, *peers: Peer) -> dict[str, Any]:
    """The peers, the board, and the board read anew from its journal and from a snapshot hold one state; it is that."""
    update = await engine.read(lambda document: document.encode())
    live: pycrdt.Doc[Any] = pycrdt.Doc()
    live.apply_update(update)
    expected = content(live)
    for peer in peers:
        peer.catch_up()
        assert content(peer.doc) == expected
    async with opened(store) as cold:  # another process
        assert content(await cold.read(lambda document: document.doc)) == expected
    async with opened(store, replace(DEFAULT_LIMITS, snapshot_every_entries=1, snapshot_time_share=1.0)) as cold:
        other = Peer(cold, name="other")
        await other.write(lambda: other.map("unknown").update({"x": 1}))
    assert store._boards[BOARD].snapshots if hasattr(store, "_boards") else True
    async with opened(store) as cold:
        assert content(await cold.read(lambda document: document.doc)) == expected
    return expected


Write = Callable[[Peer], Any]

VIOLATIONS: dict[str, tuple[Write, str, str]] = {
    "above the maximum": (lambda p: p.map("state").update({"number": 11}), "number", "maximum"),
    "of another type": (lambda p: p.map("state").update({"name": 5}), "name", "type"),
    "shared type for a value": (lambda p: p.map("state").update({"name": pycrdt.Text("x")}), "name", "type"),
    "bytes for a value": (lambda p: p.map("state").update({"name": b"x"}), "name", "type"),
    "unknown scalar": (lambda p: p.map("state").update({"other": 1}), "other", "additionalProperties"),
    "strict field": (lambda p: p.map("$board").update({"field:status": "shut"}), "$board/field:status", "read_only"),
    "nested in the board's root": (
        lambda p: p.map("$board").update({"x": pycrdt.Map({"a": 1})}),
        "$board/x",
        "read_only",
    ),
    "item of another type": (lambda p: p.array("plan").append(5), "plan/1", "type"),
    "item too long": (lambda p: p.array("plan").insert(0, "much too long"), "plan/0", "maxLength"),
    "shared type in a list": (lambda p: p.array("plan").append(pycrdt.Map({"a": 1})), "plan/1", "type"),
    "text in a list": (lambda p: p.text("plan").insert(1, f"é{SMILE}"), "plan", "type"),
    "short text in a list": (lambda p: p.text("plan").insert(0, "ab"), "plan", "type"),
    "embed in a text": (lambda p: p.text("draft").insert_embed(1, {"a": 1}), "draft", "type"),
    "value in a text": (lambda p: p.array("draft").insert(1, 5), "draft", "type"),
    "shared type in a text": (lambda p: p.array("draft").insert(1, pycrdt.Map({"a": 1})), "draft", "type"),
    "no element of the set": (lambda p: p.map("colors").update({'"blue"': "blue"}), 'colors/"blue"', "enum"),
    "key of another element": (lambda p: p.map("colors").update({'"green"': "red"}), 'colors/"green"', "key"),
    "value of a dict": (lambda p: p.map("scores").update({"a/b": 4}), "scores/a~1b", "maximum"),
    "counter by halves": (lambda p: p.map("spent").update({"7": 0.5}), "spent/7", "type"),
    "counter that is true": (lambda p: p.map("spent").update({"7": True}), "spent/7", "type"),
    "cell of a maximum": (lambda p: p.map("best").update({"7": "high"}), "best/7", "order"),
    "no candidate": (lambda p: p.map("verdict").update({"7": "ship"}), "verdict/7", "cell"),
    "candidate of another type": (
        lambda p: p.map("verdict").update({"7": {"value": "maybe", "agent": "x", "when_ms": 1}}),
        "verdict/7",
        "enum",
    ),
    "value for a record": (lambda p: p.map("findings").update({"g": "x"}), "findings/g", "type"),
    "plain object for a record": (lambda p: p.map("findings").update({"g": {"title": "x"}}), "findings/g", "type"),
    "text for a record": (lambda p: p.map("findings").update({"g": pycrdt.Text("x")}), "findings/g", "type"),
    "scalar in a record": (
        lambda p: p.map("findings")["f"].update({"severity": 11}),
        "findings/f/severity",
        "maximum",
    ),
    "unknown key in a record": (
        lambda p: p.map("findings")["f"].update({"other": 1}),
        "findings/f/other",
        "additionalProperties",
    ),
    "value for a text in a record": (
        lambda p: p.map("findings")["f"].update({"notes": "x"}),
        "findings/f/notes",
        "type",
    ),
    "list for a text in a record": (
        lambda p: p.map("findings")["f"].update({"notes": pycrdt.Array([1])}),
        "findings/f/notes",
        "type",
    ),
    "embed in a text in a record": (
        lambda p: p.map("findings")["f"]["notes"].insert_embed(0, {"a": 1}),
        "findings",
        "type",
    ),
    "item of a list in a record": (lambda p: p.map("findings")["f"]["tags"].append(1), "findings/f/tags/1", "type"),
    "counter in a record": (lambda p: p.map("findings")["f"]["seen"].update({"7": 1.5}), "findings/f/seen/7", "type"),
    "record in a record": (
        lambda p: p.map("findings")["f"]["parts"].update({"q": pycrdt.Map({"rate": -1})}),
        "findings/f/parts/q/rate",
        "minimum",
    ),
    "scalar in a new record": (
        lambda p: p.map("findings").update({"g": pycrdt.Map({"title": "much too long", "severity": 1})}),
        "findings/g/title",
        "maxLength",
    ),
    "containers in a new record": (
        lambda p: p.map("findings").update({"g": pycrdt.Map({"tags": pycrdt.Array(["a", 1]), "seen": pycrdt.Map()})}),
        "findings/g/tags/1",
        "type",
    ),
    "list for a map in a new record": (
        lambda p: p.map("findings").update({"g": pycrdt.Map({"parts": pycrdt.Array()})}),
        "findings/g/parts",
        "type",
    ),
}


def fill(peer: Peer) -> None:
    """Something valid in every field."""
    peer.map("state").update({"number": 5, "name": "old"})
    peer.text("draft").insert(0, f"é{SMILE}x")
    peer.array("plan").append("one")
    peer.map("colors")['"red"'] = "red"
    peer.map("scores")["a/b"] = 1
    peer.map("findings")["f"] = pycrdt.Map(
        {
            "title": "old", "severity": 3, "notes": pycrdt.Text("n"), "tags": pycrdt.Array(["t"]),
            "seen": pycrdt.Map({"5": 2}), "parts": pycrdt.Map({"p": pycrdt.Map({"rate": 1})}),
        }
    )  # fmt: skip


@pytest.mark.parametrize("own", [False, True], ids=["stock", "own"])
@pytest.mark.parametrize("violation", VIOLATIONS)
async def test_a_write_against_the_schema_is_taken_back(violation: str, own: bool) -> None:
    """V10, H3: each kind of violation is refused, saying where and why; its writer, others and the journal agree."""
    write, path, rule = VIOLATIONS[violation]
    store = Shared()
    async with opened(store) as engine:
        peer, reader = Peer(engine, own=own), Peer(engine, name="reader")
        assert await peer.write(lambda: fill(peer)) == []
        before = content(peer.doc)
        assert await peer.write(lambda: write(peer)) == [(0, path, rule)]
        assert content(peer.doc) == content(reader.doc)
        check_valid(reader.doc)
        after = content(reader.doc)
        if "new record" not in violation and "for a text in" not in violation and "record in" not in violation:
            assert after == before
        assert await peer.write(lambda: peer.array("plan").append("more")) == []
        assert "more" in (await everybody_agrees(engine, store, peer, reader))["plan"]


async def test_nobody_sees_the_refused_state() -> None:
    """H3: what a reader is sent is valid after each single update, also where good ones came beside it."""
    async with opened() as engine:
        peer, reader = Peer(engine), Peer(engine, name="reader", delayed=True, watchful=True)
        for write, _, _ in VIOLATIONS.values():
            await peer.write(lambda: fill(peer))
            await peer.write(lambda write=write: write(peer), lambda: peer.text("draft").insert(0, "a"))
        assert len(reader.seen) > len(VIOLATIONS)
        reader.catch_up()
        assert str(reader.text("draft")).count("a") == len(VIOLATIONS)


async def test_the_rest_of_an_update_stays() -> None:
    """An offline client's hours of work arrive as one update, and one bad value costs that value only."""
    store = Shared()
    async with opened(store) as engine:
        peer, reader = Peer(engine), Peer(engine, name="reader")

        def work() -> None:
            fill(peer)
            peer.map("state")["number"] = 99
            peer.array("plan").extend(["two", 3, "four"])
            peer.map("findings")["g"] = pycrdt.Map({"title": "fine", "severity": "bad"})

        receipt = await peer.submit([peer.edit(work)], is_difference=True)
        assert {value.path for each in receipt.rejected for value in each.values} == {
            "number",
            "plan/2",
            "findings/g/severity",
        }
        state = await everybody_agrees(engine, store, peer, reader)
        assert state["state"] == {"name": "old"}
        assert state["plan"] == ["one", "two", "four"]
        assert state["findings"]["g"] == {"title": "fine"}


async def test_a_good_value_of_the_same_batch_is_not_lost() -> None:
    """Of several updates that were applied together the refused one goes back to the good one before it."""
    async with opened() as engine:
        peer, other = Peer(engine), Peer(engine, name="other")
        state = peer.map("state")
        refused = await peer.write(
            lambda: state.update({"number": 6}),
            lambda: state.update({"number": 66}),
            lambda: state.update({"name": "kept"}),
            other.doc.get_state,
        )
        assert refused == [(1, "number", "maximum")]
        assert json.loads(str(other.map("state"))) == {"number": 6, "name": "kept"}


async def test_a_flood_of_refusals_rebuilds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer whose updates are refused again and again costs one rebuilding of the document, not one for each."""
    async with opened() as engine:
        peer = Peer(engine)
        reloads = []
        reload = engine._tail.reload

        async def counted() -> None:
            reloads.append(1)
            await reload()

        monkeypatch.setattr(engine._tail, "reload", counted)
        for _ in range(5):
            changes = [lambda n=n: peer.map("state").update({"number": n}) for n in (1, 11, 2, 12)]
            assert len(await peer.write(*changes)) == 2
        assert len(reloads) == 1


async def test_deletions_are_not_refused_except_on_the_board() -> None:
    """What a peer deletes is gone, but in the root that only the writer of the board changes."""
    async with opened() as engine:
        peer = Peer(engine)
        await peer.write(lambda: fill(peer))
        decide = [Decide(field="status", value="shut")]
        await engine.commit(request(decide, expected_version=0))
        assert await peer.write(lambda: peer.map("findings").pop("f"), lambda: peer.map("state").pop("name")) == []
        assert await peer.write(lambda: peer.map("$board").pop("field:status")) == [
            (0, "$board/field:status", "read_only")
        ]
        assert content(peer.doc)["$board"] == {"field:status": "shut"}


@pytest.mark.parametrize("valid_first", [True, False])
@pytest.mark.parametrize("guilty", [10, 30])
async def test_a_refused_and_a_valid_write_of_one_key_at_once(valid_first: bool, guilty: int) -> None:
    """Of two writes at the same time, one of them refused, all hold one value, and that is valid."""
    store = Shared()
    async with opened(store) as engine:
        bad, good = Peer(engine, guilty), Peer(engine, 20, name="good")
        await good.write(lambda: good.map("state").update({"number": 1}))
        bad.delayed = good.delayed = True
        updates = [(bad, bad.edit(lambda: bad.map("state").update({"number": 11})))]
        updates.insert(1 - valid_first, (good, good.edit(lambda: good.map("state").update({"number": 2}))))
        receipts = [await peer.submit([update]) for peer, update in updates]
        assert all(receipt.error is None for receipt in receipts)
        state = await everybody_agrees(engine, store, bad, good)
        # Which write wins is decided by the client ids, as always; the one that was valid is lost to no invalid value.
        assert state["state"]["number"] == (2 if valid_first or guilty < 20 else 1)


async def test_a_gap_hides_nothing() -> None:
    """H3: what is written into a record beyond a gap is checked when it is ready, and not in the document before."""
    store = Shared()
    async with opened(store) as engine:
        peer, reader = Peer(engine), Peer(engine, name="reader")
        missing = peer.edit(lambda: peer.map("unknown").update({"x": 1}))
        made = peer.edit(lambda: peer.map("findings").update({"g": pycrdt.Map({"tags": pycrdt.Array(["a"])})}))
        wrong = peer.edit(lambda: peer.map("findings")["g"].update({"severity": 11}))
        worse = peer.edit(lambda: peer.map("findings")["g"]["tags"].append(5))
        for update in (made, wrong, worse):
            assert (await peer.submit([update])).first_unready == 0
        assert (await peer.submit([missing, made, wrong, worse])).first_unready is None
        after = await everybody_agrees(engine, store, peer, reader)
        check_valid(peer.doc)
        assert after["findings"]["g"] == {"tags": ["a"]}


async def test_a_board_without_a_schema_refuses_what_cannot_be_read() -> None:
    """Without a model everything is taken but writes to the board's own root."""
    async with opened(layout=None) as engine:
        peer = Peer(engine)
        assert await peer.write(lambda: peer.map("state").update({"x": 1, "y": pycrdt.Map({"a": 1})})) == []
        assert await peer.write(lambda: peer.map("anything").update({"x": 1})) == []
        assert await peer.write(lambda: peer.map("$board").update({"x": 1})) == [(0, "$board/x", "read_only")]


async def test_items_of_lists_of_records_are_checked_as_records() -> None:
    """V10: an item that is no record goes, and so does a value in one that breaks a rule; its place is its own."""
    async with opened(layout=Listed.board_layout()) as engine:
        peer = Peer(engine)
        steps = peer.map("steps")
        assert await peer.write(lambda: steps.update({"a": pycrdt.Map({"$place": "x", "title": "fine"})})) == []
        assert await peer.write(lambda: steps.update({"b": 5})) == [(0, "steps/b", "type")]
        assert await peer.write(lambda: steps["a"].update({"title": "much too long"})) == [
            (0, "steps/a/title", "maxLength")
        ]
        assert await peer.write(lambda: steps["a"].update({"$place": "y", "other": 1})) == [
            (0, "steps/a/other", "additionalProperties")
        ]
        assert json.loads(str(steps)) == {"a": {"$place": "y", "title": "fine"}}


async def test_roots_that_the_model_does_not_name_are_tolerated() -> None:
    """A client may keep what it likes in roots of its own."""
    async with opened() as engine:
        peer = Peer(engine)
        assert await peer.write(lambda: peer.map("mine").update({"x": pycrdt.Text("y")})) == []


def sized(**bounds: dict[str, int]) -> Layout:
    """The sample's layout, as a model with bounds on whole fields would have it."""
    fields = []
    for each in LAYOUT.fields:
        schema = {**each.json_schema, **bounds.get(each.name, {})}
        fields.append(FieldLayout(**{**each.model_dump(), "json_schema": schema}))
    return Layout(title="Sized", fields=tuple(fields))


SIZED = sized(draft={"maxLength": 5}, plan={"maxItems": 3}, scores={"maxProperties": 2}, findings={"maxProperties": 1})
FULL: dict[str, Write] = {
    "draft": lambda p: p.text("draft").insert(0, SMILE * 6),
    "plan": lambda p: p.array("plan").extend(["a", "b", "c", "d"]),
    "scores": lambda p: p.map("scores").update({"a": 1, "b": 1, "c": 1}),
    "findings": lambda p: p.map("findings").update({"a": pycrdt.Map(), "b": pycrdt.Map()}),
}
HALF: dict[str, Write] = {
    "draft": lambda p: p.text("draft").insert(0, SMILE * 3),
    "plan": lambda p: p.array("plan").extend(["a", "b"]),
    "scores": lambda p: p.map("scores").update({f"{p.name}1": 1, f"{p.name}2": 1}),
    "findings": lambda p: p.map("findings").update({p.name: pycrdt.Map()}),
}


@pytest.mark.parametrize("field", FULL)
async def test_more_than_a_field_may_have_in_one_go_is_refused(field: str) -> None:
    """Who alone adds more than the model's maximum is refused, whoever else writes."""
    async with opened(layout=SIZED) as engine:
        peer = Peer(engine)
        refused = await peer.write(lambda: FULL[field](peer))
        assert {path for _, path, _ in refused} == {field}
        assert not content(peer.doc)[field]


@pytest.mark.parametrize("field", HALF)
async def test_the_maximum_holds_for_who_surely_knew(field: str) -> None:
    """The second write beyond the maximum is refused only when nobody else changed the field since the writer came."""
    async with opened(layout=SIZED) as engine:
        alone = Peer(engine, name="alone", since=0)
        assert await alone.write(lambda: HALF[field](alone)) == []
        alone.name, name = "again", alone.name
        change = alone.edit(lambda: HALF[field](alone))
        alone.name = name
        receipt = await alone.submit([change])
        assert {value.path for each in receipt.rejected for value in each.values} == {field}
    async with opened(layout=SIZED) as engine:
        ann, bob = Peer(engine, name="ann", since=0), Peer(engine, name="bob", since=0)
        ann.delayed = bob.delayed = True
        edits = [(peer, peer.edit(lambda peer=peer: HALF[field](peer))) for peer in (ann, bob)]
        for peer, edit in edits:
            receipt = await peer.submit([edit])
            assert receipt.rejected == ()
        unknown = Peer(engine, name="unknown")
        assert await unknown.write(lambda: HALF[field](unknown)) == []


@pytest.mark.parametrize("field", FULL)
async def test_hard_limits_hold_for_everybody(field: str) -> None:
    """No text and no container of a board grows beyond the limits of its server."""
    async with opened(limits=replace(DEFAULT_LIMITS, text_chars_max=5, container_items_max=1)) as engine:
        peer = Peer(engine)
        refused = await peer.write(lambda: FULL[field](peer))
        assert {(path, rule) for _, path, rule in refused} == {(field, "limit")}
        assert not content(peer.doc)[field]
        assert await peer.write(lambda: peer.text("draft").insert(0, "12345")) == []


async def test_a_peer_whose_corrections_cost_too_much_is_cut_off() -> None:
    """H9: putting a large value back again and again for one peer ends; the board goes on."""
    async with opened(limits=replace(DEFAULT_LIMITS, corrections_bytes_max=20_000)) as engine:
        peer, other = Peer(engine), Peer(engine, name="other")
        await peer.write(lambda: peer.map("state").update({"name": "x" * 6_000}))
        edits = [peer.edit(lambda n=number: peer.map("state").update({"name": n})) for number in range(5)]
        errors = [(await peer.submit([edit])).error for edit in edits]
        assert [type(error) for error in errors[:3]] == [type(None)] * 3
        assert any(isinstance(error, LimitExceeded) for error in errors)
        assert await other.write(lambda: other.map("state").update({"number": 1})) == []


def request(patch: Sequence[PatchOp], **rest: Any) -> CommitRequest:
    return CommitRequest(step="s", agent="a", fingerprint=str(patch), patch=tuple(patch), **rest)


PATCHES: list[tuple[PatchOp, str]] = [
    (SetValue(field="number", value=11), "number"),
    (SetValue(field="scores", key="k", value=4), "scores/k"),
    (AddElement(field="colors", value="blue"), "colors"),
    (SpliceRange(field="plan", items=("fine", "much too long")), "plan"),
    (Propose(field="verdict", value="maybe", seen=()), "verdict"),
    (Decide(field="status", value="ajar"), "status"),
    (SetValue(field="findings", key="g", value={"title": "much too long"}), "findings/g/title"),
    (SetValue(field="findings/f/severity", value=11), "findings/f/severity"),
    (SpliceRange(field="findings/f/tags", items=(5,)), "findings/f/tags"),
]


@pytest.mark.parametrize(("operation", "path"), PATCHES, ids=[path for _, path in PATCHES])
async def test_a_commit_against_the_schema_is_refused(operation: PatchOp, path: str) -> None:
    """V10: it is refused before anything is stored, naming the path; the board stays readable and can be committed."""
    async with opened() as engine:
        peer = Peer(engine)
        await peer.write(lambda: fill(peer))
        seq, before = engine.seq, content(peer.doc)
        with pytest.raises(InvalidValue) as caught:
            await engine.commit(request([SetValue(field="name", value="new"), operation], expected_version=0))
        assert caught.value.path == path
        assert engine.seq == seq
        assert content(await engine.read(lambda document: document.doc)) == before
        assert (await engine.commit(request([SetValue(field="name", value="new")]))).version == 1


async def test_a_commit_that_makes_a_field_too_large_is_refused() -> None:
    """V10: what a patch makes larger than the model's maximum is refused whole; without it the commit is made."""
    async with opened(layout=SIZED) as engine:
        large = [SpliceRange(field="draft", text="x" * 6), SetValue(field="name", value="new")]
        with pytest.raises(InvalidValue) as caught:
            await engine.commit(request(large))
        assert caught.value.path == "draft"
        assert await engine.read(lambda document: document.wire_state()) == {"spent": 0}
        assert (await engine.commit(request([SpliceRange(field="draft", text="x" * 5)]))).version == 1


# Random trees of valid and invalid writes.

_numbers = st.sampled_from([3, 10, 11, -1, "x", None, 2.5])
_texts = st.sampled_from(["a", "ok", "much too long", 7, SMILE])
_names = st.sampled_from(["f", "g"])


def _records(kind: type[Any] = pycrdt.Map) -> st.SearchStrategy[Callable[[], Any]]:
    entries = st.fixed_dictionaries(
        {},
        optional={"title": _texts, "severity": _numbers, "other": st.just(1), "notes": st.sampled_from(["t", "m", 1])},
    )

    def made(fields: dict[str, Any]) -> Any:
        shared = {"t": lambda: pycrdt.Text("note"), "m": pycrdt.Map, 1: lambda: 1}
        return kind({name: shared[value]() if name == "notes" else value for name, value in fields.items()})

    return entries.map(lambda fields: lambda: made(fields))


def _in_record(name: str, change: Callable[[Any], Any]) -> Write:
    def write(peer: Peer) -> None:
        record = peer.map("findings").get(name)
        if isinstance(record, pycrdt.Map):
            change(record)

    return write


def _edit_text(record: Any) -> None:
    if isinstance(record.get("notes"), pycrdt.Text):
        record["notes"].insert(0, SMILE)


def _on(name: str, key: str, value: Any) -> Write:
    return lambda peer: peer.map(name).update({key: value})


WRITES: st.SearchStrategy[Write] = st.one_of(
    _numbers.map(lambda value: _on("state", "number", value)),
    _texts.map(lambda value: _on("state", "name", value)),
    st.just(_on("state", "unknown", 1)),
    st.just(_on("$board", "field:status", "shut")),
    st.builds(_on, st.just("scores"), st.sampled_from("ab"), _numbers),
    st.sampled_from(["red", "blue"]).map(lambda value: _on("colors", element_key(value), value)),
    st.just(_on("colors", "wrong", "red")),
    _numbers.map(lambda value: _on("spent", "7", value)),
    _texts.map(lambda value: lambda peer: peer.array("plan").insert(0, value)),
    st.just(lambda peer: peer.array("plan").append(pycrdt.Map())),
    st.just(lambda peer: len(peer.array("plan")) and peer.array("plan").pop(0)),
    _texts.map(lambda value: lambda peer: peer.text("draft").insert(0, str(value))),
    st.just(lambda peer: peer.text("draft").insert_embed(0, {"x": 1})),
    st.just(lambda peer: peer.text("plan").insert(0, "ab")),  # beyond ASCII the peer itself would read for ever
    st.tuples(_names, _records()).map(lambda pair: lambda peer: peer.map("findings").update({pair[0]: pair[1]()})),
    _names.map(lambda name: lambda peer: peer.map("findings").pop(name, None)),
    _names.map(lambda name: _on("findings", name, "no record")),
    st.tuples(_names, _numbers).map(
        lambda pair: _in_record(pair[0], lambda record: record.update({"severity": pair[1]}))
    ),
    _names.map(lambda name: _in_record(name, _edit_text)),
    _names.map(lambda name: _in_record(name, lambda record: record.update({"notes": "x"}))),
)
_CLIENT = 2**30
STEPS = st.lists(st.tuples(st.integers(0, 2), st.lists(WRITES, min_size=1, max_size=4), st.booleans()), max_size=12)


async def _run(steps: list[tuple[int, list[Write], bool]]) -> None:
    store = Shared()
    async with opened(store) as engine:
        peers = [
            Peer(engine, _CLIENT + number, own=number == 1, name=f"p{number}", delayed=True) for number in range(3)
        ]
        reader = Peer(engine, name="reader", delayed=True, watchful=True)
        for number, writes, hears in steps:
            peer = peers[number]
            if hears:
                peer.catch_up()
            receipt = await peer.submit([peer.edit(lambda write=write, peer=peer: write(peer)) for write in writes])
            assert receipt.error is None
        reader.catch_up()
        await everybody_agrees(engine, store, reader, *peers)
        check_valid(reader.doc)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_random_writes_end_valid_and_alike(steps: list[tuple[int, list[Write], bool]]) -> None:
    """Whatever several peers write, at once and after each other: all readers, the guilty and the journal agree."""
    asyncio.run(_run(steps))


def test_the_random_test_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without taking back, the same test fails."""
    monkeypatch.setattr(crdt_board.applying, "judged", lambda *_: None)
    with pytest.raises((AssertionError, InvalidValue)):
        asyncio.run(_run([(0, [_on("state", "number", 11)], True)]))
