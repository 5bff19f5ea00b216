"""The checksum of one field of records, which costs what was changed and not what is there.

It is a hash over the hashes of up to `_GROUPS` groups, in their order. The keys say which records are in a group; its
hash is that of an object with the hash of each record's canonical JSON in wire form under its key.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
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


_GROUPS = 64
"""One record among 1,000 has the hashes of 16 records and of 64 groups read again."""


class RecordHashes:
    """What is known of the records of one field.

    Invariant: the hash of a key is that of its record unless `forget` was called with the key since `field_hash`.
    """

    def __init__(self) -> None:
        self._records: list[dict[str, str]] | None = None  # by group; None: nothing is known
        self._groups = [b""] * _GROUPS
        self._stale: set[str] = set()

    def forget(self, key: str) -> None:
        """A record was changed, made or removed."""
        self._stale.add(key)

    def field_hash(self, records: pycrdt.Map[Any], field: FieldLayout, ids_at: IdsAt) -> str | None:
        """The hash of the field; None when it holds no record."""
        if self._records is None:
            self._read_all(records, field, ids_at)
        else:
            for key in self._stale:
                self._read_again(self._records[_group_of(key)], records, key, field, ids_at)
            self._renew(self._records, {_group_of(key) for key in self._stale})
        self._stale.clear()
        return hashlib.sha256(b"".join(self._groups)).hexdigest() if any(self._groups) else None

    def _read_all(self, records: pycrdt.Map[Any], field: FieldLayout, ids_at: IdsAt) -> None:
        content = records_wire(json.loads(str(records)), field, field.name, ids_at)
        assert isinstance(content, dict)
        read: list[dict[str, str]] = [{} for _ in range(_GROUPS)]
        for key, record in content.items():
            read[_group_of(key)][key] = digest(record)
        self._renew(read, range(_GROUPS))
        self._records = read

    def _renew(self, read: list[dict[str, str]], groups: Iterable[int]) -> None:
        for group in groups:
            self._groups[group] = bytes.fromhex(digest({**read[group]})) if read[group] else b""

    def _read_again(
        self, group: dict[str, str], records: pycrdt.Map[Any], key: str, field: FieldLayout, ids_at: IdsAt
    ) -> None:
        try:
            record = records[key]
        except KeyError:
            group.pop(key, None)
            return
        # What another client put there and is no record is read with everything else, as JSON made by yrs.
        content = json.loads(str(record)) if isinstance(record, pycrdt.Map) else json.loads(str(records))[key]
        group[key] = digest(record_wire(content, field, child_path(field.name, key), ids_at))


def _group_of(key: str) -> int:
    return zlib.crc32(key.encode()) % _GROUPS
