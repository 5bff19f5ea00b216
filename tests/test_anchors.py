"""Marks that follow their text."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from crdt_board import Anchor, BoardModel, InvalidValue, Text
from support.agents import LiveAgent, exchange


class Finding(BoardModel):
    notes: Text


class Report(BoardModel):
    draft: Text
    other: Text
    comments: dict[str, str]
    findings: dict[str, Finding]


def agents(*ids: int) -> list[LiveAgent]:
    return [LiveAgent(Report, client_id=client_id) for client_id in ids]


# Every character is there once: so what became of each is known from the text alone.
FRESH = [character for group in zip(range(0x61, 0x7B), range(0x4E00, 0x4E1A), range(0x1F300, 0x1F31A), strict=True)
         for character in map(chr, group)] + [chr(code) for code in range(0x3B1, 0x400)]  # fmt: skip
EDITS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1000), st.integers(0, 4), st.integers(0, 3)), max_size=12)
Edits = list[tuple[int, int, int, int]]


def edit(pair: list[LiveAgent], edits: Edits, fresh: itertools.chain[str]) -> None:
    for who, place, removed, inserted in edits:
        draft = pair[who].state.draft
        start = place % (len(draft) + 1)
        draft.delete(start, start + removed)
        draft.insert(start, "".join(itertools.islice(fresh, inserted)))
        if place % 3 == 0:
            exchange(*pair)
    exchange(*pair)


@settings(max_examples=300)
@given(EDITS, EDITS, st.integers(0, 1000), st.integers(1, 5))
def test_a_stretch_follows_its_text_on_every_replica(before: Edits, after: Edits, start: int, length: int) -> None:
    """M9. It begins at its first character and ends at its last as long as they are there, and holds what is left."""
    pair, fresh = agents(1, 2**53 - 1), itertools.chain(FRESH)
    pair[0].state.draft.append("".join(itertools.islice(fresh, 6)))
    edit(pair, before, fresh)
    text = str(pair[0].state.draft)
    if not text:
        return
    start %= len(text)
    quoted = text[start : start + length]
    anchor = pair[0].state.draft.anchor(quoted)
    copy = pair[1].state.draft.anchor_from(str(anchor))
    assert (copy.start, copy.stop, copy.quote) == (start, start + len(quoted), quoted)
    edit(pair, after, fresh)
    now = str(pair[0].state.draft)
    assert (anchor.start, anchor.stop, anchor.quote) == (copy.start, copy.stop, copy.quote)
    assert 0 <= anchor.start <= anchor.stop <= len(now)
    assert anchor.quote == now[anchor.start : anchor.stop]
    assert {character for character in quoted if character in now} <= set(anchor.quote)
    if quoted[0] in now:
        assert anchor.start == now.index(quoted[0])
    if quoted[-1] in now:
        assert anchor.stop == now.index(quoted[-1]) + 1
    assert anchor.gone == (not anchor.quote)


@settings(max_examples=200)
@given(EDITS, EDITS, st.integers(0, 1000))
def test_a_place_stays_beside_its_character(before: Edits, after: Edits, place: int) -> None:
    """M9. In front of the character after it, or behind the one before it; at the ends it is the end."""
    pair, fresh = agents(1, 2**32), itertools.chain(FRESH)
    edit(pair, before, fresh)
    text = str(pair[0].state.draft)
    place %= len(text) + 1
    follows, stays = (pair[0].state.draft.anchor(place, side=side) for side in ("after", "before"))
    assert (follows.index, stays.index, follows.stop, follows.quote, follows.gone) == (place, place, place, "", False)
    edit(pair, after, fresh)
    now = str(pair[1].state.draft)
    copies = [pair[1].state.draft.anchor_from(str(anchor)) for anchor in (follows, stays)]
    assert [anchor.index for anchor in copies] == [follows.index, stays.index]
    if place == len(text):
        assert follows.index == len(now)
    elif text[place] in now:
        assert follows.index == now.index(text[place])
    if place == 0:
        assert stays.index == 0
    elif text[place - 1] in now:
        assert stays.index == now.index(text[place - 1]) + 1


@given(EDITS, EDITS, st.integers(0, 1000), st.integers(1, 5))
def test_taking_back_edits_never_breaks_an_anchor(before: Edits, after: Edits, start: int, length: int) -> None:
    """Around undo and redo an anchor stays within its text."""
    pair, fresh = agents(1, 2), itertools.chain(FRESH)
    history = pair[0].replica.new_history(100)

    def edit_with_history(content: JsonValue = None, *, group: object = None) -> AbstractContextManager[None]:
        return pair[0].replica.edit("agent", content, history=history, group=group)

    pair[0].edit = edit_with_history  # type: ignore[method-assign]
    pair[0].state.draft.append("aé😀z")
    edit(pair, before, fresh)
    text = str(pair[0].state.draft)
    if not text:
        return
    start %= len(text)
    anchor = pair[0].state.draft.anchor(start, start + length)
    edit(pair, after, fresh)
    for step in ("undo", "undo", "redo", "undo", "undo", "redo"):
        getattr(pair[0].replica, step)("agent", history)
        now = str(pair[0].state.draft)
        assert 0 <= anchor.start <= anchor.stop <= len(now)
        assert anchor.quote == now[anchor.start : anchor.stop]


def test_what_is_written_inside_belongs_to_a_stretch_and_at_its_edges_not() -> None:
    """A stretch grows by what is inserted in it and stays as it is beside what is inserted around it."""
    (agent,) = agents(1)
    agent.state.draft.append("Costs fell by a third.")
    anchor = agent.state.draft.anchor("by a third")
    agent.state.draft.replace("a third", "about a third")
    agent.state.draft.insert(anchor.start, "[")
    agent.state.draft.insert(anchor.stop, "]")
    assert str(agent.state.draft) == "Costs fell [by about a third]."
    assert anchor.quote == "by about a third"


def test_a_stretch_whose_text_is_deleted_is_a_place_where_it_was() -> None:
    """It shrinks with its text; when nothing is left it is gone, stays where the text was, and does not come back."""
    (agent,) = agents(1)
    draft = agent.state.draft
    draft.append("größe 🚢 über alles")
    anchor = draft.anchor("🚢 über")
    draft.delete(6, 8)
    assert (anchor.quote, anchor.gone) == ("über", False)
    draft.replace("über", "")
    assert (anchor.start, anchor.stop, anchor.quote, anchor.gone) == (6, 6, "", True)
    draft.insert(0, "🚢 ")
    assert (anchor.start, anchor.gone) == (8, True)
    draft.insert(8, "über")
    assert anchor.gone
    draft.apply("")
    assert (anchor.start, anchor.stop) == (0, 0)


def test_an_anchor_is_a_short_text_that_can_be_kept_on_the_board() -> None:
    """Written into another field it is found again by everybody, equal to the one that was written."""
    ann, bob = agents(1, 2)
    ann.state.draft.append("Costs fell by a third.")
    anchor = ann.state.draft.anchor(6, 10)
    ann.state.comments[str(anchor)] = "who says so?"
    assert len(str(anchor)) < 50
    ann.state.draft.insert(0, "Summary: ")
    exchange(ann, bob)
    ((written, _),) = bob.state.comments.items()
    found = bob.state.draft.anchor_from(written)
    assert isinstance(found, Anchor)
    assert (found.quote, found == anchor, hash(found) == hash(anchor)) == ("fell", True, True)
    assert found != bob.state.draft.anchor(0)
    assert bob.state.draft.anchor(0) < found
    assert repr(found) == "<Anchor draft[15:19]>"


def test_anchors_in_a_record_end_with_it() -> None:
    """In a text of a record they follow it; when the record is deleted, or made again, they are gone."""
    ann, bob = agents(1, 2)
    ann.state.findings["f"].notes.append("größe matters")
    anchor = ann.state.findings["f"].notes.anchor("matters")
    exchange(ann, bob)
    copy = bob.state.findings["f"].notes.anchor_from(str(anchor))
    bob.state.findings["f"].notes.insert(0, "🚢 ")
    assert copy.quote == "matters"
    del bob.state.findings["f"]
    assert (copy.start, copy.stop, copy.quote, copy.gone) == (0, 0, "", True)
    bob.state.findings["f"].notes.append("something else")
    assert (copy.start, copy.quote, copy.gone) == (0, "", True)
    exchange(ann, bob)
    assert (anchor.start, anchor.quote, anchor.gone) == (0, "", True)
    assert ann.state.findings["f"].notes.anchor_from(str(anchor)).gone


def test_an_empty_text_has_places_at_its_ends() -> None:
    """The end moves with what is written, the beginning does not; also in a text that is not there yet."""
    (agent,) = agents(1)
    for text in (agent.state.draft, agent.state.findings["f"].notes):
        end, beginning = text.anchor(0), text.anchor(0, side="before")
        text.append("größe")
        assert (beginning.index, end.index) == (0, 5)
        assert [text.anchor_from(str(each)).index for each in (beginning, end)] == [0, 5]


def test_indexes_are_those_of_slices() -> None:
    """Negative indexes count from the end, and beyond the ends is at the ends."""
    (agent,) = agents(1)
    draft = agent.state.draft
    draft.append("größe")
    assert draft.anchor(-2, 100).quote == "ße"
    assert [draft.anchor(index).index for index in (-100, -1, 100)] == [0, 4, 5]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "draft",
        "draft@",
        "draft@!",
        "other@^",
        "@^",
        "draft@^:!",
        "draft@AAEFAA==",
        "draft@AAEFAA==:$",
        "x" * 9999,
        7,
    ],
)
def test_what_is_no_anchor_of_this_text_is_refused(written: object) -> None:
    """Anything else, an anchor of another text, or one at characters that have not arrived raises InvalidValue."""
    (agent,) = agents(1)
    agent.state.draft.append("abc")
    with pytest.raises(InvalidValue):
        agent.state.draft.anchor_from(written)


def test_an_anchor_cannot_be_set_at_what_is_not_there() -> None:
    """A quote that is missing or there twice, and an empty slice, raise InvalidValue, as `replace` does."""
    (agent,) = agents(1)
    agent.state.draft.append("one two two")
    with pytest.raises(InvalidValue) as missing:
        agent.state.draft.anchor("onne two")
    assert missing.value.nearest == "one two"
    for bad in (("two",), ("",), (3, 3), (5, 2)):
        with pytest.raises(InvalidValue):
            agent.state.draft.anchor(*bad)


def test_an_anchor_at_characters_on_their_way_is_refused_until_they_arrive() -> None:
    """An anchor that came faster than the text it is in raises InvalidValue, and works afterwards."""
    ann, bob = agents(1, 2)
    ann.state.draft.append("new")
    written = str(ann.state.draft.anchor("new"))
    with pytest.raises(InvalidValue):
        bob.state.draft.anchor_from(written)
    with pytest.raises(InvalidValue):
        bob.state.findings["f"].notes.anchor_from(written.replace("draft", "findings/f/notes"))
    exchange(ann, bob)
    assert bob.state.draft.anchor_from(written).quote == "new"


def test_values_that_were_read_have_no_anchors() -> None:
    """A text of a snapshot says that anchors and streams are for the live one."""
    (agent,) = agents(1)
    taken = agent.snapshot().draft
    for call in (lambda: taken.anchor(0), lambda: taken.anchor_from("draft@^"), taken.edit_stream):
        with pytest.raises(TypeError, match=r"board\.state"):
            call()
