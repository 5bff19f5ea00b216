"""A replica by itself: what it owes, what it takes in, and that replicas which exchange everything end up equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from crdt_board.document import Document
from crdt_board.errors import LimitExceeded, MalformedUpdate
from crdt_board.replica import Change, Replica
from crdt_board.schema import BoardModel, Counter, Text
from crdt_board.text_index import TextIndex
from support.agents import LiveAgent, exchange


class Notes(BoardModel):
    title: str = ""
    draft: Text
    plan: list[str]
    tags: set[str]
    scores: dict[str, JsonValue]
    spent: Counter


LAYOUT = Notes.board_layout()


def write(replica: Replica, text: str, agent: str = "ann") -> None:
    with replica.edit(agent):
        draft = replica.document.text("draft")
        draft.insert(len(draft), text)


def updates_of(replica: Replica) -> list[bytes]:
    return [item.update for item in replica.pending]


def foreign(text: str) -> bytes:
    """What another client that knows nothing of the replica wrote."""
    document = Document(LAYOUT)
    return document.capture(lambda: document.text("draft").insert(0, text))


def watch(replica: Replica) -> list[Change]:
    seen: list[Change] = []
    replica.watchers.append(seen.extend)
    return seen


def text_of(replica: Replica) -> str:
    return str(replica.document.text("draft"))


# What it owes


def test_local_updates_are_numbered_from_one_without_gaps() -> None:
    """Each local change is one pending update with the next number and its agent."""
    replica = Replica(LAYOUT)
    for number, agent in enumerate(["ann", "bob", "ann"]):
        write(replica, str(number), agent)
    assert [(item.number, item.agent) for item in replica.pending] == [(1, "ann"), (2, "bob"), (3, "ann")]
    assert replica.last_number == 3


def test_pending_updates_rebuild_the_document() -> None:
    """The pending updates, applied in order elsewhere, give the same content."""
    replica, other = Replica(LAYOUT), Replica(LAYOUT)
    for word in ("größe ", "🚢 ", "x"):
        write(replica, word)
    other.receive(updates_of(replica), agent="ann", seq=1)
    assert text_of(other) == text_of(replica) == "größe 🚢 x"


def test_acknowledge_forgets_up_to_its_number() -> None:
    """Acknowledging is cumulative; a repeated or older one changes nothing, and numbers go on."""
    replica = Replica(LAYOUT)
    for number in range(4):
        write(replica, str(number))
    for acknowledged, left in ((2, [3, 4]), (1, [3, 4]), (2, [3, 4]), (4, [])):
        replica.acknowledge(acknowledged)
        assert [item.number for item in replica.pending] == left
    assert replica.acknowledged == 4
    write(replica, "x")
    assert [item.number for item in replica.pending] == [5]


def test_pending_after_gives_the_rest() -> None:
    """``pending_after`` gives exactly the pending updates with a greater number."""
    replica = Replica(LAYOUT)
    assert replica.pending_after(0) == []
    for number in range(6):
        write(replica, str(number))
    replica.acknowledge(2)
    for number in range(8):
        after = [item.number for item in replica.pending_after(number)]
        assert after == [item.number for item in replica.pending if item.number > number]


def test_a_change_of_nothing_owes_nothing() -> None:
    """An edit or transaction in which nothing was written makes no update and tells nobody."""
    replica = Replica(LAYOUT)
    seen = watch(replica)
    with replica.edit("ann"):
        pass
    with replica.transaction("ann"), replica.edit("ann"):
        pass
    assert (replica.last_number, list(replica.pending), seen) == (0, [], [])


def test_somebody_is_told_of_pending_and_of_progress() -> None:
    """``on_pending`` follows each local update, ``on_progress`` each acknowledgement, entry and version."""
    replica = Replica(LAYOUT)
    told: list[str] = []
    replica.on_pending = lambda: told.append(f"pending {replica.last_number}")
    replica.on_progress = lambda: told.append(f"{replica.acknowledged} {replica.seq} {replica.version}")
    write(replica, "x")
    replica.acknowledge(1)
    replica.receive([foreign("y")], agent="bob", seq=2)
    replica.reached(version=1)
    replica.reached(seq=1, version=0)
    assert told == ["pending 1", "1 0 0", "1 2 0", "1 2 1", "1 2 1"]


# What it takes in


def test_what_others_wrote_is_not_owed() -> None:
    """A remote update becomes content, moves ``seq``, and is never pending."""
    replica = Replica(LAYOUT)
    replica.receive([foreign("x")], agent="bob", seq=7)
    assert (text_of(replica), list(replica.pending), replica.seq) == ("x", [], 7)


def test_a_difference_moves_no_seq() -> None:
    """A difference without a journal entry is content only."""
    replica = Replica(LAYOUT)
    replica.receive([foreign("x")], agent=None, seq=None)
    assert (text_of(replica), replica.seq) == ("x", 0)


def test_what_arrives_inside_a_transaction_comes_after_it() -> None:
    """Remote updates that arrive while a transaction is open are applied in order after it, and are not owed."""
    replica = Replica(LAYOUT)
    seen = watch(replica)
    with replica.transaction("ann"):
        write(replica, "mine")
        replica.receive([foreign("1")], agent="bob", seq=1)
        replica.receive([foreign("2")], agent="eva", seq=2)
        assert (text_of(replica), replica.seq, seen) == ("mine", 0, [])
    assert sorted(text_of(replica)) == sorted("mine12")
    assert replica.seq == 2
    assert [(change.agent, change.local, change.seq) for change in seen] == [
        ("ann", True, None),
        ("bob", False, 1),
        ("eva", False, 2),
    ]
    (item,) = replica.pending
    other = Replica(LAYOUT)
    other.receive([item.update], agent="ann", seq=1)
    assert text_of(other) == "mine"


def test_what_arrives_inside_a_transaction_that_fails_still_comes() -> None:
    """Taking a transaction back does not lose what others wrote meanwhile."""
    replica = Replica(LAYOUT)

    def fails() -> None:
        with replica.transaction("ann"):
            write(replica, "mine")
            replica.receive([foreign("theirs")], agent="bob", seq=1)
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert (text_of(replica), replica.seq) == ("theirs", 1)


def test_duplicates_and_any_order_change_nothing() -> None:
    """Updates that come twice, or before those they build on, give the same content."""
    one, two = Replica(LAYOUT), Replica(LAYOUT)
    for word in "abc":
        write(one, word)
    first, second, third = updates_of(one)
    for updates in ([third], [first, first], [third], [second], [second, third, first]):
        two.receive(updates, agent="ann", seq=None)
    assert text_of(two) == "abc"


def test_bytes_that_are_no_update_are_refused() -> None:
    """Malformed bytes raise, and the replica goes on capturing local edits."""
    replica = Replica(LAYOUT)
    with pytest.raises(MalformedUpdate):
        replica.receive([b"\x01\x01garbage"], agent="bob", seq=1)
    write(replica, "x")
    assert (replica.last_number, text_of(replica)) == (1, "x")


# Transactions


def test_a_transaction_is_one_update_of_its_outermost_agent() -> None:
    """Edits and inner transactions join the open one."""
    replica = Replica(LAYOUT)
    with replica.transaction("ann"):
        write(replica, "a", "bob")
        with replica.transaction("eva"):
            write(replica, "b")
        write(replica, "c")
    assert [(item.number, item.agent) for item in replica.pending] == [(1, "ann")]
    assert text_of(replica) == "abc"


def test_an_exception_takes_everything_back() -> None:
    """After a failed transaction the content is as before, here and wherever its update arrives."""
    agent, other = LiveAgent(Notes), LiveAgent(Notes)
    agent.state.draft.append("größe")
    agent.state.plan.extend(["a", "b"])
    before = agent.snapshot()

    def fails() -> None:
        with agent.replica.transaction("ann"):
            agent.state.draft.delete(1, 3)
            agent.state.plan.clear()
            agent.state.title = "x"
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert agent.snapshot() == before
    other.replica.receive(updates_of(agent.replica), agent="ann", seq=1)
    assert other.snapshot() == before


def test_edits_after_a_failed_transaction_are_separate() -> None:
    """The replica goes on normally after taking a transaction back."""
    agent = LiveAgent(Notes)

    def fails() -> None:
        with agent.replica.transaction("ann"):
            agent.state.draft.append("ü")
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    numbered = agent.replica.last_number
    agent.state.draft.append("é1")
    agent.state.draft.insert(1, "x")
    assert (str(agent.state.draft), agent.replica.last_number) == ("éx1", numbered + 2)


# Changes that are too large

BYTES_MAX = 1000
LARGE = "ü" * BYTES_MAX


def small_agent() -> LiveAgent:
    agent = LiveAgent(Notes)
    agent.replica.update_bytes_max = BYTES_MAX
    agent.state.draft.append("kept")
    agent.state.scores["a"] = "kept"
    agent.state.tags.add("kept")
    return agent


def assert_no_trace(agent: LiveAgent, before: Any, numbered: int) -> None:
    """The content is as before, what is owed is small, and the replica goes on the same as others."""
    assert agent.snapshot() == before
    assert sum(map(len, updates_of(agent.replica)[numbered:])) <= BYTES_MAX
    agent.state.draft.insert(0, "and on ")
    agent.state.scores["b"] = 1
    other = LiveAgent(Notes)
    other.replica.receive(updates_of(agent.replica), agent="ann", seq=1)
    assert other.snapshot() == agent.snapshot()
    assert (str(agent.state.draft), agent.state.scores) == ("and on kept", {"a": "kept", "b": 1})


def test_a_transaction_that_is_too_large_is_taken_back() -> None:
    """An update beyond the limit is refused where it is made, and leaves nothing large behind."""
    agent = small_agent()
    before, numbered = agent.snapshot(), agent.replica.last_number

    def writes() -> None:
        with agent.replica.transaction("ann"):
            agent.state.draft.apply(LARGE)
            agent.state.scores["a"] = LARGE
            agent.state.plan.extend([LARGE, LARGE])

    with pytest.raises(LimitExceeded, match="larger than the 1000") as refused:
        writes()
    assert (refused.value.limit, refused.value.maximum) == ("update_bytes_max", BYTES_MAX)
    assert_no_trace(agent, before, numbered)


def test_a_failed_transaction_does_not_owe_its_content() -> None:
    """What was large in a transaction that failed is not sent to anybody."""
    agent = small_agent()
    before, numbered = agent.snapshot(), agent.replica.last_number

    def fails() -> None:
        with agent.replica.transaction("ann"):
            agent.state.draft.append(LARGE)
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    assert_no_trace(agent, before, numbered)


@pytest.mark.parametrize("content", [LARGE, [LARGE], {"a": {"b": LARGE}}, {LARGE: 1}])
def test_one_change_that_says_what_it_writes_is_taken_back(content: JsonValue) -> None:
    """A single change beyond the limit is refused and taken back when it told what it writes."""
    agent = small_agent()
    before, numbered = agent.snapshot(), agent.replica.last_number

    def writes() -> None:
        with agent.replica.edit("ann", content):
            agent.document.map("scores")["a"] = content

    with pytest.raises(LimitExceeded):
        writes()
    assert_no_trace(agent, before, numbered)


def test_keys_that_are_too_large_are_refused_before_they_are_written() -> None:
    """Keys, which stay when their values are taken back, are refused at once, in a transaction too."""
    agent = small_agent()
    before, numbered = agent.snapshot(), agent.replica.last_number
    keys: dict[str, JsonValue] = {f"key {number}": 1 for number in range(100)}

    def writes() -> None:
        with agent.replica.edit("ann", keys):
            agent.document.map("scores").update(keys)

    def writes_in_a_transaction() -> None:
        with agent.replica.transaction("ann"):
            writes()

    for refused in (writes, writes_in_a_transaction):
        with pytest.raises(LimitExceeded):
            refused()
    assert agent.replica.last_number == numbered
    assert_no_trace(agent, before, numbered)


def test_a_change_up_to_the_limit_is_made() -> None:
    """A change that might have been too large, and is not, is made."""
    agent = small_agent()
    text = "x" * (BYTES_MAX - 100)
    with agent.replica.edit("ann", text):
        agent.document.map("scores")["a"] = text
    assert agent.state.scores["a"] == text


# Who is told


def test_changes_name_path_agent_and_entry() -> None:
    """Watchers hear of each local transaction and each arrival, with the paths that it touched."""
    replica = Replica(LAYOUT)
    seen = watch(replica)
    with replica.edit("ann"):
        replica.document.state_map["title"] = "x"
        replica.document.map("scores")["a/b"] = 1.0
    replica.receive([foreign("x")], agent="bob", seq=3)
    replica.receive([foreign("y")], agent=None, seq=None)
    assert seen == [
        Change("scores/a~1b", "ann", True),
        Change("title", "ann", True),
        Change("draft", "bob", False, 3),
        Change("draft", None, False),
    ]


def test_a_watcher_may_leave_while_it_is_told() -> None:
    """A watcher that removes itself does not keep the others from hearing."""
    replica = Replica(LAYOUT)
    heard: list[str] = []

    def once(_changes: Sequence[Change]) -> None:
        heard.append("once")
        replica.watchers.remove(once)

    replica.watchers.append(once)
    replica.watchers.append(lambda _changes: heard.append("always"))
    write(replica, "x")
    write(replica, "y")
    assert heard == ["once", "always", "always"]


# Many replicas

TEXTS = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["a", "é", "🚢", "e\u0301", "👩‍👩‍👧", "\u2028", "plain ascii"]),
)
KEYS = st.sampled_from(["a", "b/c", "~", "ü", "🚢", ""])
Edit = tuple[str, int, int, str, str]
EDITS = st.tuples(
    st.sampled_from(
        ["insert", "delete", "append", "push", "pop", "tag", "untag", "score", "unscore", "spend", "title"]
    ),
    st.integers(0, 50),
    st.integers(0, 50),
    TEXTS,
    KEYS,
)
CHANGES: dict[str, Callable[[Any, int, int, str, str], object]] = {
    "insert": lambda s, i, _j, text, _k: s.draft.insert(i % (len(s.draft) + 1), text),
    "delete": lambda s, i, j, _t, _k: s.draft.delete(i % (len(s.draft) + 1), i % (len(s.draft) + 1) + j % 5),
    "append": lambda s, _i, _j, text, _k: s.draft.append(text),
    "push": lambda s, i, _j, text, _k: s.plan.insert(i % (len(s.plan) + 1), text),
    "pop": lambda s, i, _j, _t, _k: s.plan and s.plan.pop(i % len(s.plan)),
    "tag": lambda s, _i, _j, text, _k: s.tags.add(text),
    "untag": lambda s, _i, _j, text, _k: s.tags.discard(text),
    "score": lambda s, i, _j, text, key: s.scores.__setitem__(key, {"n": i, "t": [text]}),
    "unscore": lambda s, _i, _j, _t, key: s.scores.pop(key, None),
    "spend": lambda s, i, j, _t, _k: s.spent.__iadd__(i - j),
    "title": lambda s, _i, _j, text, _k: setattr(s, "title", text),
}


@dataclass
class Network:
    """Replicas that get each other's updates: those of one sender in their order, as from a board's writer."""

    agents: list[LiveAgent]
    given: dict[tuple[int, int], int] = field(default_factory=dict)
    """How many of a sender's updates a receiver was given, by receiver and sender."""

    def edit(self, who: int, edit: Edit) -> None:
        name, *arguments = edit
        CHANGES[name](self.agents[who].state, *arguments)  # type: ignore[arg-type]
        self.check_text(who)

    def deliver(self, receiver: int, sender: int, again: int) -> None:
        """The next update of ``sender``, and its last ``again`` ones once more before it."""
        done = self.given.get((receiver, sender), 0)
        batch = updates_of(self.agents[sender].replica)[max(0, done - again) : done + 1]
        if receiver != sender and batch:
            self.given[receiver, sender] = min(done + 1, len(self.agents[sender].replica.pending))
            self.agents[receiver].replica.receive(batch, agent="other", seq=None)
            self.check_text(receiver)

    def deliver_all(self) -> None:
        for receiver in range(len(self.agents)):
            for sender in reversed(range(len(self.agents))):
                for _ in self.agents[sender].replica.pending:
                    self.deliver(receiver, sender, 0)

    def run(self, steps: list[tuple[str, int, Any]]) -> None:
        count = len(self.agents)
        for kind, who, content in steps:
            if kind == "edit":
                self.edit(who % count, content)
            else:
                self.deliver(who % count, content[0] % count, content[1])
        self.deliver_all()

    def check_text(self, who: int) -> None:
        """The offsets that edits go by are those of the text that is there."""
        document = self.agents[who].document
        text = str(document.text("draft"))
        index, fresh = document.text_index("draft"), TextIndex(text)
        assert (index.chars, index.bytes) == (fresh.chars, fresh.bytes)
        assert [index.to_byte(at) for at in range(len(text) + 1)] == [fresh.to_byte(at) for at in range(len(text) + 1)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("edit"), st.integers(0, 2), EDITS),
        st.tuples(st.just("deliver"), st.integers(0, 2), st.tuples(st.integers(0, 2), st.integers(0, 3))),
    ),
    max_size=40,
)


@given(st.integers(2, 3), STEPS)
def test_replicas_that_hold_the_same_updates_are_equal(count: int, steps: list[tuple[str, int, Any]]) -> None:
    """M9: edits of every kind, senders' updates interleaved in any way and given again, end in equal content."""
    network = Network([LiveAgent(Notes) for _ in range(count)])
    network.run(steps)
    first, *others = network.agents
    for other in others:
        assert other.snapshot() == first.snapshot()
        assert other.document.checksum() == first.document.checksum()


@given(STEPS)
def test_a_replica_that_comes_later_is_equal(steps: list[tuple[str, int, Any]]) -> None:
    """M9: a difference to an empty state vector gives a newcomer the same content, and its own edits merge."""
    network = Network([LiveAgent(Notes) for _ in range(3)])
    network.run(steps)
    late = LiveAgent(Notes)
    late.state.draft.append("ü")
    exchange(late, network.agents[0])
    assert late.snapshot() == network.agents[0].snapshot()
    assert late.document.checksum() == network.agents[0].document.checksum()


@given(st.lists(st.tuples(EDITS, st.booleans()), max_size=15))
def test_a_failed_transaction_leaves_no_trace_in_any_replica(edits: list[tuple[Edit, bool]]) -> None:
    """Transactions that fail in between change nothing anywhere, whatever they did."""
    one, two = LiveAgent(Notes), LiveAgent(Notes)
    network = Network([one, two])
    for edit, fails in edits:
        before = one.snapshot()
        try:
            with one.replica.transaction("ann"):
                network.edit(0, edit)
                if fails:
                    raise LookupError
        except LookupError:
            assert one.snapshot() == before
        network.check_text(0)
    network.deliver_all()
    assert two.snapshot() == one.snapshot()
