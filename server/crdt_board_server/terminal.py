"""What the commands over boards share: where boards are, how answers are printed, how failures end a command."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import getpass
import json
import os
import re
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn, TextIO, TypeVar, get_args

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.markup import escape
from rich.progress import Progress as ProgressBar
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from crdt_board.checkpoints import parse_pointer
from crdt_board.errors import BadRequest, BoardError, NotFound
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.values import from_validation_error
from crdt_board_server.api.team_bodies import TeamRequest
from crdt_board_server.patience import patiently
from crdt_board_server.sources import Progress, Source, open_source

_Answer = TypeVar("_Answer")

EXIT_FAILURE = 1

EXIT_USAGE = 2
"""What click ends with, too, when a command is not told what it needs."""

EXIT_UNTOLD = 3
"""The command has done what it was told to do, and could not say so."""

_UNWRITABLE = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

SERVE, LOOK, CHANGE, WORK_TOGETHER = "Serve", "Look at boards", "Change boards", "Work together"
"""The groups of commands in ``crdt-board --help``."""


def _named(context: typer.Context, value: Any) -> Any:
    """The value of ``--db`` or ``--url``; a file that is named on the command line counts more than the environment."""
    sources = {name: context.get_parameter_source(name) for name in ("db", "url")}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if len(given) > 1:
        raise typer.BadParameter("name a file with --db or a server with --url, not both")
    return None if given == ["db"] and isinstance(value, str) else value


Board = Annotated[str, typer.Argument(help="The board.", show_default=False)]
Database = Annotated[Path, typer.Option("--db", callback=_named, help="SQLite file with the boards.")]
Server = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="CRDT_BOARD_URL",
        callback=_named,
        help="A server, as http://host:port or ws://host:port, instead of a file.",
    ),
]
Place = Annotated[
    str | None,
    typer.Option(
        "--artifacts",
        metavar="PLACE",
        help="Folder, or bucket as s3://bucket/prefix, of the artifacts; DB-artifacts without.",
    ),
]
Listed = Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")]
LISTED = 1_000

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process whose user has no name
        return "cli"


Agent = Annotated[
    str, typer.Option(help="Under whose name it is recorded.", default_factory=_user, show_default=f"you, {_user()}")
]

DATABASE = Path("boards.db")

_WIDTH_OF_FILES = 240
"""Columns of a table that no terminal shows, so that a script finds every row on one line."""

_CELL_CHARS_MAX = 200

_UNSAFE = re.compile(r"[^ -~\n]")

_AGE = re.compile(r"(?P<count>[0-9]{1,6})(?P<unit>[smhdw])")
_AGE_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class _Output(Console):
    """Standard output, where a pipe that nobody reads is an error like any other; rich ends the process for it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


out = _Output(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else _WIDTH_OF_FILES)


def fail(message: str, code: int = EXIT_FAILURE) -> NoReturn:
    """End the command with one line that says why."""
    Console(stderr=True, soft_wrap=True).print(f"[bold red]error[/]: {escape(visible(message))}", highlight=False)
    raise typer.Exit(code)


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Print in this block what became of a change: it is made by then, whether anybody hears of it or not.

    Where nothing can be printed, standard error says so. The command ends well when that is because nobody reads the
    pipe any more, and else with `EXIT_UNTOLD`.
    """
    try:
        yield
    except OSError as error:
        for stream in (sys.stdout, sys.stderr):
            _give_up_writing(stream)
        with contextlib.suppress(OSError):
            os.write(2, f"done, but the answer could not be written: {error.strerror or error}\n".encode())
        if error.errno != errno.EPIPE:
            raise typer.Exit(EXIT_UNTOLD) from None


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """End the command with one line when what is printed in this block cannot be written."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise  # files and sockets that cannot be used are told of by who uses them
        for stream in (sys.stdout, sys.stderr):
            _give_up_writing(stream)
        with contextlib.suppress(OSError):
            os.write(2, f"error: the answer could not be written: {error.strerror or error}\n".encode())
        raise typer.Exit(EXIT_FAILURE) from None


class Commands(TyperGroup):
    """The program: whichever command is run, an answer that cannot be written is a failure that is told."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """See `TyperGroup`; this prints ``--help`` and ``--version``."""
        with _heard():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """See `TyperGroup`."""
        with _heard():
            return super().invoke(ctx)


def _give_up_writing(stream: TextIO) -> None:
    """Let what a stream cannot write go nowhere: Python tries again at its end, and would exit with 120."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def run(
    db: Path, url: str | None, look: Callable[[Source], Awaitable[_Answer]], *, place: str | None = None
) -> _Answer:
    """What ``look`` finds in the database, with its artifacts at ``place``, or at the server; ends the command when
    that fails."""
    if url is None:
        check_database(db)

    async def ask() -> _Answer:
        async with open_source(db, url, place) as source:
            return await patiently(look(source), lambda: source.failure, DEFAULT_LIMITS.answer_seconds_max)

    return finish(ask())


def finish(work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """What ``work`` returns; ends the command when that fails."""
    try:
        return asyncio.run(work)
    except BoardError as error:
        fail(str(error))


def check_database(db: Path) -> None:
    """End the command when there is no such file, which opening it would make."""
    if not db.is_file():
        fail(f"there is no database {db}: name one with --db, or a server with --url")


def deciding(board: str, request: Callable[[], TeamRequest]) -> Callable[[Source], Any]:
    """What has the writer of a board decide on a request; a wrong argument of that is refused as one of the command."""

    async def decide(source: Source) -> Any:
        try:
            wanted = request()
        except ValidationError as error:
            (place, *_), token = error.errors()[0]["loc"] or ("",), error.errors()[0]["input"]
            if place == "token" and isinstance(token, str):
                raise BadRequest(f"--token {token}: give what `tasks claim` printed") from None
            raise from_validation_error(error, "") from None
        return await source.team.decide(board, wanted)

    return decide


@contextlib.contextmanager
def progress_of(what: str) -> Iterator[Progress]:
    """A bar on the terminal, if there is one, for as long as the block takes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _done, _of: None
        return
    with ProgressBar(console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


async def version_of(source: Source, board: str, text: str) -> int:
    """The number that a version or pointer on the command line means.

    Raises:
        BadRequest: it is neither, or a pointer to another board.
        NotFound: the board's version is not the one that the pointer means.
    """
    if text.isdecimal():
        return int(text)
    if not text.startswith("board:"):
        raise BadRequest(f"{text!r} is no version: give its number, or a pointer like board:<id>@<version>#<hash>")
    pointer = parse_pointer(text)
    if pointer.board_id != board:
        raise BadRequest(f"{text} points to another board than {board}")
    checkpoint = (await source.state(board, pointer.version)).checkpoint
    if checkpoint is None or not checkpoint.hash.startswith(pointer.hash):
        raise NotFound(f"version {pointer.version} of board {board} is not the one that {text} means")
    return pointer.version


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], if_empty: str) -> None:
    if not rows:
        out.print(if_empty)
        return
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(escape(visible(cell).replace("\n", "\\n")) for cell in row))
    out.print(table)


def print_diff(lines: Sequence[str]) -> None:
    """Print the lines of a `StateDiff`, in colors."""
    for line in lines:
        sign = line.lstrip()[:2]
        out.print(Text(visible(line), style={"+ ": "green", "- ": "red", "@ ": "cyan"}.get(sign, "")))


def visible(text: str) -> str:
    """``text`` with escapes in place of what would steer the terminal; lines and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def show_time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def plain(answer: BaseModel) -> Any:
    return answer.model_dump(mode="json")


def print_json(content: Any) -> None:
    typer.echo(json_text(content, indent=2))


def print_colored_json(content: Any) -> None:
    """For people; nothing in it steers the terminal."""
    out.print(JSONHighlighter()(json_text(content, indent=2)))


def short(text: str) -> str:
    """``text`` for a cell of a table, cut off when it is long; as JSON it is there as a whole."""
    return text if len(text) <= _CELL_CHARS_MAX else f"{text[: _CELL_CHARS_MAX - 1]}…"


def json_text(content: Any, *, indent: int | None = None) -> str:
    """JSON that is readable, and has escapes in place of what would steer the terminal."""
    return _UNSAFE.sub(_escaped, json.dumps(content, ensure_ascii=False, indent=indent))


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def state_option(what: str, states: Any) -> Any:
    """``--state`` of a command over what is in one of ``states``, a ``Literal``; see `states_of`."""
    return typer.Option(help=f"Only {what} in this state, of {', '.join(get_args(states))}; can be repeated.")


def states_of(given: Sequence[str] | None, states: Any) -> list[Any]:
    """What ``--state`` names. Raises BadRequest when that is none of ``states``, a ``Literal``."""
    for each in given or ():
        if each not in get_args(states):
            raise BadRequest(f"--state {each}: choose one of {', '.join(get_args(states))}")
    return list(given or ())


def age_of(option: str, text: str) -> timedelta:
    """The time that an option means; ends the command when it is none."""
    match = _AGE.fullmatch(text.strip())
    if match is None or not int(match["count"]):
        fail(f"{option} {text}: give an age as 30d, 12h, 90m, 60s or 8w")
    return timedelta(**{_AGE_UNITS[match["unit"]]: int(match["count"])})


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that is there when the block has ended well, whole, and not at all otherwise; ends the command when it
    cannot be written. What is there and no file, like a pipe or a device, is written to as it is."""
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as opened:
                yield opened
        else:
            with _in_place_of(target) as opened:
                yield opened
    except OSError as error:
        fail(f"cannot write {target}: {error.strerror or error}")


@contextlib.contextmanager
def _in_place_of(target: Path) -> Iterator[BinaryIO]:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "wb") as opened:
            yield opened
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
