"""Artifacts: content outside of the document, named by its hash, which boards point to."""

from crdt_board.artifacts.access import Artifacts
from crdt_board.artifacts.contract import StoredArtifact
from crdt_board.artifacts.opening import open_artifacts
from crdt_board.artifacts.pointer import Artifact
from crdt_board.artifacts.store import ArtifactStore

__all__ = ["Artifact", "ArtifactStore", "Artifacts", "StoredArtifact", "open_artifacts"]
