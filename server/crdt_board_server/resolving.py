"""The commands about what is done once: ``steps effects resolve``."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from pydantic import JsonValue, ValidationError

from crdt_board.errors import NotFound
from crdt_board_server.api.effect_answers import BoardEffect, BoardStep, ResolutionRequest
from crdt_board_server.sources import Source
from crdt_board_server.terminal import (
    DATABASE,
    EXIT_USAGE,
    WORK_TOGETHER,
    Agent,
    AsJson,
    Board,
    Database,
    Server,
    answering,
    fail,
    json_text,
    plain,
    print_json,
    print_table,
    run,
    short,
    show_time,
)


def add_commands(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (steps, effects, resolve):
        app.command(rich_help_panel=WORK_TOGETHER)(command)


def steps(board: Board, *, db: Database = DATABASE, url: Server = None, as_json: AsJson = False) -> None:
    """List the steps of a board: which are done, which run, and which are to be run again."""
    found = run(db, url, lambda source: source.effects.steps(board))
    if as_json:
        print_json([plain(each) for each in found])
        return
    headings = ("step", "state", "agent", "begun", "runs", "version", "output")
    print_table(headings, [_step_row(each) for each in found], "no steps yet")


def effects(
    board: Board,
    *,
    in_doubt: Annotated[bool, typer.Option("--in-doubt", help="Only those that somebody has to resolve.")] = False,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List what is done outside at most once: running, in doubt, or done with its result."""
    found = run(db, url, lambda source: source.effects.effects(board))
    found = [each for each in found if each.state == "in_doubt" or not in_doubt]
    if as_json:
        print_json([plain(each) for each in found])
        return
    headings = ("effect", "key", "state", "agent", "since", "result, or what is known")
    print_table(headings, [_effect_row(each) for each in found], "none is in doubt" if in_doubt else "no effects yet")


def resolve(
    board: Board,
    effect: Annotated[str, typer.Argument(help="Its name, as `crdt-board effects` shows it.", show_default=False)],
    key: Annotated[str, typer.Argument(help="Its key.", show_default=False)],
    *,
    took_place: Annotated[
        bool | None, typer.Option("--took-place/--not-done", help="What you have found outside.", show_default=False)
    ] = None,
    result: Annotated[str, typer.Option(help="What it gave, as JSON, when it took place.")] = "null",
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say of an effect that is in doubt whether it took place: look at the outside system first.

    With --took-place everybody who asks for it gets the --result; with --not-done the next agent that asks runs it.
    """
    if took_place is None:
        fail("say what you have found outside, with --took-place or --not-done", EXIT_USAGE)
    try:
        parsed: JsonValue = json.loads(result)
        wanted = ResolutionRequest(effect=effect, key=key, took_place=took_place, result=parsed, agent=agent)
    except ValidationError as error:
        fail(f"{error.errors()[0]['loc'][0]}: {error.errors()[0]['msg']}")
    except (ValueError, RecursionError) as error:
        fail(f"--result is not JSON: {error}; a text needs quotes, as --result '\"done\"'")

    async def settle(source: Source) -> BoardEffect | None:
        known = {(each.effect, each.key) for each in await source.effects.effects(board)}
        if (effect, key) not in known:  # to the board that would be a resolution said twice, to a person a typing error
            raise NotFound(
                f"board {board} has no effect {effect} {key}, so none is in doubt: see `crdt-board effects {board}`"
            )
        return await source.effects.resolve(board, wanted)

    resolved = run(db, url, settle)
    with answering():
        if as_json:
            print_json({"effect": None if resolved is None else plain(resolved)})
        elif resolved is None:
            typer.echo(f"{effect} {key} did not take place, and may run again")
        else:
            typer.echo(f"{effect} {key} took place; its result is {json_text(resolved.result)}")


def _step_row(step: BoardStep) -> tuple[str, ...]:
    is_done = step.state == "done"
    version, output = (str(step.version), short(json_text(step.output))) if is_done else ("", "")
    return step.step, step.state, step.agent, show_time(step.begun_ms), str(step.runs), version, output


def _effect_row(effect: BoardEffect) -> tuple[str, ...]:
    known = {"in_doubt": effect.reason, "done": json_text(effect.result)}.get(effect.state, "")
    state = effect.state.replace("_", " ")
    return effect.effect, effect.key, state, effect.agent, show_time(effect.since_ms), short(known)
