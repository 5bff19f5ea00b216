"""The lines of an export, each a JSON object of one kind, and the board that they add up to. Pure.

A header with the board's head; its schemas; the idempotency keys that were used; of a compacted board its base, the
states and the checkpoints that were kept from before it; the entries from there on. The kind of a line is the first of
`KINDS` among its keys; what is of no known kind is refused by name.

Then, in an export with artifacts, a line that says how many bytes of how many there are, with the hash of all lines
before it; and for each artifact a line with its hash and size, and right behind it so many bytes, as they are: in
base64 they take 1.4 to 1.7 times as long to compress, for a larger file [measured]. The last line is the hash of all
that stands before it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from crdt_board.artifacts.pointer import check_digest
from crdt_board.checkpoints import Checkpoint, decode_checkpoint, encode_checkpoint
from crdt_board.errors import BadRequest, BoardCorrupt, LimitExceeded, MalformedUpdate
from crdt_board.journal import GENESIS_HASH, Entry, unpack_updates
from crdt_board.limits import Limits, check_board_id
from crdt_board.readiness import is_ready
from crdt_board.store.contract import Append, BaseRecord, BoardHead, KeyRecord, NewBoard, SchemaRecord, SnapshotRecord
from crdt_board.update_walk import walk

FORMAT = "crdt-board-export"
FORMAT_VERSION = 1

KINDS = ("schema", "key", "base", "state", "kept", "seq")
"""By which key a line is known; the last one is that of entries."""

_Record = TypeVar("_Record", BaseRecord, SnapshotRecord)

Line = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """How many artifacts follow, and how many bytes they have together."""

    count: int
    size: int


def header_line(head: BoardHead) -> Line:
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "board": head.board_id,
        "epoch": head.epoch,
        "seq": head.seq,
        "hash": head.hash,
        "created_ms": head.created_ms,
        "parent": head.parent,
    }


def schema_line(schema: SchemaRecord) -> Line:
    return {"schema": schema.number, "fingerprint": schema.fingerprint, "document": schema.document}


def key_line(key: KeyRecord) -> Line:
    return {"key": key.key, "fingerprint": key.fingerprint, "version": key.version}


def base_line(base: BaseRecord) -> Line:
    return {"base": base.seq, **_record_line(base), "origins": base64.b64encode(base.origins).decode()}


def state_line(state: SnapshotRecord) -> Line:
    return {"state": state.seq, **_record_line(state)}


def kept_line(checkpoint: Checkpoint) -> Line:
    return {"kept": checkpoint.version, "checkpoint": encode_checkpoint(checkpoint)}


def entry_line(entry: Entry) -> Line:
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "author": entry.author,
        "time_ms": entry.time_ms,
        "paths": entry.paths,
        "checkpoint": entry.checkpoint,
        "payload": base64.b64encode(entry.payload).decode(),
        "hash": entry.hash,
    }


def artifacts_line(announced: Announcement, before: str) -> Line:
    """``before`` is the hash of all lines before this one."""
    return {"artifacts": announced.count, "size": announced.size, "before": before}


def artifact_line(digest: str, size: int) -> Line:
    return {"artifact": digest, "size": size}


def end_line(before: str) -> Line:
    return {"sha256": before}


def announced_in(line: Line, before: str) -> Announcement | None:
    """What a line announces, when it is one with which the artifacts begin.

    Raises:
        BadRequest: what stands before it has another hash.
        ValueError, KeyError: it is not what it says that it is.
    """
    if "artifacts" not in line:
        return None
    if line["before"] != before:
        raise altered()
    return Announcement(count=_count(line["artifacts"]), size=_count(line["size"]))


def artifact_in(line: Line) -> tuple[str, int]:
    """The hash and the size of the artifact behind a line.

    Raises:
        BadRequest, ValueError, KeyError: it is not a line of one.
    """
    return check_digest(line["artifact"]), _count(line["size"])


def is_end(line: Line, before: str) -> bool:
    """Whether a line is the last one.

    Raises:
        BadRequest: it is, and what stands before it has another hash.
    """
    if line.keys() != {"sha256"}:
        return False
    if line["sha256"] != before:
        raise altered()
    return True


def altered() -> BadRequest:
    return BadRequest("this export of a board was cut off or altered: its hash is not that of its content")


def _count(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"{str(number)[:80]!r} is no count")
    return number


def _record_line(record: BaseRecord | SnapshotRecord) -> Line:
    names = ("entry_hash", "version", "checkpoint_hash", "meta", "sha256")
    content = asdict(record)
    return {**{name: content[name] for name in names}, "data": base64.b64encode(record.data).decode()}


def assembled(lines: Iterator[Line], limits: Limits) -> NewBoard:
    """The board in an export, of which each part was looked at, and nothing compared yet.

    Raises:
        BadRequest: it is no export, or of another version, or holds what is not known.
        BoardCorrupt: it holds what must not be applied.
        LimitExceeded: a state in it unpacks to more than may be.
        ValueError, KeyError, TypeError: a line is not what it says that it is.
    """
    header = next(lines, {})
    if header.get("format") != FORMAT:
        raise BadRequest("this is no export of a board")
    if header.get("format_version") != FORMAT_VERSION:
        raise BadRequest(
            f"this export has format {str(header.get('format_version'))[:20]}, and this version of CRDT Board reads "
            f"format {FORMAT_VERSION}: import it with the version that wrote it, and export it from a newer one"
        )
    parts = _Parts(check_board_id(header["board"]), header["epoch"], limits)
    for line in lines:
        parts.take(line)
    entries, base = parts.entries, parts.base
    begins_at = base.seq if base else 0
    last = entries[-1].hash if entries else base.entry_hash if base else GENESIS_HASH
    if (begins_at + len(entries), last) != (header["seq"], header["hash"]):
        raise BadRequest("this export of a board does not hold the entries that it announces")
    beginning = Append(
        board_id=parts.board_id,
        epoch=parts.epoch,
        expected_seq=begins_at,
        entries=entries,
        checkpoints=_checkpoints(entries, begins_at, base.version if base else 0),
        keys=parts.keys,
    )
    return NewBoard(
        beginning=beginning,
        created_ms=header["created_ms"],
        parent=header["parent"],
        schemas=tuple(parts.schemas),
        base=base,
        states=tuple(parts.states),
        kept=tuple(parts.kept),
    )


class _Parts:
    """What was read of an export so far."""

    def __init__(self, board_id: str, epoch: str, limits: Limits) -> None:
        self.board_id = board_id
        self.epoch = epoch
        self._limits = limits
        self.schemas: list[SchemaRecord] = []
        self.keys: list[KeyRecord] = []
        self.base: BaseRecord | None = None
        self.states: list[SnapshotRecord] = []
        self.kept: list[Checkpoint] = []
        self.entries: list[Entry] = []
        self._clocks: dict[int, int] = {}
        """How far a document has come with the base, and the entries behind it."""

    def take(self, line: Line) -> None:
        match next((kind for kind in KINDS if kind in line), None):
            case "schema":
                self.schemas.append(SchemaRecord(number=line.pop("schema"), **line))
            case "key":
                self.keys.append(KeyRecord(**line))
            case "base":
                origins = base64.b64decode(line.pop("origins"), validate=True)
                _unpacked(origins, self._limits)
                self.base = self._record(BaseRecord, line.pop("base"), {**line, "origins": origins}, self._clocks)
            case "state":
                self.states.append(self._record(SnapshotRecord, line.pop("state"), {**line, "pinned": True}, {}))
            case "kept":
                self.kept.append(self._kept(line))
            case "seq":
                self.entries.append(self._entry(line))
            case None:
                raise BadRequest(f"this export holds {', '.join(line)}, which this version of CRDT Board does not know")

    def _record(self, kind: type[_Record], seq: int, line: Line, clocks: dict[int, int]) -> _Record:
        data = base64.b64decode(line.pop("data"), validate=True)
        _check_updates(_unpacked(data, self._limits), f"the state at entry {seq}", clocks, self._limits)
        return kind(board_id=self.board_id, seq=seq, data=data, **line)

    def _kept(self, line: Line) -> Checkpoint:
        checkpoint = decode_checkpoint(line["checkpoint"])
        before = self.kept[-1].version if self.kept else 0
        if self.base is None or not before < checkpoint.version == line["kept"] <= self.base.version:
            raise ValueError(f"version {line['kept']} is not in its place")
        return checkpoint

    def _entry(self, line: Line) -> Entry:
        payload = base64.b64decode(line.pop("payload"), validate=True)
        paths = tuple(line.pop("paths"))
        _check_updates(payload, f"entry {line['seq']}", self._clocks, self._limits)
        return Entry(board_id=self.board_id, epoch=self.epoch, payload=payload, paths=paths, **line)


def _unpacked(data: bytes, limits: Limits) -> bytes:
    """Compressed bytes as they were before, of which there may be so many."""
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(data, limits.import_line_bytes_max)
    if unpacking.unconsumed_tail:
        maximum = limits.import_line_bytes_max
        raise LimitExceeded(
            f"a state in this export unpacks to more than {maximum} bytes",
            limit="import_line_bytes_max",
            value=maximum + 1,
            maximum=maximum,
        )
    return unpacked


def _check_updates(packed: bytes, what: str, clocks: dict[int, int], limits: Limits) -> None:
    """Refuse what peers may not send either: anybody can make a file whose hashes are right around bytes that end yrs.

    ``clocks`` are those that a document has reached before, and are brought up to date.

    Raises:
        BoardCorrupt: it is not made of updates, or one of them must not be applied.
    """
    try:
        for update in unpack_updates(packed):
            extent = walk(update, limits.nesting_depth_max)
            if not is_ready(extent, clocks):
                raise MalformedUpdate("it builds on what is in nothing before it")
            clocks |= {client: max(end, clocks.get(client, 0)) for client, end in extent.ends.items()}
    except MalformedUpdate as error:
        raise BoardCorrupt(f"{what} of this export cannot be applied: {error}") from error


def _checkpoints(entries: list[Entry], begins_at: int, version: int) -> list[Checkpoint]:
    """The checkpoints in a journal that goes on after an entry and a version.

    Raises:
        ValueError: the entries or their checkpoints are not numbered one after the other.
    """
    made: list[Checkpoint] = []
    for seq, entry in enumerate(entries, start=begins_at + 1):
        if entry.seq != seq or bool(entry.checkpoint) != (entry.kind == "commit"):
            raise ValueError(f"there is no entry {seq}")
        if entry.checkpoint:
            checkpoint = decode_checkpoint(entry.checkpoint)
            if (checkpoint.seq, checkpoint.version) != (seq, version + len(made) + 1):
                raise ValueError(f"entry {seq} does not hold version {version + len(made) + 1}")
            made.append(checkpoint)
    return made
