"""How large a board is, field by field and in the store, and how near its bounds.

Pure: what is stored is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue

from crdt_board.bounds import bounds_of
from crdt_board.canonical import canonical_json
from crdt_board.cells import CELL_KINDS
from crdt_board.document import Document
from crdt_board.headroom import COUNTED_KINDS, LimitWarning, percent_of
from crdt_board.layout import VIOLATION_PREFIX, FieldKind
from crdt_board.limits import Limits
from crdt_board.loading import LoadedBoard
from crdt_board.store.contract import BoardHead, StoredSizes

_ENTRY_BYTES = 300
"""What an entry takes in an export beside its payload and checkpoint, about."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FieldSize(_Frozen):
    """One field of a board.

    ``bytes`` are those of its value as canonical JSON. ``items`` are the characters of a text, the items, keys or
    elements of a container, and the cells of a counter and of policies that keep one for each replica; None for one
    value.
    ``maximum`` is how many of them are allowed, by the model or by `Limits`; ``percent`` how much of that is used.
    """

    name: str
    kind: FieldKind
    bytes: int
    items: int | None = None
    maximum: int | None = None
    percent: int | None = None


class LimitUse(_Frozen):
    """How much of one bound in `Limits` a board as a whole uses. Beyond it, what would add more is refused."""

    limit: str
    value: int
    maximum: int
    percent: int


class BoardSizes(_Frozen):
    """How large a board was after entry ``seq``.

    ``state_bytes`` are those of all fields as canonical JSON; ``document_bytes`` what a new replica is sent, with what
    Yjs keeps of deletions. ``entries`` counts the journal since the base, if it was compacted, and ``entry_bytes`` the
    updates and checkpoints in it; ``snapshots`` counts all stored states, the base too. ``checkpoints`` is how many
    versions are there. ``fields`` are those that hold something, ``warnings`` sentences about what is used to 80 %.
    """

    board_id: str
    seq: int
    version: int
    state_bytes: int
    document_bytes: int
    entries: int
    entry_bytes: int
    checkpoints: int
    snapshots: int
    snapshot_bytes: int
    fields: tuple[FieldSize, ...]
    limits: tuple[LimitUse, ...]
    warnings: tuple[str, ...]


def board_sizes(loaded: LoadedBoard, head: BoardHead, stored: StoredSizes, limits: Limits) -> BoardSizes:
    """The sizes of a board that was loaded at its head."""
    document = loaded.document
    state = document.wire_state()
    fields = [_field_size(document, name, state[name], limits) for name in state]
    uses = [*uses_of(loaded, limits), _export_use(stored, limits)]
    near = [LimitWarning(use.limit, "", use.value, use.maximum) for use in uses]
    near += [
        LimitWarning(_limit_of(each.kind), each.name, each.items or 0, most)
        for each in fields
        if (most := _most(each.kind, limits)) is not None
    ]
    return BoardSizes(
        board_id=head.board_id,
        seq=loaded.fold.seq,
        version=loaded.fold.version,
        state_bytes=sum(each.bytes for each in fields),
        document_bytes=len(document.encode()),
        entries=stored.entries,
        entry_bytes=stored.entry_bytes,
        checkpoints=stored.checkpoints,
        snapshots=stored.snapshots,
        snapshot_bytes=stored.snapshot_bytes,
        fields=tuple(fields),
        limits=tuple(uses),
        warnings=tuple(str(each) for each in near if each.is_near),
    )


def uses_of(loaded: LoadedBoard, limits: Limits) -> list[LimitUse]:
    """What a board as a whole uses of the bounds that only its writer knows."""
    recorded = sum(key.startswith(VIOLATION_PREFIX) for key in loaded.document.board_map.keys())  # noqa: SIM118
    records = len(loaded.document.ledger)
    return [_use("violations_max", recorded, limits), _use("records_max", records, limits)]


def writer_warnings(loaded: LoadedBoard, limits: Limits) -> Iterator[LimitWarning]:
    """The same as measures for a `Headroom`."""
    for use in uses_of(loaded, limits):
        yield LimitWarning(use.limit, "", use.value, use.maximum)


def _export_use(stored: StoredSizes, limits: Limits) -> LimitUse:
    size = (stored.entry_bytes + stored.snapshot_bytes) * 4 // 3 + _ENTRY_BYTES * stored.entries
    return _use("import_bytes_max", size, limits)


def _use(limit: str, value: int, limits: Limits) -> LimitUse:
    maximum: int = getattr(limits, limit)
    return LimitUse(limit=limit, value=value, maximum=maximum, percent=percent_of(value, maximum))


def _field_size(document: Document, name: str, wire: JsonValue, limits: Limits) -> FieldSize:
    layout = document.layout.by_name.get(name)
    kind: FieldKind = layout.kind if layout is not None else "scalar"
    items = _items(document, name, kind, wire)
    own = bounds_of(layout) if layout is not None and kind != "counter" else None
    bounds = [each for each in (_most(kind, limits), own.most if own else None) if each is not None]
    most = min(bounds, default=None)
    return FieldSize(
        name=name,
        kind=kind,
        bytes=len(canonical_json(wire)),
        items=items,
        maximum=most,
        percent=None if most is None or items is None else percent_of(items, most),
    )


def _items(document: Document, name: str, kind: FieldKind, wire: JsonValue) -> int | None:
    if kind in CELL_KINDS or kind == "counter":
        return len(json.loads(str(document.map(name))))
    if kind in COUNTED_KINDS or kind == "text":
        assert isinstance(wire, Sequence | dict)
        return len(wire)
    return None


def _limit_of(kind: FieldKind) -> str:
    return "text_chars_max" if kind == "text" else "container_items_max"


def _most(kind: FieldKind, limits: Limits) -> int | None:
    if kind != "text" and kind not in COUNTED_KINDS:
        return None
    most: int = getattr(limits, _limit_of(kind))
    return most
