"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of recorded editing sessions; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CRDT_BOARD_DATA") or PROJECT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no recorded sessions in {folder}; name their folder in CRDT_BOARD_DATA")
    return folder
