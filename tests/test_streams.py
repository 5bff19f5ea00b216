"""Text that arrives piece by piece while others edit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdt_board import BadRequest, BoardClosed, BoardModel, EditStream, InvalidValue, Text, open_board
from crdt_board.live.editor import Editor
from crdt_board.live.streams import EditStream as Stream
from support.agents import LiveAgent, exchange


class Finding(BoardModel):
    notes: Text


class Report(BoardModel):
    draft: Text
    plan: list[str]
    findings: dict[str, Finding]


class Turns:
    """An event loop's turns, taken by hand."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def stream_in(agent: LiveAgent, turns: Turns, index: int | None = None) -> EditStream:
    length = len(agent.state.draft)
    return Stream(agent, "draft", length if index is None else min(index, length), turns.call_soon)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("turn"), st.integers(0, 1), st.just(0)),
        st.tuples(st.sampled_from(["insert", "delete"]), st.integers(0, 1000), st.integers(1, 4)),
        st.tuples(st.just("exchange"), st.integers(0, 2), st.integers(0, 2)),
    ),
    max_size=40,
)


class Scene:
    """Two streams and an editor on a replica each; every character of a stream is there once."""

    def __init__(self, ids: list[int], starts: list[int | None], text: str) -> None:
        self.replicas = [LiveAgent(Report, client_id=client_id) for client_id in ids]
        self.starts = starts
        self.turns = [Turns(), Turns()]
        self.streams: list[EditStream | None] = [None, None]
        self.tokens: list[Iterator[str]] = [map(chr, range(0x4E00, 0x5000)), map(chr, range(0x1F300, 0x1F500))]
        self.written = ["", ""]
        self.replicas[2].state.draft.append(text)
        exchange(*self.replicas)
        for who, start in enumerate(starts):
            if start is not None:  # before anything is written: later the index may be inside the other stream
                self.stream(who)

    def stream(self, who: int) -> EditStream:
        stream = self.streams[who]
        if stream is None:
            stream = self.streams[who] = stream_in(self.replicas[who], self.turns[who], self.starts[who])
        return stream

    def run(self, what: str, one: int, two: int) -> None:
        if what == "write":
            token = "".join(next(self.tokens[one]) for _ in range(two))
            self.stream(one).write(token)
            self.written[one] += token
        elif what == "turn":
            self.turns[one].turn()
        elif what == "exchange" and one != two:
            exchange(self.replicas[one], self.replicas[two])
        elif what == "insert":
            draft = self.replicas[2].state.draft
            draft.insert(one % (len(draft) + 1), "e" * two)
        elif what == "delete":
            # Only what the streams wrote: yrs inserts behind deleted text that follows the place, and so beyond what
            # kept another stream out (see `EditStream`).
            draft, written = self.replicas[2].state.draft, "".join(self.written)
            start = stop = one % (len(draft) + 1)
            while stop < min(start + two, len(draft)) and draft[stop] in written:
                stop += 1
            draft.delete(start, stop)


@settings(max_examples=400)
@given(
    st.permutations([1, 2**31, 2**53 - 1]),
    st.tuples(*[st.sampled_from([None, None, 0, 2, 5])] * 2),
    st.sampled_from(["12345", "1é3😀5"]),
    ACTIONS,
)
def test_streams_and_an_editor_never_mix_the_characters_of_a_stream(
    ids: list[int], starts: tuple[int | None, int | None], text: str, actions: list[tuple[str, int, int]]
) -> None:
    """V2. On three replicas, in any order of delivery: each stream's text is in order, and the other is not in it."""
    scene = Scene(ids, list(starts), text)
    for action in actions:
        scene.run(*action)
    for stream in scene.streams:
        if stream is not None:
            stream.close()
    exchange(*scene.replicas)
    exchange(*scene.replicas)
    results = {str(agent.state.draft) for agent in scene.replicas}
    assert len(results) == 1
    (result,) = results
    assert "\n" not in result
    for own, other in ((0, 1), (1, 0)):
        kept = [character for character in result if character in scene.written[own]]
        assert kept == [character for character in scene.written[own] if character in result]
        if kept:
            inside = result[result.index(kept[0]) : result.index(kept[-1])]
            assert not set(inside) & set(scene.written[other])
    if not any(action[0] == "delete" for action in actions):
        assert set(scene.written[0] + scene.written[1]) <= set(result)


def test_what_is_written_in_one_turn_is_one_update() -> None:
    """Tokens are gathered until the end of the turn, then they are one change of the text."""
    agent, turns = LiveAgent(Report), Turns()
    stream = stream_in(agent, turns)
    for token in ("Costs ", "", "fell ", "by "):
        stream.write(token)
    assert (str(agent.state.draft), agent.updates(), len(turns.waiting)) == ("", 0, 1)
    turns.turn()
    assert (str(agent.state.draft), agent.updates()) == ("Costs fell by \n", 1)
    stream.write("12 k€")
    stream.flush()
    turns.turn()
    assert (str(agent.state.draft), agent.updates()) == ("Costs fell by 12 k€\n", 2)
    stream.close()
    stream.close()
    assert (str(agent.state.draft), agent.updates()) == ("Costs fell by 12 k€", 3)


def test_a_stream_keeps_its_own_end() -> None:
    """What others append, on this replica or another, comes behind the stream, not into it."""
    ann, bob = LiveAgent(Report, client_id=9), LiveAgent(Report, client_id=1)
    stream = stream_in(ann, Turns())
    stream.write("one ")
    stream.flush()
    exchange(ann, bob)
    bob.state.draft.append("Bob. ")
    ann.state.draft.append("Ann. ")
    ann.state.draft.insert(0, "Title: ")
    stream.write("two ")
    stream.flush()
    exchange(ann, bob)
    stream.write("three")
    stream.close()
    exchange(ann, bob)
    assert str(bob.state.draft) in ("Title: one two threeBob. Ann. ", "Title: one two threeAnn. Bob. ")


def test_a_stream_in_the_middle_adds_nothing_of_its_own() -> None:
    """Only at the end of the text a line end keeps others out; in the middle what is there does."""
    agent = LiveAgent(Report)
    agent.state.draft.append("Costs: . Risks: none.")
    stream = stream_in(agent, Turns(), 7)
    for token in ("12 ", "k€"):
        stream.write(token)
        stream.flush()
        assert "\n" not in agent.state.draft
    agent.state.draft.insert(0, "é")
    stream.write("!")
    stream.close()
    assert str(agent.state.draft) == "éCosts: 12 k€!. Risks: none."


@given(st.lists(st.sampled_from(["write", "append", "rollback", "delete"]), max_size=12))
def test_a_stream_goes_on_where_its_text_was(steps: list[str]) -> None:
    """When what it wrote is deleted or taken back it goes on in that place, and loses nothing of what comes after."""
    agent, count = LiveAgent(Report), 0
    stream = stream_in(agent, Turns())
    expected = ""
    for step in steps:
        if step == "write":
            count += 1
            stream.write(f"é{count} ")
            stream.flush()
            expected += f"é{count} "
        elif step == "append":
            agent.state.draft.append("x")
        elif step == "delete":
            start = str(agent.state.draft).index(expected)
            agent.state.draft.delete(start, start + len(expected))
            expected = ""
        else:
            with pytest.raises(ZeroDivisionError), agent.replica.transaction("agent"):  # noqa: PT012
                stream.write("gone")
                stream.flush()
                raise ZeroDivisionError
    stream.close()
    assert expected in str(agent.state.draft)
    assert str(agent.state.draft).replace(expected, "", 1) == "x" * steps.count("append")


def test_a_stream_is_taken_back_by_one_undo() -> None:
    """What one stream wrote is one step, when the handle edited nothing else meanwhile."""
    agent = LiveAgent(Report)
    history = agent.replica.new_history(10)
    agent.edit = lambda content=None, *, group=None: agent.replica.edit("agent", content, history=history, group=group)  # type: ignore[method-assign]
    agent.state.draft.append("before ")
    stream = stream_in(agent, Turns())
    for token in ("one ", "two ", "three"):
        stream.write(token)
        stream.flush()
    stream.close()
    assert agent.replica.undo("agent", history)
    assert str(agent.state.draft) == "before "
    assert agent.replica.redo("agent", history)
    assert str(agent.state.draft) == "before one two three"


class _Shut:
    """An editor of a board that was closed."""

    def __init__(self, inner: Editor) -> None:
        self.document = inner.document

    def edit(self, content: object = None, *, group: object = None) -> AbstractContextManager[None]:
        raise BoardClosed("closed")


def test_writing_to_a_closed_board_is_told() -> None:
    """When the board was closed at the end of a turn, where nobody looks, the next call raises it."""
    turns = Turns()
    stream = Stream(_Shut(LiveAgent(Report)), "draft", 0, turns.call_soon)
    stream.write("x")
    turns.turn()
    for call in (lambda: stream.write("y"), stream.flush, stream.close):
        with pytest.raises(BoardClosed):
            call()


async def test_a_stream_on_a_board_coalesces_and_closes() -> None:
    """Tokens that arrive without a pause are one update, and leaving the block leaves exactly what was written."""
    async with open_board(":memory:", "b", Report, agent="ann") as board:
        board.state.draft.append("Draft: ")
        await board.flush()
        async with board.state.draft.edit_stream() as stream:
            for number in range(1000):
                stream.write(f"{number} ")
            await asyncio.sleep(0)
            assert board.unacknowledged == 1
            stream.write("end")
        assert board.state.draft == "Draft: " + "".join(f"{number} " for number in range(1000)) + "end"
        with pytest.raises(BadRequest):
            stream.write("late")


async def test_a_cancelled_stream_leaves_the_text_so_far() -> None:
    """Cancelled or failed, what was written stays, also what was waiting for the end of the turn."""
    async with open_board(":memory:", "b", Report, agent="ann") as board:
        writing = asyncio.Event()

        async def work() -> None:
            async with board.state.draft.edit_stream() as stream:
                stream.write("one ")
                await asyncio.sleep(0)
                stream.write("two")
                writing.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await writing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert board.state.draft == "one two"
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with board.state.draft.edit_stream(0) as stream:
                stream.write("zero ")
                raise ZeroDivisionError
        assert board.state.draft == "zero one two"


async def test_a_stream_in_a_record_and_at_an_index() -> None:
    """A text in a record takes streams too, also before it is there; a negative index counts from the end."""
    async with open_board(":memory:", "b", Report, agent="ann") as board:
        async with board.state.findings["f"].notes.edit_stream() as stream:
            stream.write("größ")
            await asyncio.sleep(0)
            stream.write("e!")
        async with board.state.findings["f"].notes.edit_stream(-1) as stream:
            stream.write(" 🚢")
        assert board.state.findings["f"].notes == "größe 🚢!"


async def test_tokens_are_checked_as_other_texts_are() -> None:
    """Something that is no text, or a lone surrogate, is refused at its own write and spoils nothing."""
    async with open_board(":memory:", "b", Report, agent="ann") as board:
        async with board.state.draft.edit_stream() as stream:
            stream.write("a")
            for bad in ("\ud800", 5, None):
                with pytest.raises(InvalidValue):
                    stream.write(bad)  # type: ignore[arg-type]
            stream.write("b")
        assert board.state.draft == "ab"
