"""README and docs say what is true: their examples run, their tables are complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import typer

import crdt_board
import crdt_board.sync
import crdt_board_client
import crdt_board_client.sync
from crdt_board import Board
from crdt_board.errors import error_types
from crdt_board_server.cli import app
from crdt_board_server.close_codes import CLOSINGS, SHUTTING_DOWN, UNFORESEEN, is_final
from support.forking import Forking

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def examples() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{number}", code)
        for page in PAGES
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL), start=1)
    ]


def run_example(code: str, folder: Path, forking: Forking) -> None:
    example = folder / "example.py"
    example.write_text(code)
    status, _, errors = forking.run(example, folder=folder)
    assert status == 0, f"{code}\n{errors}"


KEPT = [code for _, code in examples() if '.db"' in code]
"""Those that leave a file behind."""


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples() if code not in KEPT])
def test_every_python_example_runs(code: str, tmp_path: Path, forking: Forking, request: pytest.FixtureRequest) -> None:
    """Each example is a program that ends well, against a real server where it connects to one."""
    if "ws://127.0.0.1:8765" in code:
        server = request.getfixturevalue("server")
        code = code.replace("ws://127.0.0.1:8765", server.url)
    run_example(code, tmp_path, forking)


@pytest.mark.long
def test_examples_share_a_file_and_go_on_where_they_were(tmp_path: Path, forking: Forking) -> None:
    """Who tries the pages in turn in one folder is not stopped by an example before, nor the second time."""
    assert len(KEPT) > 1
    for code in KEPT * 2:
        run_example(code, tmp_path, forking)


@pytest.mark.parametrize("example", sorted((PROJECT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_runs_and_resumes(example: Path, tmp_path: Path, forking: Forking) -> None:
    """Each program in examples/ ends well, and again when it finds what it did before."""
    for _ in range(2):
        status, _, errors = forking.run(example, folder=tmp_path)
        assert status == 0, errors


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


def test_the_api_page_lists_every_public_name() -> None:
    """docs/api.md has each name that a package exports, and each of a board's; no others of these."""
    page = (PROJECT / "docs" / "api.md").read_text()
    listed = set(re.findall(r"`(?:crdt_board_client\.sync\.|crdt_board_client\.|crdt_board\.sync\.)?(\w+)`", page))
    for module in (crdt_board, crdt_board.sync, crdt_board_client, crdt_board_client.sync):
        assert set(module.__all__) <= listed, module.__name__
    of_board = {name for name in dir(Board) if not name.startswith("_")}
    assert set(re.findall(r"board\.(\w+)(?:\(\))?`", page)) - {"sync"} == of_board


@pytest.mark.parametrize("name", sorted(name for name in dir(Board) if not name.startswith("_")))
def test_the_api_page_says_what_is_awaited(name: str) -> None:
    """``await`` and the parentheses stand where they belong."""
    page = (PROJECT / "docs" / "api.md").read_text()
    each = inspect.getattr_static(Board, name)
    awaits = "await " if inspect.iscoroutinefunction(each) else ""
    assert f"`{awaits}board.{name}{'' if isinstance(each, property) else '()'}`" in page


def headings_of(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_to_a_section_name_one() -> None:
    """Every link of README and docs with a fragment names a heading of its page."""
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            there = page.parent / target if target else page
            assert anchor in headings_of(there), f"{page.name}: {target}#{anchor}"


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link of README and docs names a file that is there."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
