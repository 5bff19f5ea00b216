"""The commands for people who decide: ``ask approvals decide withdraw``."""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from pydantic import JsonValue, ValidationError
from rich.text import Text

from crdt_board.coordination.approvals import DEFAULT_OPTIONS, overlaps
from crdt_board.errors import NotFound
from crdt_board.history import StateDiff
from crdt_board.values import from_validation_error
from crdt_board_server.api.approval_answers import AskRequest, BoardApproval, ShownApproval
from crdt_board_server.sources import Source
from crdt_board_server.terminal import (
    DATABASE,
    WORK_TOGETHER,
    Agent,
    AsJson,
    Board,
    Database,
    Server,
    age_of,
    answering,
    fail,
    out,
    plain,
    print_diff,
    print_json,
    print_table,
    run,
    short,
    show_time,
    visible,
)

_HASH_DIGITS = 12
_LINE_CHARS = 80
_LINES_MAX = 20
"""How much is shown of one place that an approval is about, of what differs, and of the payload."""

ApprovalArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The approval, as `crdt-board approvals` names it.", show_default=False)
]


class StateOption(enum.StrEnum):
    """What `crdt-board approvals` lists."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"
    ALL = "all"


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (ask, approvals, decide, withdraw):
        app.command(rich_help_panel=WORK_TOGETHER)(command)


def approvals(
    board: Annotated[str | None, typer.Argument(help="The board; all boards without.")] = None,
    approval_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Show this approval, with what it is about.")
    ] = None,
    *,
    state: Annotated[StateOption, typer.Option(help="Only those in this state.")] = StateOption.PENDING,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List what waits for somebody to decide; with an ID show what it is about, and what was changed there."""
    if board is not None and approval_id is not None:
        _show(*_look(board, approval_id, db, url), as_json=as_json)
        return

    async def look(source: Source) -> list[BoardApproval]:
        return await (source.approvals.everywhere() if board is None else source.approvals.of(board))

    found = [each for each in run(db, url, look) if state in (StateOption.ALL, each.state)]
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [_row(each) for each in found]
    headings = ("board", "id", "state", "question", "options", "about", "asked by", "asked", "expires")
    print_table(headings, rows, "nothing waits for a decision" if state == StateOption.PENDING else "none")


def ask(
    board: Board,
    question: Annotated[str, typer.Argument(help="What people are to decide.", show_default=False)],
    *,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="An answer to choose, repeated for each; approve and reject without."),
    ] = None,
    about: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH", help="A field, or a place in one, whose change supersedes the question; can be repeated."
        ),
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="AGE", help="After what time: 30d, 12h, 90m, 60s.")] = None,
    key: Annotated[str | None, typer.Option(help="Its id, under which it is asked once; a random one without.")] = None,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Ask people a question, and print its id. `approvals` shows what became of it."""
    seconds = None if expires is None else age_of("--expires", expires).total_seconds()

    async def put(source: Source) -> BoardApproval:
        try:
            wanted = AskRequest(
                question=question,
                options=tuple(option or DEFAULT_OPTIONS),
                about=tuple(about or ()),
                expires_seconds=seconds,
                key=key,
                agent=agent,
            )
        except ValidationError as error:
            raise from_validation_error(error, "") from None
        return await source.approvals.ask(board, wanted)

    asked = run(db, url, put)
    with answering():
        if as_json:
            print_json(plain(asked))
        else:
            typer.echo(asked.id)


def decide(
    board: Board,
    approval_id: ApprovalArgument,
    option: Annotated[str, typer.Argument(help="One of its options.", show_default=False)],
    *,
    comment: Annotated[str, typer.Option(help="Why.")] = "",
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Choose an option of an approval. Shows first what it is about, and what was changed there since its version.

    It is decided once, and refused when it has expired, or when what it is about has changed since it was asked.
    """
    shown, diff = _look(board, approval_id, db, url)
    if shown.state == "pending" and option not in shown.options:
        fail(f"approval {approval_id} is decided by one of {', '.join(shown.options)}, not {option}")
    if not as_json:
        with contextlib.suppress(OSError):  # who decides has named the option, and need not read this
            _print(shown, diff)

    async def choose(source: Source) -> BoardApproval:
        return await source.approvals.decide(shown, option, comment=comment, agent=agent)

    decided = run(db, url, choose)
    with answering():
        if as_json:
            print_json(plain(decided))
        else:
            out.print(Text.assemble("decided: ", (visible(option), "bold green"), f", as {visible(agent)}"))


def withdraw(
    board: Board,
    approval_id: ApprovalArgument,
    *,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Take a question back that needs no answer any more."""
    withdrawn = run(db, url, lambda source: source.approvals.withdraw(board, approval_id, agent))
    with answering():
        if as_json:
            print_json(plain(withdrawn))
        else:
            typer.echo(f"withdrew {approval_id}")


def _row(approval: BoardApproval) -> tuple[str, ...]:
    return (
        approval.board,
        approval.id,
        _state_of(approval),
        short(" ".join(approval.question.split())),
        " | ".join(approval.options),
        ", ".join(approval.about),
        approval.agent,
        show_time(approval.asked_ms),
        "" if approval.expires_ms is None else show_time(approval.expires_ms),
    )


def _look(board: str, approval_id: str, db: Any, url: str | None) -> tuple[ShownApproval, StateDiff | None]:
    """An approval, and what differs now from the version that it is bound to."""

    async def look(source: Source) -> tuple[ShownApproval, StateDiff | None]:
        shown = await source.approvals.one(board, approval_id)
        if shown.forked or not shown.about:
            return shown, None
        try:
            return shown, await source.diff(board, shown.version, None)
        except NotFound:  # the version was compacted away
            return shown, None

    return run(db, url, look)


def _show(shown: ShownApproval, diff: StateDiff | None, *, as_json: bool) -> None:
    if as_json:
        print_json(plain(shown))
    else:
        _print(shown, diff)


def _print(shown: ShownApproval, diff: StateDiff | None) -> None:
    out.print(Text(visible(shown.question), style="bold"))
    until = "" if shown.expires_ms is None else f", expires {show_time(shown.expires_ms)}"
    _line(f"{shown.id} on {shown.board}, asked by {shown.agent} {show_time(shown.asked_ms)}{until}")
    _line(_state_of(shown), style="green" if shown.state == "pending" else "yellow")
    if shown.decision is not None and shown.decision.comment:
        _line(shown.decision.comment)
    _line(f"options: {' | '.join(shown.options)}")
    if shown.payload is not None:
        _print_value("payload", shown.payload, f"approvals {shown.board} {shown.id} --json")
    if not shown.about:
        return
    origin = " of the board that this one was forked from" if shown.forked else ""
    _line(f"about version {shown.version}{origin}, hash {shown.hash[:_HASH_DIGITS]}:")
    for path, value in shown.content.items():
        _print_value(path, value, f"show {shown.board}")
    lines = [] if diff is None else _lines_about(diff, shown.about)
    if lines:
        _line(f"what differs there now from version {shown.version}:")
        print_diff([short(line) for line in lines[:_LINES_MAX]])
        _print_rest(lines, f"diff {shown.board} {shown.version}")


def _print_value(name: str, value: JsonValue, command: str) -> None:
    """The beginning of ``value``; ``command`` shows the rest, if there is any."""
    first, *more = lines = _readable(value).split("\n")
    _line(f"{name}:" if more else f"{name}: {short(first)}")
    for line in lines[:_LINES_MAX] if more else []:
        _line(f"  {short(line)}")
    _print_rest(lines, command)


def _print_rest(lines: Sequence[str], command: str) -> None:
    """Where to see what was not printed of lines, if anything was not."""
    if len(lines) > _LINES_MAX:
        _line(f"  … {len(lines) - _LINES_MAX} more lines, see `crdt-board {command}`")
    elif any(short(line) != line for line in lines):
        _line(f"  … long lines were cut, see `crdt-board {command}`")


def _lines_about(diff: StateDiff, about: Sequence[str]) -> list[str]:
    return [line for each in diff.differences if overlaps(about, each.path) for line in str(each).splitlines()]


def _state_of(approval: BoardApproval) -> str:
    decision = approval.decision
    if decision is None or decision.state == "expired":
        return approval.state
    return f"decided: {decision}" if decision.state == "decided" else str(decision)


def _readable(value: JsonValue) -> str:
    """``value`` the same every time, on several lines when it is long."""
    if isinstance(value, str):
        return value.rstrip("\n")
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LINE_CHARS else json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2)


def _line(content: str, style: str = "") -> None:
    out.print(Text(f"  {visible(content)}", style=style))
