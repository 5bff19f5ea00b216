"""Where artifacts are kept: beside a database by default, or at an address."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from crdt_board.artifacts.bucket import BucketBlobs
from crdt_board.artifacts.contract import Blobs
from crdt_board.artifacts.folder import FolderBlobs
from crdt_board.artifacts.memory import MemoryBlobs
from crdt_board.artifacts.store import ArtifactStore
from crdt_board.errors import BadRequest
from crdt_board.limits import DEFAULT_LIMITS, Limits

MEMORY = ":memory:"


def beside(database: str | os.PathLike[str]) -> str:
    """The folder for the artifacts of the boards in a SQLite file: ``boards.db-artifacts`` beside ``boards.db``."""
    return f"{os.fspath(database)}-artifacts"


def open_artifacts(place: str | os.PathLike[str], *, limits: Limits = DEFAULT_LIMITS) -> ArtifactStore:
    """The artifacts in a folder, in a bucket by its URL (``s3://bucket/prefix``, ``gs://…``, ``az://…``), or in memory
    (``":memory:"``). Nothing is made or read yet.

    Raises:
        BadRequest: ``place`` is none of these, or what it needs is not installed.
    """
    return ArtifactStore(_blobs(os.fspath(place)), limits=limits)


def _blobs(place: str) -> Blobs:
    if place == MEMORY:
        return MemoryBlobs()
    parts = urlsplit(place)
    if parts.scheme == "file":
        return FolderBlobs(unquote(parts.path))
    if "://" in place:
        if parts.scheme in ("http", "https", "ws", "wss", "memory"):
            raise BadRequest(f"artifacts are kept in a folder or a bucket like s3://bucket/prefix, not at {place}")
        return BucketBlobs.at(place)
    if not place:
        raise BadRequest("the place for artifacts is empty: name a folder, or a bucket like s3://bucket/prefix")
    return FolderBlobs(Path(place))
