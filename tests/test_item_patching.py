"""Patches of a commit on lists of records: by which operations, and what becomes of what others did meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from crdt_board.checkpoints import DropKey, Increment, InsertItem, MoveItem, PatchOp, SetValue
from crdt_board.document import Document
from crdt_board.errors import InvalidValue
from crdt_board.item_matching import items_to_move, match_items
from crdt_board.operations import apply_patch
from crdt_board.patching import build_patch
from crdt_board.schema import BoardModel, Counter, Text
from support.agents import LiveAgent, exchange
from support.snapshots import snapshot

OPERATIONS: TypeAdapter[list[PatchOp]] = TypeAdapter(list[PatchOp])


class Step(BoardModel):
    what: str = ""


class Section(BoardModel):
    title: str = ""
    body: Text
    hits: Counter
    steps: list[Step]


class Report(BoardModel):
    sections: list[Section]
    chapters: dict[str, Section]


def titled(*titles: str) -> list[Section]:
    return [Section(title=title) for title in titles]


def board(*titles: str) -> tuple[LiveAgent, LiveAgent, Document]:
    """Two replicas and the writer's document, which hold these sections."""
    one, two, writer = LiveAgent(Report), LiveAgent(Report), Document(Report.board_layout())
    one.state.sections = titled(*titles)
    exchange(one, two)
    writer.apply_or_raise([one.document.encode()])
    return one, two, writer


def commit(agent: LiveAgent, writer: Document, patch: Any) -> list[PatchOp]:
    """Build the patch at a replica, and apply it at the writer, which may be ahead."""
    operations, _ = build_patch(agent.document, Report, patch)
    received = OPERATIONS.validate_json(OPERATIONS.dump_json(operations))
    writer.capture(lambda: apply_patch(writer, received))
    return operations


def titles(writer: Document) -> str:
    return "".join(section.title for section in snapshot(writer, Report).sections)


def test_a_list_that_did_not_change_makes_no_operation() -> None:
    """M1: a patch with what is there, from a snapshot or from scratch, is empty, and so is an unchanged copy."""
    one, _, writer = board(*"aba")
    for same in ({"sections": one.snapshot().sections}, {"sections": titled(*"aba")}, one.snapshot()):
        assert commit(one, writer, same) == []


def test_a_patch_names_items_not_indexes() -> None:
    """Items are inserted and moved behind others, dropped and edited field by field, by their ids."""
    one, _, writer = board(*"abcd")
    a, b, _, d = one.snapshot().sections
    ids, place = one.state.sections.ids, one.document.items("sections").place_of(one.state.sections.ids[3])
    changed = b.model_copy(update={"title": "B", "hits": Counter(2)})
    operations = commit(one, writer, {"sections": [d, Section(title="n"), a, changed]})
    assert titles(writer) == "dnaB"
    new = snapshot(writer, Report).sections[1]._board_base.item
    assert new not in ids
    assert operations == [
        DropKey(field="sections", key=ids[2]),
        MoveItem(field="sections", key=ids[3]),
        InsertItem(
            field="sections",
            key=str(new),
            after=ids[3],
            after_place=place,
            value={"title": "n", "body": "", "hits": 0, "steps": []},
        ),
        SetValue(field=f"sections/{ids[1]}/title", value="B"),
        Increment(field=f"sections/{ids[1]}/hits", amount=2),
    ]


def test_whole_lists_of_two_agents_both_land() -> None:
    """M1: two agents hand in the whole list, each with another item or field changed: both changes are there."""
    one, two, writer = board(*"abc")
    for agent, change in ((one, {"title": "A"}), (two, {"body": Text("by two")})):
        first, second, third = agent.snapshot().sections
        edited = third.model_copy(update={"title": "C"}) if agent is two else third
        commit(agent, writer, {"sections": [first.model_copy(update=change), second, edited]})
    assert snapshot(writer, Report).sections == [
        Section(title="A", body=Text("by two")), Section(title="b"), Section(title="C"),
    ]  # fmt: skip


def test_lists_written_from_scratch_by_two_agents_both_land() -> None:
    """M1: without identities an item that was changed is the one that stood there, and is edited by field."""
    one, two, writer = board(*"abc")
    commit(one, writer, {"sections": [{"title": "A"}, *titled(*"bc")]})
    commit(two, writer, {"sections": [*titled(*"ab"), {"title": "C", "body": "text"}, {"title": "d"}]})
    assert titles(writer) == "AbCd"


def test_a_copy_of_a_snapshot_leaves_what_others_did_alone() -> None:
    """A changed copy stands for its difference: items that others inserted, moved, edited or deleted stay so."""
    one, two, writer = board(*"abcde")
    taken = one.snapshot()
    a, b, c, d, e = taken.sections
    live = two.state.sections
    live.insert(1, Section(title="+"))
    live.move(live[5], 0)
    live[1].body.append("by two")
    live.remove(live[5])
    exchange(one, two)
    writer.apply_or_raise([two.document.encode()])
    assert titles(writer) == "ea+bc"
    changed = [a.model_copy(update={"title": "A"}), c, b, d.model_copy(update={"title": "D"}), Section(title="n"), e]
    operations = commit(one, writer, taken.model_copy(update={"sections": changed}))
    assert {type(operation) for operation in operations} == {SetValue, MoveItem, InsertItem}
    assert titles(writer) == "eAc+bn"
    assert snapshot(writer, Report).sections[1].body == "by two"


@pytest.mark.parametrize(("deleted", "expected"), [(1, "acn"), (2, "abn"), (None, "abcn")])
def test_an_insert_goes_where_its_neighbour_was(deleted: int | None, expected: str) -> None:
    """What a patch inserts stands behind its neighbour, or where that one was when others have deleted it meanwhile."""
    one, two, writer = board(*"abc")
    operations, _ = build_patch(one.document, Report, {"sections": [*one.snapshot().sections, Section(title="n")]})
    if deleted is not None:
        del two.state.sections[deleted]
    writer.apply_or_raise([two.document.encode()])
    writer.capture(lambda: apply_patch(writer, operations))
    assert titles(writer) == expected


def test_a_patch_of_an_item_that_others_deleted_does_nothing() -> None:
    """Deletions win over moves and edits of a patch, in lists within the item too."""
    one, two, writer = board(*"abc")
    a, b, c = one.snapshot().sections
    changed = b.model_copy(update={"title": "B", "hits": Counter(1), "steps": [Step(what="s")]})
    operations, _ = build_patch(one.document, Report, {"sections": [changed, a, c]})
    del two.state.sections[1]
    writer.apply_or_raise([two.document.encode()])
    writer.capture(lambda: apply_patch(writer, operations))
    assert titles(writer) == "ac"


def test_lists_in_records_are_patched_item_by_item() -> None:
    """A list inside a record, and one inside an item, is changed by operations on its items."""
    one, two, writer = board()
    one.state.chapters["c"] = Section(steps=[Step(what="1"), Step(what="2")])
    one.state.sections.append(Section(title="s", steps=[Step(what="1")]))
    exchange(one, two)
    writer.apply_or_raise([two.document.encode()])
    for agent, number in ((one, 0), (two, 1)):
        taken = agent.snapshot()
        steps = list(taken.chapters["c"].steps)
        steps[number] = steps[number].model_copy(update={"what": f"new {number}"})
        section = taken.sections[0].model_copy(update={"steps": [*taken.sections[0].steps, Step(what=str(number))]})
        patch = {"chapters": {"c": taken.chapters["c"].model_copy(update={"steps": steps})}, "sections": [section]}
        commit(agent, writer, patch)
    done = snapshot(writer, Report)
    assert [step.what for step in done.chapters["c"].steps] == ["new 0", "new 1"]
    assert [step.what for step in done.sections[0].steps] in ([*"101"], [*"110"])


def test_a_new_record_brings_its_list_along() -> None:
    """A record or item that a patch puts in has the items of its lists, in their order, each with an id."""
    one, _, writer = board()
    full = Section(title="x", steps=[Step(what="1"), Step(what="2")])
    commit(one, writer, {"sections": [full], "chapters": {"c": full}})
    done = snapshot(writer, Report)
    assert done == Report(sections=[full], chapters={"c": full})
    commit(one, writer, {"chapters": {"c": done.chapters["c"], "d": done.chapters["c"]}})
    assert snapshot(writer, Report).chapters["d"] == full


def test_the_wire_form_of_a_patch_has_no_ids() -> None:
    """M1: a step that is repeated from a snapshot or from scratch is the same request."""
    one, _, _ = board(*"ab")
    one.state.sections[0].steps.append(Step(what="1"))
    taken = one.snapshot().sections
    wires = [build_patch(one.document, Report, {"sections": each})[1] for each in (taken, [
        Section(title="a", steps=[Step(what="1")]), Section(title="b"),
    ])]  # fmt: skip
    assert wires[0] == wires[1]


PLACE = "g0000005g0="
BAD: list[PatchOp] = [
    InsertItem(field="sections", key="x", value={"colour": "red"}),
    InsertItem(field="sections", key="x", value={"steps": [{"$id": "a"}, {"$id": "a"}]}),
    InsertItem(field="sections", key="x", value={"steps": {"a": {}}}),
    InsertItem(field="sections", key="x", value={"steps": [{"$id": 5}]}),
    InsertItem(field="sections", key="x", value=[]),
    InsertItem(field="sections", key="\ud800", value={}),
    InsertItem(field="sections", key="x", after="a", after_place="zzz", value={}),
    InsertItem(field="chapters", key="x", value={}),
    MoveItem(field="chapters", key="x"),
    MoveItem(field="sections", key="a", after="\ud800"),
    SetValue(field="sections", key="a", value={}),
    SetValue(field="sections", value=[]),
    Increment(field="sections", amount=1),
    MoveItem(field="nothing", key="x"),
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_bad_operations_change_nothing(bad: PatchOp) -> None:
    """An operation that does not fit refuses the whole patch before anything is written."""
    _, _, writer = board(*"ab")
    before = writer.wire_state()
    operations = [InsertItem(field="sections", key="ok", after_place=PLACE, value={"title": "ok"}), bad]
    with pytest.raises(InvalidValue) as caught:
        writer.capture(lambda: apply_patch(writer, operations))
    assert caught.value.path
    assert writer.wire_state() == before


def test_an_id_is_not_given_twice() -> None:
    """A patch cannot put an item in the place of another, nor write into one that it inserts."""
    one, _, writer = board("a")
    for operations in (
        [InsertItem(field="sections", key=one.state.sections.ids[0], value={})],
        [InsertItem(field="sections", key="x", value={}), SetValue(field="sections/x/title", value="x")],
    ):
        with pytest.raises(InvalidValue):
            writer.capture(lambda operations=operations: apply_patch(writer, operations))  # type: ignore[misc]
    assert titles(writer) == "a"


@given(st.lists(st.integers(0, 9), max_size=8), st.lists(st.integers(0, 9), max_size=8), st.booleans())
def test_every_item_is_matched_at_most_once(before: list[int], after: list[int], known: bool) -> None:
    """Items are matched to different ones; equal content finds each other before place does."""
    items = [{"$id": str(index), "n": number} for index, number in enumerate(before)]
    target: list[dict[str, Any]] = [{"n": number} for number in after]
    if known and target and items:
        target[0]["$id"] = "0"
    found = match_items(items, target, lambda item: item["n"])
    kept = [each for each in found if each is not None]
    assert len(set(kept)) == len(kept)
    if not known:
        same = sum(items[int(each)]["n"] == number for each, number in zip(found, after, strict=True) if each)
        assert same == sum(min(before.count(number), after.count(number)) for number in set(after))


@given(st.permutations(range(8)), st.integers(0, 255))
def test_as_few_items_as_possible_move(order: list[int], subset: int) -> None:
    """Those that stay are in order, and no larger part of the items is."""
    before = [str(number) for number in range(8)]
    after = [str(number) for number in order if subset >> number & 1]
    moving = items_to_move(before, after)
    staying = [item for item in after if item not in moving]
    assert staying == sorted(staying)
    ascending = [0] * len(after)
    for index, item in enumerate(after):
        ascending[index] = 1 + max((ascending[i] for i in range(index) if after[i] < item), default=0)
    assert len(staying) == max(ascending, default=0)
