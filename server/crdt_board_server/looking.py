"""The commands that look at boards: ``boards show history diff blame watch violations verify sizes``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.markup import escape
from rich.text import Text

from crdt_board.checkpoints import Checkpoint, parse_pointer
from crdt_board.history import PathEdit, Stretch
from crdt_board_server.api.answers import WatchedEntry
from crdt_board_server.sources import Source
from crdt_board_server.terminal import (
    DATABASE,
    EXIT_FAILURE,
    LOOK,
    AsJson,
    Board,
    Database,
    Server,
    json_text,
    out,
    plain,
    print_colored_json,
    print_diff,
    print_json,
    print_table,
    progress_of,
    run,
    show_time,
    version_of,
    visible,
)

_Shown = TypeVar("_Shown", bound=BaseModel)

_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")

Limit = Annotated[int, typer.Option(min=1, max=1000, help="How many at most, newest first.")]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (boards, show, history, diff, blame, watch, violations, verify, sizes):
        app.command(rich_help_panel=LOOK)(command)


def boards(*, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List the boards."""
    found = run(db, url, lambda source: source.boards())
    if as_json:
        print_json([plain(each) for each in found])
        return
    print_table(
        ("board", "version", "entries", "made"),
        [(each.id, str(each.version), str(each.seq), show_time(each.created_ms)) for each in found],
        "no boards yet",
    )


def show(
    board: Annotated[str, typer.Argument(help="The board, or a pointer to one of its versions.", show_default=False)],
    *,
    at: Annotated[str | None, typer.Option(help="A version, or a pointer to one; what is durable now without.")] = None,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what a board holds, or held at a version."""

    async def look(source: Source) -> Any:
        is_pointer = at is None and board.startswith("board:")
        board_id, which = (parse_pointer(board).board_id, board) if is_pointer else (board, at)
        version = None if which is None else await version_of(source, board_id, which)
        return await source.board(board_id), await source.state(board_id, version)

    info, found = run(db, url, look)
    if as_json:
        print_json(plain(found))
        return
    step = f" ({escape(found.checkpoint.step)})" if found.checkpoint else ""
    out.print(f"[bold]{escape(info.id)}[/] version {found.version}{step}, entry {found.seq} of {info.seq}")
    print_colored_json(found.state)


def history(
    board: Board,
    path: Annotated[str | None, typer.Argument(help="A field, or a place in one, as findings/f1/title.")] = None,
    *,
    limit: Limit = 50,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a board, or with a PATH who changed it, when, and in which step."""
    if path is None:
        made = run(db, url, lambda source: source.checkpoints(board, limit))
        _print_either(as_json, made, _print_checkpoints)
    else:
        edits = run(db, url, lambda source: source.edits(board, path, limit))
        _print_either(as_json, edits, _print_edits)


def diff(
    board: Board,
    before: Annotated[str, typer.Argument(help="A version, or a pointer to one; 0 is the empty board.")],
    after: Annotated[str | None, typer.Argument(help="The same; what is durable now without.")] = None,
    *,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two versions."""

    async def look(source: Source) -> Any:
        first = await version_of(source, board, before)
        return await source.diff(board, first, None if after is None else await version_of(source, board, after))

    found = run(db, url, look)
    if as_json:
        print_json(plain(found))
        return
    print_diff(str(found).splitlines() or ["nothing differs"])


def blame(
    board: Board,
    path: Annotated[str, typer.Argument(help="A text field, or one in a record, as findings/f1/notes.")],
    *,
    at: Annotated[str | None, typer.Option(help="A version, or a pointer to one; what is durable now without.")] = None,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show who wrote each stretch of a text, and in which version; with --json in which entry, and when."""

    async def look(source: Source) -> Any:
        return await source.blame(board, path, None if at is None else await version_of(source, board, at))

    found = run(db, url, look)
    if as_json:
        print_json([plain(each) for each in found])
        return
    colors: dict[str, str] = {}
    for (agent, when), stretches in groupby(found, key=_who_and_when):
        color = colors.setdefault(agent, _COLORS[len(colors) % len(_COLORS)])
        text = visible("".join(each.text for each in stretches))
        out.print(Text(visible(f"{agent}, {when}"), style=f"bold {color}"))
        out.print(Text("\n".join(f"  {line}" for line in text.split("\n")), style=color))


def _who_and_when(stretch: Stretch) -> tuple[str, str]:
    """What is printed above a stretch: a model writes a text in many, of which nobody wants to see each."""
    if stretch.version:
        return stretch.agent, f"version {stretch.version} ({stretch.step})"
    return stretch.agent, f"entry {stretch.seq}, {show_time(stretch.time_ms)}"


def watch(
    board: Board,
    *,
    after: Annotated[
        int | None, typer.Option(min=0, help="Begin after this entry; with what comes next without.")
    ] = None,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Print the entries of a board as they become durable, until Ctrl-C; with --json one object a line.

    Of one that changed leases, tasks or the like it says who did what.
    """

    async def look(source: Source) -> None:
        begin = (await source.board(board)).seq if after is None else after
        async for entry in source.watch(board, begin):
            if as_json:
                typer.echo(json_text(entry.model_dump(mode="json", exclude_none=True)))
            else:
                _print_entry(entry)

    with contextlib.suppress(KeyboardInterrupt):
        run(db, url, look)


def _print_entry(entry: WatchedEntry) -> None:
    when = f"{entry.seq} {show_time(entry.time_ms)}"
    if entry.deeds:
        told = [each.text for each in entry.deeds] + ["and more"] * entry.more_deeds
        out.print(Text(when), Text(visible("; ".join(told))))
        return
    style = "" if entry.kind != "commit" else "green"
    what = Text.assemble((visible(entry.author), "bold"), f" {entry.kind}", style=style)
    where = [Text(visible(", ".join(entry.paths)).replace("\n", "\\n"))] if entry.paths else []
    out.print(Text(when), what, *where)


def violations(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List the rules that a board's state breaks: what keeps commits from being made."""
    found = run(db, url, lambda source: source.violations(board))
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [(each.key, each.message, each.agent or "") for each in found]
    print_table(("violation", "what is wrong", "found by"), rows, "none")


def verify(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """Check that everything stored of a board is as it was written; exits with 1 when it is not."""
    with progress_of(f"reading {board}") as on_progress:
        found = run(db, url, lambda source: source.verify(board, on_progress))
    if as_json:
        print_json(plain(found))
    else:
        out.print(str(found), style="green" if found.ok else "red", markup=False)
    if not found.ok:
        raise typer.Exit(EXIT_FAILURE)


def sizes(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """Show how large a board is, field by field and in the database, and how near its limits."""
    found = run(db, url, lambda source: source.sizes(board))
    if as_json:
        print_json(plain(found))
        return
    rows = [
        (
            each.name,
            each.kind,
            f"{each.bytes:,}",
            "" if each.items is None else f"{each.items:,}",
            "" if each.percent is None else f"{each.percent} % of {each.maximum:,}",
        )
        for each in found.fields
    ]
    print_table(("field", "kind", "bytes", "items", "used"), rows, "nothing was written yet")
    totals = [
        ("values", f"{found.state_bytes:,} bytes"),
        ("document", f"{found.document_bytes:,} bytes"),
        ("journal", f"{found.entries:,} entries, {found.entry_bytes:,} bytes"),
        ("checkpoints", f"{found.checkpoints:,}"),
        ("stored states", f"{found.snapshots:,}, {found.snapshot_bytes:,} bytes"),
    ]
    for name, total in totals:
        out.print(f"{name}: {total}")
    for warning in found.warnings:
        out.print(f"near a limit: {warning}", style="yellow", markup=False)


def _print_either(as_json: bool, found: Sequence[_Shown], print_them: Callable[[Sequence[_Shown]], None]) -> None:
    if as_json:
        print_json([plain(each) for each in found])
    else:
        print_them(found)


def _print_checkpoints(made: Sequence[Checkpoint]) -> None:
    rows = [
        (str(each.version), each.step, each.agent, show_time(each.time_ms), ", ".join(each.fields), each.pointer)
        for each in made
    ]
    print_table(("version", "step", "agent", "time", "changed", "pointer"), rows, "no checkpoints yet")


def _print_edits(edits: Sequence[PathEdit]) -> None:
    if not edits:
        out.print("nobody has changed it yet")
    for each in edits:
        step = f"version {each.version} ({each.step})" if each.version else "in no version yet"
        out.print(Text.assemble((each.agent, "bold"), f", {show_time(each.time_ms)}, entry {each.seq}, {step}"))
        for difference in each.differences:
            out.print(Text("\n".join(f"  {line}" for line in visible(str(difference)).split("\n"))))
