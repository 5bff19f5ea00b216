"""The commands over artifacts: ``artifacts list put get show sweep``, over a database file's or a server's."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

import typer

from crdt_board.artifacts import Artifacts, ArtifactStore, StoredArtifact, open_artifacts
from crdt_board.artifacts.contract import CHUNK_BYTES
from crdt_board.artifacts.http import HttpArtifacts
from crdt_board.artifacts.opening import beside
from crdt_board.artifacts.pointer import SCHEME
from crdt_board.artifacts.sweep import SweepReport, sweep
from crdt_board.artifacts.threads import in_thread
from crdt_board.errors import BadRequest
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.terminal import (
    DATABASE,
    AsJson,
    Database,
    Place,
    Server,
    age_of,
    answering,
    check_database,
    finish,
    new_file,
    plain,
    print_json,
    print_table,
    progress_of,
    show_time,
)

_Answer = TypeVar("_Answer")

_PAGE = 1_000

app = typer.Typer(
    name="artifacts", help="Files and other content that boards point to, by its hash.", no_args_is_help=True
)

Pointer = Annotated[str, typer.Argument(help="artifact:sha256:…, or the hash alone.", show_default=False)]


_Source = ArtifactStore | HttpArtifacts


@app.command("list")
def list_(*, db: Database = DATABASE, place: Place = None, url: Server = None, as_json: AsJson = False) -> None:
    """List the artifacts that are stored, whether a board refers to them or not."""

    async def look(source: _Source) -> list[StoredArtifact]:
        found: list[StoredArtifact] = []
        while page := await source.page(after=found[-1].sha256 if found else "", limit=_PAGE):
            found += page
        return found

    found = _run(db, url, place, look)
    if as_json:
        print_json([_shown(each) for each in found])
        return
    rows = [(each.pointer, str(each.size), show_time(each.stored_ms)) for each in found]
    print_table(("artifact", "bytes", "put"), rows, "no artifacts yet")


@app.command()
def put(
    file: Annotated[Path, typer.Argument(help="What to store; - for standard input.", show_default=False)],
    *,
    media_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="As text/plain; by the file's name without.")
    ] = None,
    db: Database = DATABASE,
    place: Place = None,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Store a file, and print the pointer to write into a board; it is on disk then."""
    content = _standard_input() if str(file) == "-" else file
    made = _run(db, url, place, lambda source: Artifacts(source).put(content, media_type=media_type))
    with answering():
        if as_json:
            print_json(plain(made))
        else:
            typer.echo(made.pointer)


@app.command()
def get(
    pointer: Pointer,
    file: Annotated[Path, typer.Argument(help="Where to write it; - for standard output.")] = Path("-"),
    *,
    db: Database = DATABASE,
    place: Place = None,
    url: Server = None,
) -> None:
    """Write the content of an artifact to a file, which is there when all of it has the right hash."""

    async def copy(source: _Source, target: BinaryIO) -> None:
        async for chunk in Artifacts(source).stream(_pointer(pointer)):
            await in_thread(target.write, chunk)

    if str(file) == "-":
        _run(db, url, place, lambda source: copy(source, sys.stdout.buffer))
        return
    with new_file(file) as opened:
        _run(db, url, place, lambda source: copy(source, opened))
    with answering():
        typer.echo(f"wrote {file}", err=True)


@app.command()
def show(
    pointer: Pointer, *, db: Database = DATABASE, place: Place = None, url: Server = None, as_json: AsJson = False
) -> None:
    """Show how large an artifact is and when it was put last; its content is not looked at."""
    found = _run(db, url, place, lambda source: Artifacts(source).stat(_pointer(pointer)))
    if as_json:
        print_json(_shown(found))
    else:
        typer.echo(f"{found.pointer}, {found.size} bytes, put {show_time(found.stored_ms)}")


@app.command("sweep")
def sweep_(
    *,
    grace: Annotated[
        str, typer.Option(metavar="AGE", help="Keep artifacts that were put within an age: 30d, 12h, 90m, 60s or 8w.")
    ] = "24h",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    db: Database = DATABASE,
    place: Place = None,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Remove the artifacts that no board refers to: not now, not in its journal, not in a version that can be read.

    Boards and artifacts may be in use meanwhile. The place must belong to the boards of this database alone.
    """
    age = age_of("--grace", grace)

    async def clean(source: _Source) -> SweepReport:
        if isinstance(source, HttpArtifacts):
            return await source.sweep(grace=age, dry_run=dry_run)
        store = await SqliteStore.open(db)
        try:
            return await sweep(store, source, grace=age, dry_run=dry_run)
        finally:
            await store.close()

    if url is None:
        check_database(db)
    with progress_of("reading boards"):
        found = _run(db, url, place, clean)
    with contextlib.nullcontext() if dry_run else answering():
        if as_json:
            print_json({**plain(found), "removed": [_shown(each) for each in found.removed]})
            return
        for each in found.removed:
            typer.echo(f"{each.pointer}, {each.size} bytes, put {show_time(each.stored_ms)}")
        typer.echo(str(found))


def _run(db: Path, url: str | None, place: str | None, look: Callable[[_Source], Awaitable[_Answer]]) -> _Answer:
    """What ``look`` finds among the artifacts beside the database, at the place, or at the server."""
    if url is None and place is None:
        check_database(db)

    async def ask() -> _Answer:
        source = _opened(db, url, place)
        try:
            return await look(source)
        finally:
            await source.close()

    return finish(ask())


def _opened(db: Path, url: str | None, place: str | None) -> _Source:
    if url is None:
        return open_artifacts(place or beside(db))
    if place is not None:
        raise BadRequest("--artifacts is for a database file; the server at --url has its own place")
    return HttpArtifacts(url)


def _pointer(text: str) -> str:
    return text if text.startswith(SCHEME) else f"{SCHEME}{text}"


def _shown(found: StoredArtifact) -> dict[str, object]:
    return {"pointer": found.pointer, "size": found.size, "stored_ms": found.stored_ms}


async def _standard_input() -> AsyncIterator[bytes]:
    while chunk := await in_thread(sys.stdin.buffer.read, CHUNK_BYTES):
        yield chunk
