"""Where a board keeps the fields of its schemas."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from crdt_board.document import Document
from crdt_board.layout import FieldKind, FieldLayout, Layout, lost_by
from crdt_board.placement import as_on_board, place_fields


def layout(**kinds: FieldKind) -> Layout:
    return Layout(title="Job", fields=tuple(FieldLayout(name=name, kind=kind) for name, kind in kinds.items()))


def test_a_root_is_used_for_one_kind_only() -> None:
    """A field keeps its root while it keeps its kind, and never gets one that another kind was in before."""
    schemas: list[Layout] = []
    for model in (
        layout(tags="list", plan="list", title="scalar"),
        layout(tags="set", plan="list", title="text"),
        layout(tags="set", title="scalar"),
        layout(tags="list", plan="dict", title="text"),
        layout(tags="list", plan="dict", title="text"),
    ):
        schemas.append(place_fields(model, schemas, len(schemas) + 1))
    places = [{field.name: field.place for field in each.fields} for each in schemas]
    assert places == [
        {"tags": "tags", "plan": "plan", "title": "title"},
        {"tags": "tags~2", "plan": "plan", "title": "title"},
        {"tags": "tags~2", "title": "title"},
        {"tags": "tags~4", "plan": "plan~4", "title": "title~4"},
        {"tags": "tags~4", "plan": "plan~4", "title": "title~4"},
    ]


def test_the_fingerprint_leaves_out_the_roots() -> None:
    """A model is the same wherever a board keeps its fields, and takes them from the board when it joins."""
    model = layout(tags="set", title="scalar")
    placed = place_fields(model, [layout(tags="list")], 2)
    assert placed != model
    assert placed.fingerprint == model.fingerprint
    assert as_on_board(layout(tags="set"), placed).by_name["tags"].place == "tags~2"


@pytest.mark.parametrize("root", ["tags", "$board", "tags~0", "tags~x", "~2", "state"])
def test_a_root_has_a_name_that_no_field_can_have(root: str) -> None:
    """A layout from a peer cannot send a field into another field's root, or into those of the board."""
    with pytest.raises(ValidationError):
        FieldLayout(name="tags", kind="set", root=root)


def test_what_is_lost_is_told_by_field() -> None:
    """One sentence for each field that an agent with the earlier model cannot go on with; none for additions."""
    before = layout(tags="list", plan="list")
    assert lost_by(before, layout(tags="list", plan="list", title="scalar")) == []
    assert lost_by(before, layout(tags="set")) == ["plan: is gone", "tags: was a list and is a set"]
    record = FieldLayout(name="tasks", kind="records", fields=layout(notes="text").fields)
    changed = record.model_copy(update={"fields": layout(notes="list").fields})
    old, new = (Layout(title="Job", fields=(field,)) for field in (record, changed))
    assert lost_by(old, new) == ["tasks/*/notes: was a text and is a list"]


def test_a_document_follows_its_fields_to_other_roots() -> None:
    """After a field got another root, its content, touched paths and checksum are those of the new one."""
    document = Document(layout(tags="list", title="scalar"))
    document.array("tags").append("old")
    document.take_touched()
    empty = Document(layout(tags="set", title="scalar")).checksum()
    document.declare(place_fields(layout(tags="set", title="scalar"), [document.layout], 2))
    assert (document.wire_state(), document.checksum()) == ({}, empty)
    document.map("tags")['"a"'] = "a"
    assert document.take_touched() == ('tags/"a"',)
    assert document.wire_state() == {"tags": ["a"]}
    document.doc["tags"].append("late")  # somebody who has not heard of it
    assert document.take_touched() == ()
