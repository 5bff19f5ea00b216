"""Commands whose answer cannot be printed: what they change is changed, and their exit status says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from pydantic import model_validator
from typer.main import get_command

from crdt_board import BoardHost, BoardModel, Text, open_board
from crdt_board.artifacts import Artifacts, open_artifacts
from crdt_board.artifacts.opening import beside
from crdt_board.board import Board
from crdt_board.coordination.leases import AcquireLease
from crdt_board.coordination.task_operations import ClaimTask
from crdt_board.exports import export_board
from crdt_board.store.sqlite import SqliteStore
from crdt_board_server.cli import app
from support.children import child
from support.unheard import broken_pipe
from support.waiting import DEADLINE_SECONDS

_TESTS = Path(__file__).resolve().parent
_PROGRAM = str(Path(sys.executable).with_name("crdt-board"))

_CHANGE_NOTHING = {
    *("serve", "demo", "boards", "show", "history", "diff", "blame", "watch", "violations", "verify", "sizes"),
    *("forks", "approvals", "effects", "steps", "agents"),
    *("tasks list", "artifacts list", "artifacts show"),
    *("export", "artifacts get"),  # their answer is what they are for
}

_ELSEWHERE = {"serve", "demo", "agents", "export", "artifacts get", "artifacts show"}
"""They need a server or an artifact, or have been told by tests of their own where they cannot write."""


class Job(BoardModel):
    draft: Text
    start: int = 1
    end: int = 5

    @model_validator(mode="after")
    def ends_after_start(self) -> Self:
        if self.start > self.end:
            raise ValueError("ends before it starts")
        return self


def lost() -> int:
    raise ConnectionResetError("the answer is lost")


async def _break_a_rule(board: Board[Job], host: BoardHost) -> None:
    async with open_board(host, "job", agent="bob") as careless:
        careless.state["start"] = 9
        await careless.flush(DEADLINE_SECONDS)
    await board.wait_for(lambda _state: any(each.agent for each in board.violations), DEADLINE_SECONDS)


async def _claim(board: Board[Job], key: str) -> str:
    """Put a task that this process claims without holding on to it; the token of the claim."""
    await board.tasks.put(None, key=key, queue=key)
    await board._desk.ask(ClaimTask(queues=(key,), token=f"the-token-of-{key}", ttl_ms=3_600_000))
    return f"the-token-of-{key}"


async def commands(folder: Path) -> list[list[str]]:
    """One of each command that changes something, over boards on which it does."""
    file, other = folder / "boards.db", folder / "other.db"
    async with open_board(other, "imported", Job, agent="ann") as board:
        board.state.draft.append("imported")
        await board.commit("made")
    async with BoardHost(await SqliteStore.open(other)) as host:
        with (folder / "imported.export").open("wb") as opened:
            await export_board(host.store, "imported", opened, artifacts=None)
    async with BoardHost(await SqliteStore.open(file)) as host, open_board(host, "job", Job, agent="ann") as board:
        board.on("end", name="check", attempts=1)(lambda _event: lost())
        board.state.end = 6
        await board.settled(DEADLINE_SECONDS)
        for step in ("first", "second"):
            board.state.draft.append(step)
            await board.commit(step)
        await board.fork("side")
        async with open_board(host, "side", Job, agent="ann") as side:
            side.state.draft.append("aside")
            await side.flush()
        with pytest.raises(ConnectionResetError):
            await board.effect("order", "o", lost)
        for key in ("ship", "lunch"):
            await board.ask("Ship it?", key=key, about=["draft"])
        tokens = {key: await _claim(board, key) for key in ("renewed", "done", "failed", "released")}
        for key in ("open", "cancelled", "cleared", "retried"):
            await board.tasks.put(None, key=key, queue=key)
        for key in ("cleared", "retried"):
            await board.tasks.cancel(key)
        await board._desk.ask(AcquireLease(name="held", token="the-token-of-held", ttl_ms=3_600_000))
        await _break_a_rule(board, host)
    put = folder / "artifact.txt"
    put.write_text("old")
    old = await Artifacts(open_artifacts(beside(file))).put(put)
    os.utime(Path(beside(file)) / "sha256" / old.pointer.rsplit(":", 1)[1], (0, 0))
    put.write_text("new")
    rows = [
        ["dismiss", "job", "ends_after_start@"],
        ["decide", "job", "ship", "approve"],
        ["withdraw", "job", "lunch"],
        ["ask", "job", "Another?"],
        ["tasks", "put", "job"],
        ["tasks", "claim", "job", "open"],
        ["tasks", "renew", "job", "renewed", "--token", tokens["renewed"]],
        ["tasks", "complete", "job", "done", "--token", tokens["done"]],
        ["tasks", "fail", "job", "failed", "broken", "--token", tokens["failed"]],
        ["tasks", "release", "job", "--token", tokens["released"]],
        ["tasks", "cancel", "job", "cancelled"],
        ["tasks", "retry", "job", "retried"],
        ["tasks", "clear", "job", "cleared"],
        ["leases", "job", "--break", "held"],
        ["reactions", "job", "--retry", "check@end"],
        ["resolve", "job", "order", "o", "--not-done"],
        ["artifacts", "put", str(put)],
        ["artifacts", "sweep", "--grace", "1s"],
        ["create", "new"],
        ["fork", "job", "branch"],
        ["merge", "job", "side"],
        ["restore", "job", "1"],
        ["retention", "job", "--keep-versions", "3"],
        ["compact", "job", "--keep-versions", "1"],
        ["import", str(folder / "imported.export")],
        ["delete", "side", "--yes"],
    ]
    return [[*row, "--db", str(file)] for row in rows]


async def stored(file: Path) -> Any:
    """All that a command can change."""
    store = await SqliteStore.open(file)
    heads = await store.boards()
    kept = [(await store.retention(head.board_id), await store.base(head.board_id)) for head in heads]
    await store.close()
    artifacts = [each async for each in open_artifacts(beside(file)).all()]
    return heads, kept, artifacts


def _names(command: Any, before: str = "") -> set[str]:
    if hasattr(command, "commands"):
        return {name for each, inner in command.commands.items() for name in _names(inner, f"{before} {each}".strip())}
    return {before}


def _name(row: Sequence[str]) -> str:
    return " ".join(row[: 2 if row[0] in ("tasks", "artifacts") else 1])


@pytest.mark.long
async def test_every_command_makes_its_change_though_nobody_reads_the_pipe(tmp_path: Path) -> None:
    """Each command of the program that changes something; it ends with 0, and standard error says that its answer is
    lost."""
    rows = await commands(tmp_path)
    assert {_name(row) for row in rows} | _CHANGE_NOTHING == _names(get_command(app))
    before = await stored(tmp_path / "boards.db")
    async with child([sys.executable, "-m", "support.unheard"]) as process:
        for row in rows:
            status, said = await process.ask(*row)
            assert (status, said) == (0, "done, but the answer could not be written: Broken pipe\n"), row
            after = await stored(tmp_path / "boards.db")
            assert after != before, row
            before = after


@pytest.mark.long
@pytest.mark.parametrize(
    ("output", "reason", "tail"),
    [((), "Broken pipe", []), (("/dev/full",), "No space left on device", ["--json"])],
    ids=["pipe", "full"],
)
async def test_a_command_that_only_looks_fails_in_one_line_when_it_is_not_heard(
    tmp_path: Path, output: tuple[str, ...], reason: str, tail: list[str]
) -> None:
    """Each command that changes nothing, for people and as JSON; all of them have something to tell."""
    await commands(tmp_path)
    rows = [
        *(["boards"], ["show", "job"], ["history", "job"], ["history", "job", "draft"], ["diff", "job", "0"]),
        *(["blame", "job", "draft"], ["watch", "job", "--after", "0"], ["violations", "job"], ["verify", "job"]),
        *(["sizes", "job"], ["forks", "job"], ["approvals", "job"], ["effects", "job"], ["steps", "job"]),
        *(["tasks", "list", "job"], ["artifacts", "list"], ["leases", "job"], ["reactions", "job"]),
        *(["retention", "job"],),
    ]
    assert _CHANGE_NOTHING - {_name(row) for row in rows} == _ELSEWHERE
    async with child([sys.executable, "-m", "support.unheard", *output]) as process:
        for row in rows:
            status, said = await process.ask(*row, *tail, "--db", str(tmp_path / "boards.db"))
            assert (status, said) == (1, f"error: the answer could not be written: {reason}\n"), row
        status, said = await process.ask("--version")
        assert (status, said) == (1, f"error: the answer could not be written: {reason}\n")


async def test_what_is_not_done_is_a_failure_though_nobody_reads_the_pipe(tmp_path: Path) -> None:
    """A decision that is refused ends with 1 and the reason, not with what became of the pipe."""
    await commands(tmp_path)
    async with child([sys.executable, "-m", "support.unheard"]) as process:
        for option, expected in (("perhaps", 1), ("approve", 0), ("reject", 1)):
            status, said = await process.ask("decide", "job", "ship", option, "--db", str(tmp_path / "boards.db"))
            assert (status, said.startswith("error: ")) == (expected, expected == 1), said


def _put(folder: Path, key: str, redirections: str) -> int:
    command = f"exec {_PROGRAM} tasks put job --key {key} --db {folder / 'boards.db'} {redirections}"
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=60, check=False).returncode


async def test_a_full_or_closed_output_has_an_exit_status_of_its_own(tmp_path: Path) -> None:
    """The change is made, and a script that was to read the answer hears that it has none."""
    async with open_board(tmp_path / "boards.db", "job", agent="ann") as board:
        assert _put(tmp_path, "full", "> /dev/full") == 3
        assert _put(tmp_path, "closed", ">&-") == 3
        assert _put(tmp_path, "silent", ">&- 2>&-") == 3
        await board.wait_for(lambda _state: len(board.tasks.all()) == 3, DEADLINE_SECONDS)


async def test_a_question_that_nobody_can_answer_deletes_nothing(tmp_path: Path) -> None:
    async with open_board(tmp_path / "boards.db", "job", agent="ann"):
        pass
    done = subprocess.run(
        [_PROGRAM, "delete", "job", "--db", str(tmp_path / "boards.db")],
        stdin=subprocess.DEVNULL,
        stdout=broken_pipe(),
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "nothing was deleted, since you cannot be asked" in done.stderr
    heads, *_ = await stored(tmp_path / "boards.db")
    assert [head.board_id for head in heads] == ["job"]
