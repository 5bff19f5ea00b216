"""The checksum of one field of records, which costs what was changed and not what is there.

It is a hash over the hashes of the records, each of a record's canonical JSON in wire form.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pycrdt
from pydantic import JsonValue

from crdt_board.canonical import canonical_json
from crdt_board.layout import FieldLayout
from crdt_board.records import IdsAt, record_wire, records_wire
from crdt_board.wire_values import child_path


def digest(value: JsonValue) -> str:
    """sha256 over the canonical JSON of a value in wire form, in lower-case hex."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


class RecordHashes:
    """What is known of the records of one field.

    Invariant: the hash of a key is that of its record unless `forget` was called with the key since `field_hash`.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, str] | None = None
        self._stale: set[str] = set()

    def forget(self, key: str | None = None) -> None:
        """A record was changed, made or removed; without a key, any of them may have been."""
        if key is None:
            self._hashes = None
        else:
            self._stale.add(key)

    def field_hash(self, records: pycrdt.Map[Any], field: FieldLayout, ids_at: IdsAt) -> str | None:
        """The hash of the field; None when it holds no record."""
        if self._hashes is None:
            content = records_wire(json.loads(str(records)), field, field.name, ids_at)
            assert isinstance(content, dict)
            self._hashes = {key: digest(record) for key, record in content.items()}
        else:
            for key in self._stale:
                self._read_again(records, key, field, ids_at)
        self._stale.clear()
        return digest(dict(self._hashes)) if self._hashes else None

    def _read_again(self, records: pycrdt.Map[Any], key: str, field: FieldLayout, ids_at: IdsAt) -> None:
        assert self._hashes is not None
        try:
            record = records[key]
        except KeyError:
            self._hashes.pop(key, None)
            return
        # What another client put there and is no record is read with everything else, as JSON made by yrs.
        content = json.loads(str(record)) if isinstance(record, pycrdt.Map) else json.loads(str(records))[key]
        self._hashes[key] = digest(record_wire(content, field, child_path(field.name, key), ids_at))
