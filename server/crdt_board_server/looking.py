"""The commands that look at boards: ``boards show history diff blame verify``."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text

from crdt_board.checkpoints import Checkpoint, parse_pointer
from crdt_board.errors import BadRequest, BoardError, NotFound
from crdt_board.history import PathEdit, Verification
from crdt_board_server.sources import Source, open_source

_Answer = TypeVar("_Answer")
_Shown = TypeVar("_Shown", bound=BaseModel)

_EXIT_FAILURE = 1
_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")

Board = Annotated[str, typer.Argument(help="The board.", show_default=False)]
Database = Annotated[Path, typer.Option("--db", help="SQLite file with the boards.")]
Server = Annotated[
    str | None,
    typer.Option("--url", envvar="CRDT_BOARD_URL", help="A server, as http://host:port, instead of a file."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most, newest first.")]

_DATABASE = Path("boards.db")

_WIDTH_OF_FILES = 240
"""Columns of a table that no terminal shows, so that a script finds every row on one line."""

_out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (boards, show, history, diff, blame, verify):
        app.command()(command)


def boards(*, db: Database = _DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List the boards."""
    found = _run(db, url, lambda source: source.boards())
    if as_json:
        _print_json([_plain(each) for each in found])
        return
    _print_table(
        ("board", "version", "entries", "made"),
        [(each.id, str(each.version), str(each.seq), _time(each.created_ms)) for each in found],
        "no boards yet",
    )


def show(
    board: Board,
    *,
    at: Annotated[str | None, typer.Option(help="A version, or a pointer to one; what is durable now without.")] = None,
    db: Database = _DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what a board holds, or held at a version."""

    async def look(source: Source) -> Any:
        version = None if at is None else await _version(source, board, at)
        return await source.board(board), await source.state(board, version)

    info, found = _run(db, url, look)
    if as_json:
        _print_json(_plain(found))
        return
    step = f" ({escape(found.checkpoint.step)})" if found.checkpoint else ""
    _out.print(f"[bold]{escape(info.id)}[/] version {found.version}{step}, entry {found.seq} of {info.seq}")
    _out.print_json(json.dumps(found.state))


def history(
    board: Board,
    path: Annotated[str | None, typer.Argument(help="A field, or a place in one, as findings/f1/title.")] = None,
    *,
    limit: Limit = 50,
    db: Database = _DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a board, or with a PATH who changed it, when, and in which step."""
    if path is None:
        made = _run(db, url, lambda source: source.checkpoints(board, limit))
        _print_either(as_json, made, _print_checkpoints)
    else:
        edits = _run(db, url, lambda source: source.edits(board, path, limit))
        _print_either(as_json, edits, _print_edits)


def diff(
    board: Board,
    before: Annotated[str, typer.Argument(help="A version, or a pointer to one; 0 is the empty board.")],
    after: Annotated[str | None, typer.Argument(help="The same; what is durable now without.")] = None,
    *,
    db: Database = _DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two versions."""

    async def look(source: Source) -> Any:
        first = await _version(source, board, before)
        return await source.diff(board, first, None if after is None else await _version(source, board, after))

    found = _run(db, url, look)
    if as_json:
        _print_json(_plain(found))
        return
    for line in str(found).splitlines() or ["nothing differs"]:
        sign = line.lstrip()[:2]
        _out.print(Text(line, style={"+ ": "green", "- ": "red", "@ ": "cyan"}.get(sign, "")))


def blame(
    board: Board,
    path: Annotated[str, typer.Argument(help="A text field, or one in a record, as findings/f1/notes.")],
    *,
    at: Annotated[str | None, typer.Option(help="A version, or a pointer to one; what is durable now without.")] = None,
    db: Database = _DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show who wrote each stretch of a text."""

    async def look(source: Source) -> Any:
        return await source.blame(board, path, None if at is None else await _version(source, board, at))

    found = _run(db, url, look)
    if as_json:
        _print_json([_plain(each) for each in found])
        return
    colors: dict[str, str] = {}
    for each in found:
        color = colors.setdefault(each.agent, _COLORS[len(colors) % len(_COLORS)])
        when = f"version {each.version} ({each.step})" if each.version else f"entry {each.seq}"
        _out.print(Text.assemble((f"{each.agent}, {when}, {_time(each.time_ms)}", f"bold {color}")))
        _out.print(Text(f"  {each.text}", style=color))


def verify(board: Board, *, db: Database = _DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """Check that everything stored of a board is as it was written; exits with 1 when it is not."""
    console = Console(stderr=True)
    bar = ProgressBar(console=console, transient=True) if console.is_terminal and not as_json else None

    async def look(source: Source) -> Verification:
        if bar is None:
            return await source.verify(board, lambda _read, _of: None)
        task = bar.add_task(f"reading {board}", total=None)
        return await source.verify(board, lambda read, of: bar.update(task, completed=read, total=of))

    with bar or nullcontext():
        found = _run(db, url, look)
    if as_json:
        _print_json(_plain(found))
    else:
        _out.print(str(found), style="green" if found.ok else "red", markup=False)
    if not found.ok:
        raise typer.Exit(_EXIT_FAILURE)


def fail(message: str, code: int = _EXIT_FAILURE) -> NoReturn:
    """End the command with one line that says why."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]error[/]: {escape(message)}", highlight=False)
    raise typer.Exit(code)


def _run(db: Path, url: str | None, look: Callable[[Source], Awaitable[_Answer]]) -> _Answer:
    if url is None and not db.is_file():
        fail(f"there is no database {db}: name one with --db, or a server with --url")

    async def run() -> _Answer:
        async with open_source(db, url) as source:
            return await look(source)

    try:
        return asyncio.run(run())
    except BoardError as error:
        fail(str(error))


async def _version(source: Source, board: str, text: str) -> int:
    """The number that a version or pointer on the command line means.

    Raises:
        BadRequest: it is neither, or a pointer to another board.
        NotFound: the board's version is not the one that the pointer means.
    """
    if text.isdecimal():
        return int(text)
    pointer = parse_pointer(text)
    if pointer.board_id != board:
        raise BadRequest(f"{text} points to another board than {board}")
    checkpoint = (await source.state(board, pointer.version)).checkpoint
    if checkpoint is None or not checkpoint.hash.startswith(pointer.hash):
        raise NotFound(f"version {pointer.version} of board {board} is not the one that {text} means")
    return pointer.version


def _print_either(as_json: bool, found: Sequence[_Shown], print_them: Callable[[Sequence[_Shown]], None]) -> None:
    if as_json:
        _print_json([_plain(each) for each in found])
    else:
        print_them(found)


def _print_checkpoints(made: Sequence[Checkpoint]) -> None:
    rows = [
        (str(each.version), each.step, each.agent, _time(each.time_ms), ", ".join(each.fields), each.pointer)
        for each in made
    ]
    _print_table(("version", "step", "agent", "time", "changed", "pointer"), rows, "no checkpoints yet")


def _print_edits(edits: Sequence[PathEdit]) -> None:
    if not edits:
        _out.print("nobody has changed it yet")
    for each in edits:
        step = f"version {each.version} ({each.step})" if each.version else "in no version yet"
        _out.print(Text.assemble((each.agent, "bold"), f", {_time(each.time_ms)}, entry {each.seq}, {step}"))
        for difference in each.differences:
            _out.print("\n".join(f"  {line}" for line in str(difference).splitlines()), markup=False)


def _print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], if_empty: str) -> None:
    if not rows:
        _out.print(if_empty)
        return
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    _out.print(table)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _plain(answer: BaseModel) -> Any:
    return answer.model_dump(mode="json")


def _print_json(content: Any) -> None:
    typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
