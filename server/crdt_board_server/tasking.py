"""The commands over the tasks of a board: ``tasks list``, ``tasks put`` and so on."""

from __future__ import annotations

import json
from typing import Annotated, get_args

import typer
from pydantic import JsonValue
from rich.text import Text

from crdt_board.coordination.task_operations import FinishedState
from crdt_board.coordination.task_record import TaskState
from crdt_board.errors import BadRequest
from crdt_board.team.task_info import Task
from crdt_board_server.api.team_bodies import (
    CancelRequest,
    ClaimRequest,
    ClearRequest,
    CompleteRequest,
    FailRequest,
    PutTaskRequest,
    ReleaseRequest,
    RenewRequest,
    RetryRequest,
    TeamRequest,
)
from crdt_board_server.sources import Source
from crdt_board_server.terminal import (
    DATABASE,
    EXIT_FAILURE,
    LISTED,
    Agent,
    AsJson,
    Board,
    Database,
    Listed,
    Server,
    age_of,
    answering,
    deciding,
    json_text,
    out,
    plain,
    print_colored_json,
    print_json,
    print_table,
    run,
    short,
    show_time,
    state_option,
    states_of,
)

tasks = typer.Typer(help="List, put and do the tasks of a board.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(help="The key of the task.", show_default=False)]
Token = Annotated[str, typer.Option(help="As `tasks claim` printed it.", show_default=False)]
Queue = Annotated[str | None, typer.Option(help="Only tasks of this queue.")]
Ttl = Annotated[float, typer.Option(help="Seconds after which the task is open again, unless it is renewed.")]


@tasks.command("list")
def list_(
    board: Board,
    *,
    state: Annotated[list[str] | None, state_option("tasks", TaskState)] = None,
    queue: Queue = None,
    limit: Listed = LISTED,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """List the tasks of a board, in the order in which they were put."""

    async def look(source: Source) -> list[Task]:
        return await source.team.tasks(board, states=states_of(state, TaskState), queue=queue, limit=limit)

    found = run(db, url, look)
    if as_json:
        print_json([plain(each) for each in found])
        return
    rows = [
        (each.key, each.queue, each.state, f"{each.attempt}/{each.attempts}", each.agent or "", _remark(each))
        for each in found
    ]
    print_table(("task", "queue", "state", "attempts", "agent", ""), rows, "no tasks")


@tasks.command()
def put(
    board: Board,
    payload: Annotated[str, typer.Argument(help="What is to be done, as JSON.")] = "null",
    *,
    key: Annotated[str | None, typer.Option(help="A name by which it is put once; a random one without.")] = None,
    queue: Annotated[str, typer.Option(help="The queue that agents claim it from.")] = "default",
    priority: Annotated[int, typer.Option(help="Greater ones are claimed first.")] = 0,
    after: Annotated[
        list[str] | None, typer.Option(help="The key of a task that must be done before; can be repeated.")
    ] = None,
    attempts: Annotated[int, typer.Option(help="How often it may be claimed.")] = 3,
    delay: Annotated[float, typer.Option(help="Seconds before it can be claimed.")] = 0.0,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Put a task on a board."""

    def request() -> TeamRequest:
        return PutTaskRequest(
            key=key,
            queue=queue,
            payload=_json(payload, "the payload", '{"file": "a.py"}'),
            priority=priority,
            after=after or [],
            attempts=attempts,
            delay=delay,
            agent=agent,
        )

    task = run(db, url, deciding(board, request))
    _print_task(task, as_json)


@tasks.command()
def claim(
    board: Board,
    queues: Annotated[list[str] | None, typer.Argument(help="From these queues; from any without.")] = None,
    *,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=JSON", help="Only a task whose payload has this, as 'lang=\"py\"'; can be repeated."),
    ] = None,
    ttl: Ttl = 30.0,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Claim the next open task, and print its key, payload and token; exits with 1 when there is none."""

    def request() -> TeamRequest:
        return ClaimRequest(queues=queues or [], where=dict(map(_pair, where or [])), ttl=ttl, agent=agent)

    answer = run(db, url, deciding(board, request))
    with answering():
        if as_json:
            print_json(plain(answer))
        elif answer.task is None:
            out.print("no open task")
        else:
            what = f"attempt {answer.task.attempt} of {answer.task.attempts}, until {show_time(answer.task.expires_ms)}"
            out.print(Text(f"{answer.task.key}: {what}\ntoken {answer.token}"))
            print_colored_json(answer.task.payload)
    if answer.task is None:
        raise typer.Exit(EXIT_FAILURE)


@tasks.command()
def renew(
    board: Board,
    key: Key,
    *,
    token: Token,
    ttl: Ttl = 30.0,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Make a claim last longer."""
    wanted = deciding(board, lambda: RenewRequest(key=key, token=token, ttl=ttl, agent=agent))
    _print_task(run(db, url, wanted), as_json)


@tasks.command()
def complete(
    board: Board,
    key: Key,
    result: Annotated[str, typer.Argument(help="The result, as JSON.")] = "null",
    *,
    token: Token,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say that a claimed task is done."""

    def request() -> TeamRequest:
        return CompleteRequest(key=key, token=token, result=_json(result, "the result", '"checked"'), agent=agent)

    _print_task(run(db, url, deciding(board, request)), as_json)


@tasks.command()
def fail(
    board: Board,
    key: Key,
    error: Annotated[str, typer.Argument(help="What went wrong.", show_default=False)],
    *,
    token: Token,
    retry: Annotated[bool, typer.Option(help="Whether it may be tried again.")] = True,
    delay: Annotated[float, typer.Option(help="Seconds before it can be claimed again.")] = 0.0,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Say that an attempt has failed: the task is open again, or failed after its last one."""

    def request() -> TeamRequest:
        return FailRequest(key=key, token=token, error=error, retry=retry, delay=delay, agent=agent)

    _print_task(run(db, url, deciding(board, request)), as_json)


@tasks.command()
def release(
    board: Board,
    *,
    token: Token,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Give a claimed task back, as if it had not been claimed."""
    answer = run(db, url, deciding(board, lambda: ReleaseRequest(token=token, agent=agent)))
    if as_json or answer.task is not None:
        _print_task(answer.task, as_json)
    else:
        with answering():
            out.print("nothing is claimed by this token")


@tasks.command()
def cancel(
    board: Board, key: Key, *, agent: Agent, db: Database = DATABASE, url: Server = None, as_json: AsJson = False
) -> None:
    """Have nobody do a task any more; whoever has claimed it loses it."""
    _print_task(run(db, url, deciding(board, lambda: CancelRequest(key=key, agent=agent))), as_json)


@tasks.command()
def retry(
    board: Board, key: Key, *, agent: Agent, db: Database = DATABASE, url: Server = None, as_json: AsJson = False
) -> None:
    """Open a failed or cancelled task again, with all its attempts."""
    _print_task(run(db, url, deciding(board, lambda: RetryRequest(key=key, agent=agent))), as_json)


@tasks.command()
def clear(
    board: Board,
    keys: Annotated[list[str] | None, typer.Argument(help="Only these.")] = None,
    *,
    state: Annotated[list[str] | None, state_option("tasks", FinishedState)] = None,
    queue: Queue = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="Only what was finished longer ago: 30d, 12h, 90m, 60s or 8w.")
    ] = None,
    agent: Agent,
    db: Database = DATABASE,
    url: Server = None,
    as_json: AsJson = False,
) -> None:
    """Remove finished tasks with their results, but for those that a blocked one waits for."""
    seconds = 0.0 if older_than is None else age_of("--older-than", older_than).total_seconds()

    def request() -> TeamRequest:
        return ClearRequest(
            keys=keys or None,
            queue=queue,
            states=states_of(state, FinishedState) or list(get_args(FinishedState)),
            older_than_seconds=seconds,
            agent=agent,
        )

    answer = run(db, url, deciding(board, request))
    with answering():
        if as_json:
            print_json(plain(answer))
        else:
            out.print(f"removed {answer.removed} tasks")


def _print_task(task: Task | None, as_json: bool) -> None:
    with answering():
        if as_json:
            print_json(None if task is None else plain(task))
        elif task is not None:
            remark = _remark(task)
            out.print(Text(f"{task.key} is {task.state}" + (f": {remark}" if remark else "")))


def _remark(task: Task) -> str:
    """What there is to say about the state of a task."""
    match task.state:
        case "blocked":
            return short(f"waits for {', '.join(task.waiting_for)}")
        case "delayed":
            return f"until {show_time(task.not_before_ms or 0)}"
        case "claimed":
            return f"until {show_time(task.expires_ms or 0)}"
        case "done":
            return "" if task.result is None else short(json_text(task.result))
        case _:
            return short(task.error or "")


def _json(text: str, what: str, example: str) -> JsonValue:
    try:
        content: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{what} must be JSON, like '{example}': {error}") from None
    return content


def _pair(text: str) -> tuple[str, JsonValue]:
    key, sign, value = text.partition("=")
    if not sign:
        raise BadRequest(f"--where {text}: give a key and its value, as 'lang=\"py\"'")
    return key, _json(value, f"the value of {key}", f'{key}="py"')
