"""Many edits of texts in one transaction: the same as one by one, whatever is read in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crdt_board import BoardModel, Text
from crdt_board.live import LiveState
from crdt_board.replica import Replica
from support.snapshots import snapshot


class Two(BoardModel):
    one: Text
    two: Text


class Agent:
    """A replica and one agent's editor on it."""

    def __init__(self) -> None:
        self.replica = Replica(Two.board_layout())
        self.document = self.replica.document
        self.state = LiveState(Two, self)

    def edit(self, content=None):
        return self.replica.edit("agent", content)


class _TakenBackError(Exception):
    pass


LETTERS = st.text("aé漢😀", max_size=4)


@given(st.data())
def test_edits_in_a_transaction_are_edits_one_by_one(data: st.DataObject) -> None:
    """After each transaction, and at each look in between, the texts are what plain strings edited alike would be."""
    agent, other = Agent(), Replica(Two.board_layout())
    plain = {"one": "", "two": ""}
    for _ in range(data.draw(st.integers(1, 5))):
        before = dict(plain)
        taken_back = data.draw(st.booleans())
        try:
            with agent.replica.transaction("agent"):
                for _ in range(data.draw(st.integers(0, 8))):
                    _edit(agent, plain, data)
                if taken_back:
                    raise _TakenBackError
        except _TakenBackError:
            plain = before
        assert snapshot(agent.document, Two).model_dump() == plain
    for pending in agent.replica.pending:
        other.receive([pending.update], agent="agent", seq=None)
    assert snapshot(other.document, Two).model_dump() == plain


def _edit(agent: Agent, plain: dict[str, str], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(["one", "one", "one", "two"]))
    text, old = getattr(agent.state, field), plain[field]
    start = data.draw(st.integers(0, len(old)))
    if data.draw(st.booleans()):
        inserted = data.draw(LETTERS)
        text.insert(start, inserted)
        plain[field] = old[:start] + inserted + old[start:]
    else:
        stop = data.draw(st.integers(start, len(old)))
        text.delete(start, stop)
        plain[field] = old[:start] + old[stop:]
    assert len(text) == len(plain[field])
    if data.draw(st.integers(0, 3)) == 0:
        assert str(text) == plain[field]
