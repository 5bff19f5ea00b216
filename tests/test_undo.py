"""Taking back one's own edits."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from crdt_board import BadRequest, Board, BoardModel, Counter, Text, VersionConflict, open_board
from crdt_board.document import Document
from crdt_board.live import LiveState
from crdt_board.replica import Replica
from crdt_board.undo import UndoHistory
from support import kept_records
from support.snapshots import snapshot


class Finding(BoardModel):
    title: str = ""
    notes: Text


class Notes(BoardModel):
    title: str = ""
    draft: Text
    plan: list[str]
    tags: set[str]
    scores: dict[str, int]
    findings: dict[str, Finding]
    tasks: list[Finding]
    spent: Counter


class Handle:
    """One agent's access to a replica, which may be others' too."""

    def __init__(self, agent: str, replica: Replica | None = None, depth: int = 0) -> None:
        self.agent = agent
        self.replica = Replica(Notes.board_layout()) if replica is None else replica
        self.history: UndoHistory | None = self.replica.new_history(depth) if depth else None
        self.state: Any = LiveState(Notes, self)

    @property
    def document(self) -> Document:
        return self.replica.document

    def edit(self, content: JsonValue = None, *, group: object = None) -> AbstractContextManager[None]:
        return self.replica.edit(self.agent, content, history=self.history, group=group)

    def transaction(self) -> AbstractContextManager[None]:
        return self.replica.transaction(self.agent, self.history)

    def undo(self) -> bool:
        assert self.history is not None
        return self.replica.undo(self.agent, self.history)

    def redo(self) -> bool:
        assert self.history is not None
        return self.replica.redo(self.agent, self.history)

    def read(self) -> Any:
        return snapshot(self.document, Notes)


def sync(*handles: Handle) -> None:
    for receiver, sender in itertools.permutations(handles, 2):
        if receiver.replica is not sender.replica:
            news = sender.document.encode(receiver.document.state_vector())
            receiver.replica.receive([news], agent=None, seq=None)


def all_steps(step: Callable[[], bool]) -> int:
    return sum(1 for _ in iter(step, False))


class _StopError(Exception):
    pass


# What it takes back

_FRESH = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", *map(chr, range(0x4E00, 0x4E40))]
_FRESH += map(chr, range(0x1F300, 0x1F340))
EDITS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 2]),
        st.sampled_from(["insert", "insert", "delete", "append", "drop", "tag", "score", "title", "record", "sync"]),
        st.integers(0, 1000),
        st.integers(1, 3),
    ),
    max_size=25,
)


class Story:
    """Three agents who edit: two on one replica, one on another. All that is written is written once."""

    def __init__(self) -> None:
        self.ann = Handle("ann", depth=1000)
        self.amy = Handle("amy", self.ann.replica, depth=1000)
        self.bob = Handle("bob")
        self.agents = [self.ann, self.amy, self.bob]
        self.fresh = iter(_FRESH)
        self.written: dict[str, set[str]] = {handle.agent: set() for handle in self.agents}
        self.deleted: dict[str, set[str]] = {handle.agent: set() for handle in self.agents}

    def new(self, agent: str) -> str:
        word = next(self.fresh)
        self.written[agent].add(word)
        return word

    def run(self, who: int, what: str, place: int, count: int) -> None:
        handle = self.agents[who]
        state, agent = handle.state, handle.agent
        if what == "sync":
            sync(self.ann, self.bob)
        elif what == "insert":
            state.draft.insert(place % (len(state.draft) + 1), "".join(self.new(agent) for _ in range(count)))
        elif what == "delete":
            start = place % (len(state.draft) + 1)
            self.deleted[agent] |= set(str(state.draft)[start : start + count])
            state.draft.delete(start, start + count)
        elif what == "append":
            state.plan.insert(place % (len(state.plan) + 1), self.new(agent))
        elif what == "drop" and len(state.plan):
            self.deleted[agent].add(state.plan.pop(place % len(state.plan)))
        elif what == "tag":
            state.tags.add(self.new(agent))
        elif what == "score":
            state.scores[agent] = place
        elif what == "title":
            state.findings["shared"].title = f"{agent} {place}"
        elif what == "record":
            state.findings["shared"].notes.append(self.new(agent))

    def words(self, handle: Handle) -> list[str]:
        read = handle.read()
        notes = read.findings["shared"].notes if "shared" in read.findings else ""
        return [*read.draft, *read.plan, *sorted(read.tags), *notes]

    def check_indexes(self) -> None:
        for handle in self.agents:
            assert len(handle.state.draft) == len(str(handle.state.draft))
            assert handle.document.text_index("draft").bytes == len(str(handle.state.draft).encode())


@settings(max_examples=300)
@given(EDITS)
@example([(0, "insert", 0, 1), (1, "insert", 1, 1), (0, "delete", 0, 2)])  # one's own and hers, typed as one text
def test_undo_takes_back_own_edits_and_nobody_elses(edits: list[tuple[int, str, int, int]]) -> None:
    """M9. Whatever others did: nothing of one's own is left, all of theirs is, and what one deleted is back."""
    story = Story()
    for edit in edits:
        story.run(*edit)
    sync(story.ann, story.bob)
    before, theirs_before = story.words(story.ann), story.ann.read().scores
    all_steps(story.ann.undo)
    story.check_indexes()
    left = story.words(story.ann)
    theirs = story.written["amy"] | story.written["bob"]
    assert len(left) == len(set(left))
    assert set(left) <= theirs
    assert theirs - story.deleted["amy"] - story.deleted["bob"] <= set(left)
    staying = [word for word in left if word in before]
    if not any(word in story.deleted["ann"] for word in before):
        assert staying == [word for word in before if word in theirs]
    scores = story.ann.read().scores
    assert "ann" not in scores
    assert scores == {agent: score for agent, score in theirs_before.items() if agent != "ann"}

    all_steps(story.ann.redo)
    assert sorted(story.words(story.ann)) == sorted(before)
    assert story.ann.read().scores == theirs_before
    story.check_indexes()
    all_steps(story.amy.undo)
    all_steps(story.ann.undo)
    sync(story.ann, story.bob)
    assert story.ann.read() == story.bob.read()
    # What one had deleted came back when she took that back, also where the other did not want it any more.
    assert set(story.words(story.bob)) <= story.written["bob"] | story.deleted["ann"] | story.deleted["amy"]
    story.check_indexes()


@given(EDITS, st.integers(0, 25))
def test_alone_undo_goes_back_step_by_step_and_redo_forward(edits: list[tuple[int, str, int, int]], back: int) -> None:
    """With nobody else there each undo gives the state before the step, and each redo the one after it."""
    story = Story()
    states = [story.ann.read()]
    for _, what, place, count in edits:
        story.run(0, what, place, count)
        if story.ann.read() != states[-1]:
            states.append(story.ann.read())
    steps = len(states) - 1
    down = min(back, steps)
    opened = {"shared"} & states[-1].findings.keys()

    def same(now: Any, then: Any) -> bool:
        # A record stays when it was opened by its name: somebody else may have opened it as well.
        return bool(now == then or (opened and not then.findings and now.model_copy(update={"findings": {}}) == then))

    for number in range(steps - 1, steps - 1 - down, -1):
        assert story.ann.undo()
        assert same(story.ann.read(), states[number])
    for number in range(steps - down + 1, steps + 1):
        assert story.ann.redo()
        assert same(story.ann.read(), states[number])
    assert not story.ann.redo()


def test_a_transaction_is_one_step() -> None:
    """Everything in a transaction is taken back, and made again, at once, whatever fields it is in."""
    ann = Handle("ann", depth=10)
    ann.state.title = "first"
    empty = ann.read()
    with ann.transaction():
        ann.state.title = "second"
        ann.state.draft.append("größe 🚢")
        ann.state.plan += ["a", "b"]
        ann.state.tags.add("x")
        ann.state.spent += 5
    full = ann.read()
    assert ann.undo()
    assert ann.read() == empty
    assert ann.redo()
    assert ann.read() == full


def test_an_edit_after_an_undo_ends_what_can_be_made_again() -> None:
    """Redo makes nothing again once the handle has edited; others' edits do not matter."""
    ann = Handle("ann", depth=10)
    amy = Handle("amy", ann.replica, depth=10)
    ann.state.plan.append("one")
    assert ann.undo()
    amy.state.plan.append("amy")
    assert ann.redo()
    assert ann.undo()
    ann.state.plan.append("two")
    assert not ann.redo()
    assert ann.read().plan == ["amy", "two"] or ann.read().plan == ["two", "amy"]


def test_only_the_newest_steps_are_remembered() -> None:
    """No more than ``depth`` steps are taken back, however many were made."""
    ann = Handle("ann", depth=5)
    for number in range(23):
        ann.state.plan.append(str(number))
    assert all_steps(ann.undo) == 5
    assert ann.read().plan == [str(number) for number in range(18)]
    assert all_steps(ann.redo) == 5
    assert len(ann.read().plan) == 23


def test_writes_of_one_group_are_one_step() -> None:
    """What a group writes is one step, until the handle writes something else or takes something back."""
    ann = Handle("ann", depth=10)
    group = object()

    def write(word: str) -> None:
        with ann.edit(group=group):
            ann.state.draft.append(word)

    for word in ("a", "b", "c"):
        write(word)
    assert ann.undo()
    assert (str(ann.state.draft), ann.undo()) == ("", False)
    assert ann.redo()
    write("d")
    ann.state.title = "x"
    write("e")
    assert ann.undo()
    assert str(ann.state.draft) == "abcd"
    assert ann.undo()
    assert ann.undo()
    assert str(ann.state.draft) == "abc"


# Scalars and counters, where somebody else wrote too


def test_a_scalar_that_somebody_else_overwrote_stays_theirs() -> None:
    """What is overwritten by somebody who had seen it is not taken back; the step before it is."""
    ann, bob = Handle("ann", depth=10), Handle("bob")
    ann.state.plan.append("step")
    ann.state.title = "ann"
    sync(ann, bob)
    bob.state.title = "bob"
    sync(ann, bob)
    assert ann.undo()
    assert (ann.read().title, ann.read().plan) == ("bob", [])


def test_a_scalar_goes_back_to_what_it_was() -> None:
    """Taking back the newest write gives the value before it, by whomever, or the default."""
    ann, bob = Handle("ann", depth=10), Handle("bob")
    ann.state.title = "ann 1"
    sync(ann, bob)
    bob.state.title = "bob"
    sync(ann, bob)
    ann.state.title = "ann 2"
    assert ann.undo()
    sync(ann, bob)
    assert ann.read().title == bob.read().title == "bob"


def test_a_scalar_written_at_once_is_theirs_or_the_default() -> None:
    """Of two writes at once one was lost: taking back the one that won leaves the default, the other one stays."""
    for ids in ((1, 2), (2, 1)):
        ann, bob = (
            Handle(name, Replica(Notes.board_layout(), client_id=number))
            for name, number in zip("ab", ids, strict=True)
        )
        ann.history = ann.replica.new_history(10)
        ann.state.title, bob.state.title = "ann", "bob"
        sync(ann, bob)
        won = ann.read().title == "ann"
        assert ann.undo() is won
        sync(ann, bob)
        assert ann.read().title == bob.read().title == ("" if won else "bob")


def test_counting_is_taken_back_unless_another_agent_of_the_replica_counted_since() -> None:
    """Increments on other replicas stay; on the same replica a later one by another handle covers one's own."""
    ann, bob = Handle("ann", depth=10), Handle("bob")
    amy = Handle("amy", ann.replica, depth=10)
    ann.state.spent += 5
    bob.state.spent += 100
    sync(ann, bob)
    assert ann.undo()
    assert ann.read().spent == 100
    assert ann.redo()
    amy.state.spent += 20
    assert not ann.undo()
    assert ann.read().spent == 125
    assert amy.undo()
    assert ann.read().spent == 105


# Records


def test_a_record_that_was_opened_stays_when_its_edits_are_taken_back() -> None:
    """M5. Two agents open a record at once; one takes its part back: the other's part stays on every replica."""
    ann, bob = Handle("ann", depth=10), Handle("bob")
    ann.state.findings["f"].title = "ann"
    ann.state.findings["f"].notes.append("ann")
    bob.state.findings["f"].notes.append("bob")
    sync(ann, bob)
    assert all_steps(ann.undo) == 2
    sync(ann, bob)
    for handle in (ann, bob):
        assert handle.read().findings == {"f": Finding(title="", notes=Text("bob"))}


def test_a_record_that_was_deleted_or_replaced_comes_back_whole() -> None:
    """Taking back a deletion, or an assignment, gives the record with all that it held, others' parts too."""
    ann, bob = Handle("ann", depth=10), Handle("bob")
    ann.state.findings["f"] = Finding(title="ann", notes=Text("größe "))
    sync(ann, bob)
    bob.state.findings["f"].notes.append("bob 🚢")
    sync(ann, bob)
    there = ann.read()
    del ann.state.findings["f"]
    assert ann.undo()
    assert ann.read() == there
    ann.state.findings["f"] = Finding(title="new", notes=Text("x"))
    assert ann.undo()
    sync(ann, bob)
    assert ann.read() == bob.read() == there
    ann.state.findings["f"].notes.append("!")
    sync(ann, bob)
    assert bob.read().findings["f"].notes == "größe bob 🚢!"


def remove(state: Any) -> None:
    del state.findings["f"], state.tasks[0]


def replace(state: Any) -> None:
    state.findings["f"] = Finding(title="new", notes=Text("new"))
    state.tasks[0] = Finding(title="new", notes=Text("new"))


@pytest.mark.parametrize("end", [remove, replace])
@pytest.mark.parametrize("way", ["undo", "failure"])
def test_an_edit_of_a_record_and_its_end_in_one_transaction_are_taken_back_alike_everywhere(
    end: Callable[[Any], None], way: str
) -> None:
    """Whether it fails or is undone: the record is back as it was on every replica, and undone it can be made again."""
    ann, bob = Handle("ann", depth=10), Handle("bob")
    ann.state.findings["f"] = Finding(title="old", notes=Text("old"))
    ann.state.tasks = [Finding(title="old", notes=Text("old"))]
    ann.state.findings["f"].title = "given"
    sync(ann, bob)
    there = ann.read()
    with suppress(_StopError), ann.transaction():
        for record in (ann.state.findings["f"], ann.state.tasks[0]):
            record.title = "between"
            record.notes.delete(0, 1)
        end(ann.state)
        if way == "failure":
            raise _StopError
    after = ann.read()
    if way == "undo":
        assert ann.undo()
    sync(ann, bob)
    assert ann.read() == bob.read() == there
    if way == "undo":
        assert ann.redo()
        sync(ann, bob)
        assert ann.read() == bob.read() == after
        assert ann.undo()
    assert ann.undo()
    sync(ann, bob)
    assert ann.read() == bob.read()
    assert bob.read().findings["f"] == Finding(title="old", notes=Text("old"))


def test_a_record_of_which_something_is_kept_can_be_removed() -> None:
    """The process lives on when somebody removes a record in which a history keeps what it may bring back."""
    story = get_context("spawn").Process(target=kept_records.main)
    story.start()
    story.join(60)
    assert story.exitcode == 0


@pytest.mark.parametrize("way", ["undo", "failure"])
def test_what_two_handles_typed_as_one_text_comes_back_as_two(way: str) -> None:
    """Whoever removed and brought back both parts: each handle then takes back its own part only."""
    ann = Handle("ann", depth=10)
    amy, pat = Handle("amy", ann.replica, depth=10), Handle("pat", ann.replica, depth=10)
    ann.state.draft.append("ann ")
    amy.state.draft.append("amy ")
    with suppress(_StopError), pat.transaction():
        pat.state.draft.delete(0, 8)
        if way == "failure":
            raise _StopError
    if way == "undo":
        assert pat.undo()
    assert ann.undo()
    assert str(ann.state.draft) == "amy "
    assert ann.redo()
    assert amy.undo()
    assert str(ann.state.draft) == "ann "


# How it fits in


def test_an_undo_is_an_update_like_any_other() -> None:
    """It is pending under the agent's name, with the next number, and watchers are told of its paths."""
    ann = Handle("ann", depth=10)
    other = Handle("bob")
    told: list[tuple[str, str | None, bool]] = []
    with ann.transaction():
        ann.state.title = "x"
        ann.state.draft.append("y")
    ann.replica.watchers.append(lambda changes: told.extend((c.path, c.agent, c.local) for c in changes))
    assert ann.undo()
    assert told == [("draft", "ann", True), ("title", "ann", True)]
    assert [(item.number, item.agent) for item in ann.replica.pending] == [(1, "ann"), (2, "ann")]
    other.replica.receive([item.update for item in ann.replica.pending], agent="ann", seq=1)
    assert other.read() == ann.read() == Handle("new").read()
    assert not ann.undo()
    assert len(ann.replica.pending) == 2


@given(st.data())
def test_a_transaction_that_failed_is_no_step(data: st.DataObject) -> None:
    """After an exception the state, what can be taken back and what can be made again are as before."""
    ann = Handle("ann", depth=10)
    amy = Handle("amy", ann.replica, depth=10)
    for number in range(data.draw(st.integers(0, 4))):
        ann.state.draft.append(f"é{number}")
        amy.state.draft.insert(0, f"🚢{number}")
    undone = sum(ann.undo() for _ in range(data.draw(st.integers(0, 3))))
    before = ann.read()
    with pytest.raises(_StopError), ann.transaction():  # noqa: PT012
        ann.state.draft.delete(0, data.draw(st.integers(0, 8)))
        ann.state.draft.append("gone")
        ann.state.title = "gone"
        raise _StopError
    assert ann.read() == before
    assert len(ann.state.draft) == len(str(ann.state.draft))
    assert all_steps(ann.redo) == undone
    all_steps(ann.undo)
    assert "é" not in ann.read().draft
    all_steps(amy.undo)
    assert ann.read() == Handle("new").read()


def test_who_never_asks_keeps_nothing() -> None:
    """What is overwritten and deleted is kept for those handles that can take it back, and for no other."""
    ann = Handle("ann")
    amy = Handle("amy", ann.replica, depth=10)
    for handle in (ann, amy):
        handle.state.title = f"title of {handle.agent}"
        handle.state.draft.append(f"draft of {handle.agent}")
        handle.state.draft.delete(0, 100)
        handle.state.title = ""
    kept = ann.document.encode()
    assert [part in kept for part in (b"draft of ann", b"draft of amy")] == [False, True]
    assert [part in kept for part in (b"title of ann", b"title of amy")] == [False, True]


def test_a_replica_with_a_history_is_freed() -> None:
    """Nothing in yrs keeps a replica, its document or its history alive."""
    ann = Handle("ann", depth=10)
    ann.state.draft.append("x")
    ann.undo()
    left = [weakref.ref(ann.replica), weakref.ref(ann.document), weakref.ref(ann.history)]
    del ann
    gc.collect()
    assert [reference() for reference in left] == [None, None, None]


def test_a_history_that_is_freed_in_a_transaction_does_no_harm() -> None:
    """The collector may free handles, and failed transactions' tracebacks, while a transaction is open."""
    replica = Replica(Notes.board_layout())

    def leave_behind() -> None:
        gone = Handle("gone", replica, depth=10)
        gone.itself = gone  # type: ignore[attr-defined]  # only the collector can free it
        gone.state.draft.append("x")
        try:
            with gone.transaction():
                raise _StopError
        except _StopError as error:
            gone.error = error  # type: ignore[attr-defined]

    ann = Handle("ann", replica, depth=10)
    leave_behind()
    with ann.transaction():
        ann.state.draft.append("y")
        gc.collect()
        ann.state.draft.append("z")
    assert str(ann.state.draft) == "xyz"
    assert ann.undo()
    assert str(ann.state.draft) == "x"


# On a board


async def test_handles_of_one_replica_take_back_their_own() -> None:
    """Each handle, also of the same agent, has a history of its own, from when it asks for it."""
    async with open_board(":memory:", "b", Notes, agent="ann") as ann:
        amy, again = ann.as_agent("amy"), ann.as_agent("ann")
        ann.state.plan.append("before")
        for board in (ann, amy, again):
            board.enable_undo()
        for board, word in ((ann, "ann"), (amy, "amy"), (again, "again")):
            board.state.plan.append(word)
        assert ann.undo()
        assert ann.snapshot().plan == ["before", "amy", "again"]
        assert not ann.undo()
        assert amy.undo()
        assert again.undo()
        assert ann.snapshot().plan == ["before"]


async def test_commits_are_not_steps() -> None:
    """V1. Neither an accepted patch nor a refused one is taken back by undo; edits before and after it are."""
    async with open_board(":memory:", "b", Notes, agent="ann") as board:
        board.enable_undo()
        board.state.title = "edited"
        await board.commit("one", patch={"plan": ["committed"]})
        with pytest.raises(VersionConflict):
            await board.commit("two", patch={"plan": ["refused"]}, expected_version=0)
        assert board.undo()
        assert (board.snapshot().title, board.snapshot().plan) == ("", ["committed"])
        assert not board.undo()
        assert board.redo()
        assert board.snapshot().title == "edited"


async def test_undo_must_be_asked_for_before() -> None:
    """Without `enable_undo`, inside a transaction, or with a depth out of bounds: BadRequest, and nothing changes."""

    def refuses(board: Board[Notes]) -> None:
        for step in (board.undo, board.redo, board.enable_undo):
            with pytest.raises(BadRequest, match="transaction"):
                step()

    async with open_board(":memory:", "b", Notes, agent="ann") as board:
        board.state.title = "x"
        for step in (board.undo, board.redo):
            with pytest.raises(BadRequest, match="enable_undo"):
                step()
        for depth in (0, -1, 10_001, True, "5"):
            with pytest.raises(BadRequest):
                board.enable_undo(depth)  # type: ignore[arg-type]
        board.enable_undo(2)
        with board.transaction():
            refuses(board)
        for word in "abc":
            board.state.plan.append(word)
        board.enable_undo(1)
        assert board.undo()
        assert not board.undo()
        assert board.snapshot().plan == ["a", "b"]
