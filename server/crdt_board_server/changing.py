"""The commands that change whole boards: ``create fork forks merge restore dismiss compact retention export import
delete``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from pydantic import BaseModel

from crdt_board.exports import EXPORT_SUFFIX
from crdt_board.history import Retention
from crdt_board_server.api.answers import RetentionRules
from crdt_board_server.sources import Source, import_into_new
from crdt_board_server.terminal import (
    CHANGE,
    DATABASE,
    EXIT_USAGE,
    Agent,
    AsJson,
    Board,
    Database,
    Place,
    Server,
    age_of,
    answering,
    fail,
    finish,
    new_file,
    plain,
    print_json,
    print_table,
    progress_of,
    run,
    show_time,
    version_of,
)

KeepVersions = Annotated[int | None, typer.Option(min=1, help="Keep the newest so many versions.")]
NewerThan = Annotated[
    str | None, typer.Option(metavar="AGE", help="Keep versions made within an age: 30d, 12h, 90m, 60s or 8w.")
]
KeepTagged = Annotated[
    bool | None, typer.Option("--keep-tagged/--no-keep-tagged", help="Keep versions with a tag; so it is by default.")
]


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (create, fork, forks, merge, restore, dismiss, compact, retention, export, delete):
        app.command(rich_help_panel=CHANGE)(command)
    app.command("import", rich_help_panel=CHANGE)(import_)


def create(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """Make an empty board, also under the name of one that was deleted."""
    made = run(db, url, lambda source: source.create(board))
    _print_made(made, as_json, f"made board {made.id}")


def fork(
    board: Board,
    name: Annotated[str, typer.Argument(help="The name of the new board.", show_default=False)],
    *,
    at: Annotated[str | None, typer.Option(help="A version, or a pointer to one; the newest without.")] = None,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Make a new board that begins at a version of this one."""

    async def make(source: Source) -> Any:
        version = None if at is None else await version_of(source, board, at)
        return await source.fork(board, version, name, agent)

    made = run(db, url, make)
    _print_made(made, as_json, f"{made.pointer} begins at {made.forked_from}")


def forks(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List the forks of a board."""
    found = run(db, url, lambda source: source.forks(board))
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [(each.board_id, each.parent, show_time(each.created_ms)) for each in found]
    print_table(("fork", "begins at", "made"), rows, "no forks yet")


def merge(
    board: Board,
    source_board: Annotated[
        str, typer.Argument(metavar="fork", help="A fork of the board, or the board it was forked from.")
    ],
    *,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Commit all that a fork has and this board has not."""

    async def commit(source: Source) -> Any:
        return (await source.board(board)).version, await source.merge(board, source_board, agent)

    before, made = run(db, url, commit)
    changed = ", ".join(made.fields) or "nothing"
    sentence = f"{made.pointer} holds what {source_board} has; changed: {changed}"
    if made.version <= before:
        sentence = f"{made.pointer} holds all that {source_board} has already; nothing was committed"
    _print_made(made, as_json, sentence)


def restore(
    board: Board,
    version: Annotated[str, typer.Argument(help="A version, or a pointer to one.")],
    *,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Commit the state that a version had as a new version; nothing is erased."""

    async def make(source: Source) -> Any:
        return await source.restore(board, await version_of(source, board, version), agent)

    made = run(db, url, make)
    changed = ", ".join(made.fields) or "nothing"
    _print_made(made, as_json, f"{made.pointer} has the state of version {version}; changed: {changed}")


def compact(
    board: Board,
    *,
    keep_versions: KeepVersions = None,
    newer_than: NewerThan = None,
    keep_tagged: KeepTagged = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Squash what no version needs that is kept, and give the space back; the board may be in use meanwhile.

    The newest version stays, and so do those that a fork or a pointer on the board needs. Without --keep-versions,
    --newer-than and --keep-tagged the board's own retention says what is kept, which is everything until it was set.
    """
    policy = _policy(keep_versions, newer_than, keep_tagged)
    with progress_of(f"compacting {board}") as on_progress:
        found = run(db, url, lambda source: source.compact(board, policy, dry_run=dry_run, on_progress=on_progress))
    _print_made(found, as_json, str(found), changed=not dry_run)


def retention(
    board: Board,
    *,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Keep all versions, as in the beginning.")] = False,
    keep_versions: KeepVersions = None,
    newer_than: NewerThan = None,
    keep_tagged: KeepTagged = None,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show which versions a board keeps by itself; with options, set it.

    Whoever has the board open squashes the rest after every 10,000 entries, and `crdt-board compact` does at once. What
    a fork or a pointer on the board needs stays in any case.
    """
    policy = _policy(keep_versions, newer_than, keep_tagged)
    if keep_all and policy is not None:
        fail("--keep-all goes with no other rule")
    wanted = Retention() if keep_all else policy

    async def look(source: Source) -> Retention:
        if wanted is not None:
            await source.set_retention(board, wanted)
        return await source.retention(board)

    found = run(db, url, look)
    _print_made(RetentionRules.of(found), as_json, f"board {board} keeps {found}", changed=wanted is not None)


def _policy(keep_versions: int | None, newer_than: str | None, keep_tagged: bool | None) -> Retention | None:
    """What the options say; None when they say nothing."""
    if keep_versions is None and newer_than is None and keep_tagged is None:
        return None
    age = None if newer_than is None else age_of("--newer-than", newer_than)
    return Retention(keep_versions=keep_versions, newer_than=age, keep_tagged=keep_tagged is not False)


def dismiss(
    board: Board,
    key: Annotated[str, typer.Argument(help="The violation, as `crdt-board violations` names it.", show_default=False)],
    *,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Drop a recorded violation although nothing was changed, so that commits are made again.

    An agent whose model has the rule, and finds it broken, records it again.
    """
    run(db, url, lambda source: source.dismiss(board, key, agent))
    with answering():
        if as_json:
            print_json({"dismissed": key})
        else:
            typer.echo(f"dismissed {key}")


def export(
    board: Board,
    file: Annotated[
        Path | None, typer.Argument(help=f"Where to write it; BOARD{EXPORT_SUFFIX} without, - for standard output.")
    ] = None,
    *,
    no_artifacts: Annotated[
        bool, typer.Option("--no-artifacts", help="Leave out the content of artifacts, and keep the pointers.")
    ] = False,
    db: Database = DATABASE,
    place: Place = None,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Write a board into one file that checks itself, with its artifacts, to import it elsewhere."""
    target = file or Path(f"{board}{EXPORT_SUFFIX}")
    if as_json and str(target) == "-":
        fail("--json tells of a file: with - the export itself is what is printed", EXIT_USAGE)

    def write(opened: BinaryIO) -> None:
        def export_to(source: Source) -> Awaitable[None]:
            return source.export(board, opened, on_progress, with_artifacts=not no_artifacts)

        with progress_of(f"writing {board}") as on_progress:
            run(db, url, export_to, place=place)

    if str(target) == "-":
        write(sys.stdout.buffer)
        return
    with new_file(target) as opened:
        write(opened)
    with answering():
        if as_json:
            print_json({"file": str(target)})
        else:
            typer.echo(f"wrote {target}", err=True)


def import_(
    file: Annotated[Path, typer.Argument(help="What `crdt-board export` wrote; - for standard input.")],
    *,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Make a copy under this name instead of its own.")
    ] = None,
    db: Database = DATABASE,
    place: Place = None,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Make the board that an export holds, under its own name, with its artifacts; everything is verified first.

    A copy under another name has all versions too, with other hashes; pointers go on leading to the board exported.
    """
    with contextlib.ExitStack() as stack:
        on_progress = stack.enter_context(progress_of(f"reading {file}"))
        try:
            opened = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        except OSError as error:
            fail(f"cannot read {file}: {error.strerror or error}")
        if url is None and not db.exists():  # which is not made for a file that is no export
            made = finish(import_into_new(db, place, opened, on_progress, board_id=name))
        else:
            made = run(db, url, lambda source: source.import_(opened, on_progress, board_id=name), place=place)
    with_them = f", with {made.artifacts} artifacts" if made.artifacts else ""
    _print_made(made, as_json, f"made board {made.id} at version {made.version}{with_them}")
    if made.missing:
        with answering():
            typer.echo(
                f"{len(made.missing)} artifacts that it points to are missing here: {made.missing[0]}"
                + (", …" if len(made.missing) > 1 else ""),
                err=True,
            )


def delete(
    board: Board,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Delete a board with all that is stored of it. It cannot be brought back; export it first if in doubt."""
    info = run(db, url, lambda source: source.board(board))
    if not yes:
        question = f"Delete board {board} with {info.seq} entries and {info.version} versions for good?"
        try:
            typer.confirm(question, abort=True, err=True)
        except OSError as error:
            fail(f"nothing was deleted, since you cannot be asked ({error.strerror or error}); --yes deletes unasked")
    run(db, url, lambda source: source.delete(board, agent))
    with answering():
        if as_json:
            print_json({"deleted": board, "version": info.version, "seq": info.seq})
        else:
            typer.echo(f"deleted board {board}")


def _print_made(made: BaseModel, as_json: bool, sentence: str, *, changed: bool = True) -> None:
    with answering() if changed else contextlib.nullcontext():
        if as_json:
            print_json(plain(made))
        else:
            typer.echo(sentence)
