"""What users of strict type checkers may write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.long
@pytest.mark.parametrize("plugins", ["", "plugins = pydantic.mypy"], ids=["plain", "plugin"])
def test_the_sample_passes_strict_mypy(plugins: str, tmp_path: Path) -> None:
    """Models, live edits and snapshots need no ignores under strict mypy, with pydantic's plugin and without."""
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nstrict = True\nmypy_path = {HERE.parent}\n{plugins}\n")
    command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, str(HERE / "typing_sample.py")], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
