"""The places for artifacts, each against the one contract."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import LocalStore, MemoryStore

from crdt_board.artifacts.bucket import BucketBlobs
from crdt_board.artifacts.contract import Blobs
from crdt_board.artifacts.folder import FolderBlobs
from crdt_board.artifacts.memory import MemoryBlobs
from crdt_board.artifacts.opening import open_artifacts
from crdt_board.errors import BadRequest
from crdt_board.testing.blobs_contract import BlobsContract


class TestMemory(BlobsContract):
    """Memory keeps every promise but durability."""

    def make_blobs(self) -> Blobs:
        return MemoryBlobs()


class TestFolder(BlobsContract):
    """A folder that is not there yet, nor the one that it is in."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.root = tmp_path / "not" / "there"

    def make_blobs(self) -> Blobs:
        return FolderBlobs(self.root)


class TestBucketInMemory(BlobsContract):
    """What stands on obstore, over its store in memory."""

    def make_blobs(self) -> Blobs:
        return BucketBlobs(MemoryStore(), "memory")


class TestBucketInFolder(BlobsContract):
    """What stands on obstore, over its store of files."""

    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.root = tmp_path

    def make_blobs(self) -> Blobs:
        return BucketBlobs(LocalStore(self.root), "files")


@pytest.mark.parametrize("place", ["", "http://a/b", "ws://a", "foo://bucket", "s3://", "memory:///"])
def test_what_is_no_place_is_refused(place: str) -> None:
    """An empty place, a server and an unknown scheme are refused when they are named, in one line."""
    with pytest.raises(BadRequest) as caught:
        open_artifacts(place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", ["s3://bucket/prefix", "gs://bucket", "file:///tmp/x", "folder", ":memory:"])
def test_places_are_known_by_their_names(place: str) -> None:
    """Buckets, folders and memory are opened without being looked at."""
    open_artifacts(place)
