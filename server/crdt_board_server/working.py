"""The commands for agents that work together: ``leases reactions agents``, and those of `tasking`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from crdt_board.coordination.reactions import ReactionState
from crdt_board.errors import BadRequest
from crdt_board_server.api.team_bodies import BoardReaction, BreakLeaseRequest, RetryReactionRequest, TeamRequest
from crdt_board_server.sources import Source
from crdt_board_server.tasking import tasks
from crdt_board_server.terminal import (
    DATABASE,
    EXIT_FAILURE,
    LISTED,
    WORK_TOGETHER,
    Agent,
    AsJson,
    Board,
    Database,
    Listed,
    Server,
    answering,
    deciding,
    out,
    plain,
    print_json,
    print_table,
    run,
    short,
    show_time,
    state_option,
    states_of,
    visible,
)


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(tasks, name="tasks", rich_help_panel=WORK_TOGETHER)
    app.command(rich_help_panel=WORK_TOGETHER)(leases)
    app.command(rich_help_panel=WORK_TOGETHER)(reactions)
    app.command(rich_help_panel=WORK_TOGETHER)(agents)


def leases(
    board: Board,
    *,
    to_break: Annotated[
        str | None, typer.Option("--break", metavar="NAME", help="Take this lease from whoever has it.")
    ] = None,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List the leases that are held on a board; with --break, end one whose holder is known to be gone.

    A holder that is not gone is refused when it commits under the lease. Exits with 1 when nobody has it.
    """
    if to_break is not None:
        broken = run(db, url, deciding(board, lambda: BreakLeaseRequest(name=to_break, agent=agent)))
        with answering():
            if as_json:
                print_json(plain(broken))
            else:
                out.print(Text(f"{', '.join(each.agent for each in broken.holders) or 'nobody'} had {to_break}"))
        if not broken.holders:
            raise typer.Exit(EXIT_FAILURE)
        return
    found = run(db, url, lambda source: source.team.leases(board))
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [
        (each.name, "shared" if each.shared else "", holder.agent, str(holder.fence), show_time(holder.expires_ms))
        for each in found
        for holder in each.holders
    ]
    print_table(("lease", "", "agent", "fence", "until"), rows, "nothing is held")


def reactions(
    board: Board,
    *,
    state: Annotated[list[str] | None, state_option("those", ReactionState)] = None,
    limit: Listed = LISTED,
    to_retry: Annotated[
        str | None,
        typer.Option("--retry", metavar="NAME@PATH", help="Run this one again, which failed, with all its attempts."),
    ] = None,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List what has run of the reactions of a board, at each place; with --retry, have one run again that failed.

    Whoever has the reaction runs it, at once or when it comes, if its condition holds there.
    """
    if to_retry is not None:

        def request() -> TeamRequest:
            name, sign, path = to_retry.partition("@")
            if not sign:
                raise BadRequest(f"--retry {to_retry}: give the reaction and the place, as escalate@findings/f1")
            return RetryReactionRequest(name=name, path=path, agent=agent)

        armed = run(db, url, deciding(board, request))
        with answering():
            if as_json:
                print_json(plain(armed))
            else:
                out.print(Text(visible(f"{armed.name} at {armed.path} is {armed.state}")))
        return

    async def look(source: Source) -> Sequence[BoardReaction]:
        return await source.team.reactions(board, states=states_of(state, ReactionState), limit=limit)

    found = run(db, url, look)
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [
        (each.name, each.path, each.state, str(each.attempts), str(each.runs), each.agent, _remark(each))
        for each in found
    ]
    print_table(("reaction", "at", "state", "attempts", "runs", "agent", ""), rows, "no reaction has run yet")


def _remark(reaction: BoardReaction) -> str:
    until = f"until {show_time(reaction.until_ms)}" if reaction.until_ms is not None else ""
    return short(f"{until}: {reaction.error}" if until and reaction.error else until or reaction.error)


def agents(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List who is on a board at a server now."""
    found = run(db, url, lambda source: source.team.agents(board))
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [(each.agent, each.role or "", each.step or "", each.focus or "") for each in found]
    print_table(("agent", "role", "step", "focus"), rows, "nobody")
