"""README and docs say what is true: their examples run, their tables are complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from crdt_board.errors import error_types
from crdt_board_server.cli import app
from crdt_board_server.close_codes import CLOSINGS, SHUTTING_DOWN, UNFORESEEN, is_final

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
EXAMPLE_SECONDS = 30


def examples() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{number}", code)
        for page in PAGES
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), start=1)
    ]


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_every_python_example_runs(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each example is a program that ends well, against a real server where it connects to one."""
    if "ws://127.0.0.1:8765" in code:
        server = request.getfixturevalue("server")
        code = code.replace("ws://127.0.0.1:8765", server.url)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("example", sorted((PROJECT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs_and_resumes(example: Path, tmp_path: Path) -> None:
    """Each program in examples/ ends well, and again when it finds what it did before."""
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-W", "error", str(example)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=EXAMPLE_SECONDS,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr


def test_the_table_of_errors_is_complete_and_true() -> None:
    """docs/protocol.md lists every error code with its HTTP status and close code, and nothing else."""
    page = (PROJECT / "docs" / "protocol.md").read_text()
    listed = {
        code: (int(status), int(close))
        for code, status, close in re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", page, re.MULTILINE)
    }
    assert listed == {code: (closing.http_status, closing.close_code) for code, closing in CLOSINGS.items()}
    for close_code in (SHUTTING_DOWN, UNFORESEEN):
        assert f"| {close_code} |" in page


def test_every_error_has_its_closing_and_retries_agree() -> None:
    """Each class of the tree has a close code, and exactly the retryable ones may be tried again."""
    kinds = error_types()
    assert kinds.keys() == CLOSINGS.keys()
    for code, kind in kinds.items():
        if code != "board_closed":  # this process closed it; another connection opens it again
            assert is_final(CLOSINGS[code].close_code) is not kind.retryable, code


def test_every_command_is_in_the_docs() -> None:
    """The commands that the help lists are in the docs."""
    pages = "".join(page.read_text() for page in PAGES)
    for name in typer.main.get_command(app).commands:  # type: ignore[attr-defined]  # the app is a group
        assert f"crdt-board {name}" in pages, name


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link of README and docs names a file that is there."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
