"""The commands for agents that work together: ``leases agents``, and those of `tasking`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from crdt_board_server.api.team_bodies import BreakLeaseRequest
from crdt_board_server.tasking import tasks
from crdt_board_server.terminal import (
    DATABASE,
    WORK_TOGETHER,
    Agent,
    AsJson,
    Board,
    Database,
    Server,
    deciding,
    out,
    plain,
    print_json,
    print_table,
    run,
    show_time,
)


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.add_typer(tasks, name="tasks", rich_help_panel=WORK_TOGETHER)
    app.command(rich_help_panel=WORK_TOGETHER)(leases)
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

    A holder that is not gone is refused when it commits under the lease.
    """
    if to_break is not None:
        broken = run(db, url, deciding(board, lambda: BreakLeaseRequest(name=to_break, agent=agent)))
        if as_json:
            print_json(plain(broken))
        else:
            out.print(Text(f"{', '.join(each.agent for each in broken.holders) or 'nobody'} had {to_break}"))
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


def agents(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List who is on a board at a server now."""
    found = run(db, url, lambda source: source.team.agents(board))
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [(each.agent, each.role or "", each.step or "", each.focus or "") for each in found]
    print_table(("agent", "role", "step", "focus"), rows, "nobody")
