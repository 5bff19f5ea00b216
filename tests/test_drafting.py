"""The drafting example: a whole team on one text, scripted, killed and resumed, with a person or without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from crdt_board import Approval, Board, open_board
from crdt_board_client import connect
from examples.drafting.board import Draft, Stuck, outline
from examples.drafting.flow import Flow
from examples.drafting.model import ModelFailed, Outline, Remark, Verdict
from examples.drafting.person import yes
from examples.drafting.scripted import REVIEW, TEXT, Scripted
from support.fake_endpoint import fake_endpoint, raw, streaming
from support.server import ServerProcess

PROJECT = Path(__file__).resolve().parent.parent
SECONDS = 90
DRAFTING = [sys.executable, "-W", "error", "-m", "examples.drafting"]
# The same, but what a dead process was at is taken over sooner.
IMPATIENT = [
    *(sys.executable, "-W", "error", "-c"),
    "import sys; from examples.drafting import __main__, flow; flow.CLAIM_SECONDS = 2.0; sys.exit(__main__.main())",
]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}


@contextlib.asynccontextmanager
async def drafting(
    *arguments: str, command: Sequence[str] = DRAFTING, stdin: int = asyncio.subprocess.DEVNULL, **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the flow; killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *command,
        *arguments,
        cwd=PROJECT,
        env={**ENVIRONMENT, **environment},
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(SECONDS):
        out, errors = await process.communicate()
    return process.returncode, out.decode(), errors.decode()


async def run(*arguments: str, command: Sequence[str] = DRAFTING, **environment: str) -> tuple[int | None, str, str]:
    async with drafting(*arguments, command=command, **environment) as process:
        return await ended(process)


@pytest.fixture(params=["embedded", "served"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """The arguments that say where the board is."""
    if request.param == "embedded":
        return ["--db", str(tmp_path / "boards.db")]
    server: ServerProcess = request.getfixturevalue("shared_server")
    return ["--url", server.url]


def reader_at(place: str, board_id: str) -> AbstractAsyncContextManager[Board[Draft]]:
    if place.startswith("ws://"):
        return connect(place, board_id, Draft, agent="reader")
    return open_board(place, board_id, Draft, agent="reader")


def final_text(accepted: bool = True) -> str:
    """What the script leads to."""
    text = outline("How SQLite keeps your data", list(TEXT))
    for title, body in TEXT.items():
        text = text.replace(f"## {title}\n\n", f"## {title}\n\n{body}")
    for old, _, new, verdict in REVIEW:
        if accepted and verdict.accepted:
            text = text.replace(old, new)
    return text


async def check_finished(board: Board[Draft]) -> None:
    """Each section written once, each passage looked at once, one approval, and comments on what they are about."""
    now = board.snapshot()
    assert now.status == "published"
    assert now.draft == final_text()
    assert {task.key: task.state for task in board.tasks.all()} == dict.fromkeys(
        ("write s1", "write s2", "write s3"), "done"
    )
    steps = Counter(made.step.partition(" as ")[0] for made in await board.checkpoints())
    assert steps == {
        **dict.fromkeys(("plan", "write s1", "write s2", "write s3", "finish"), 1),
        **dict.fromkeys(("check", "propose", "answer"), 3),
    }
    assert [approval.state for approval in board.approvals] == ["decided"]
    passages = {
        (board.state.draft.anchor_from(each.anchor).quote, each.quote, each.text) for each in now.comments.values()
    }
    assert passages == {(new if verdict.accepted else old, old, comment) for old, comment, new, verdict in REVIEW}
    assert Counter(each.state for each in now.proposals.values()) == {"accepted": 2, "refused": 1}


async def test_the_flow_from_the_command_line(where: list[str], board_id: str) -> None:
    """It ends with the text that the script leads to, tells about it, and does nothing when it is run again."""
    code, out, errors = await run(*where, "--board", board_id, "--yes")
    assert (code, errors) == (0, "")
    for told in (
        "writer-3  has written",
        "fact-checker  on 'A database",
        "refused by writer",
        "== Who wrote it",
        "@1#",
    ):
        assert told in out
    assert final_text() in out
    async with reader_at(where[1], board_id) as board:
        await check_finished(board)
        version = board.version
        code, out, errors = await run(*where, "--board", board_id)
        assert (code, errors) == (0, "")
        assert "wants a section" not in out
        assert "== The text (published) ==" in out
        assert board.version == version


# Killed and resumed.


async def several_changes(board: Board[Draft], number: int) -> None:
    async for _ in board.changes():
        number -= 1
        if number <= 0:
            return


async def killed_after(where: Sequence[str], board: Board[Draft], changes: int) -> bool:
    """Start the flow, and kill it when so much has changed; False when it came to its end before."""
    async with drafting(*where, "--board", board.id, "--yes", command=IMPATIENT) as process, asyncio.timeout(SECONDS):
        watching = asyncio.create_task(several_changes(board, changes))
        ending = asyncio.create_task(process.communicate())
        await asyncio.wait([watching, ending], return_when=asyncio.FIRST_COMPLETED)
        killed = process.returncode is None
        if killed:
            process.kill()
        await ending
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return killed


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
async def test_a_flow_that_is_killed_goes_on_where_it_was(where: list[str], board_id: str, seed: int) -> None:
    """D1: after kill -9 at random moments each section is there once, and one approval was decided."""
    moments = random.Random(f"{seed} {where[0]}")
    async with reader_at(where[1], board_id) as board:
        kills = 0
        for magnitude in (1, 1, 1.5, 2, 2):
            kills += await killed_after(where, board, int(10 ** moments.uniform(0, magnitude)))
        assert kills >= 2
        code, _, errors = await run(*where, "--board", board_id, "--yes")
        assert (code, errors) == (0, "")
        await board.wait_for(lambda state: state.status == "published", timeout=SECONDS)
        await check_finished(board)


async def test_two_runs_at_once_help_each_other(where: list[str], board_id: str) -> None:
    """V6: two processes on one board share the work, and the result is the same."""
    arguments = [*where, "--board", board_id, "--yes"]
    runs = await asyncio.gather(run(*arguments), run(*arguments))
    assert [(code, errors) for code, _, errors in runs] == [(0, "")] * 2
    assert all(final_text() in out for _, out, _ in runs)
    async with reader_at(where[1], board_id) as board:
        await check_finished(board)


async def test_the_server_is_killed_under_the_flow(server: ServerProcess) -> None:
    """V8: a server that is killed in the middle and started again changes nothing in the result."""
    async with drafting("--url", server.url, "--yes") as process:
        async with reader_at(server.url, "draft-1") as board:
            await several_changes(board, 40)
        await server.kill9()
        await server.start()
        code, _, errors = await ended(process)
    if code:  # the server was away for longer than a claim lasts: it says so, and the next run goes on
        assert "Traceback" not in errors
        code, _, errors = await run("--url", server.url, "--yes")
    assert code == 0, errors
    async with reader_at(server.url, "draft-1") as board:
        await check_finished(board)


async def test_an_interrupted_flow_stops_cleanly_and_goes_on(tmp_path: Path) -> None:
    """Ctrl-C ends it with 130 and one line; the next run has nothing to wait for, and finishes."""
    place = str(tmp_path / "boards.db")
    async with reader_at(place, "draft-1") as board, drafting("--db", place, "--yes") as process:
        await several_changes(board, 30)
        process.send_signal(signal.SIGINT)
        code, _, errors = await ended(process)
        assert code == 130
        assert errors.strip() == "stopped; the same command goes on from here"
        assert board.leases == []
        assert not board.tasks.all("claimed")
        code, out, errors = await run("--db", place, "--yes")
        assert (code, errors) == (0, "")
        assert "waits for another run" not in out
        await board.wait_for(lambda state: state.status == "published", timeout=SECONDS)
        await check_finished(board)


# The person.


async def test_a_person_decides_from_elsewhere(where: list[str], board_id: str) -> None:
    """Without a terminal it says how to decide; the command that it shows ends it."""
    async with drafting(*where, "--board", board_id) as process, asyncio.timeout(SECONDS):
        assert process.stdout is not None
        line = ""
        while not line.startswith("crdt-board decide"):
            line = (await process.stdout.readline()).decode().strip()
        command = line.partition("    ")[0].replace("approve", "reject").split()
        command[0] = str(Path(sys.executable).with_name("crdt-board"))
        deciding = await asyncio.create_subprocess_exec(
            *command, "--comment", "Too long.", stdout=asyncio.subprocess.PIPE
        )
        await deciding.communicate()
        assert deciding.returncode == 0
        code, out, errors = await ended(process)
    assert (code, errors) == (0, "")
    assert "== The text (rejected) ==" in out


async def test_a_person_decides_on_the_terminal(tmp_path: Path) -> None:
    """At a terminal it asks, again when it does not understand, and takes y for approval."""
    ours, theirs = pty.openpty()
    os.write(ours, b"maybe\n")
    try:
        async with drafting("--db", str(tmp_path / "boards.db"), stdin=theirs) as process, asyncio.timeout(SECONDS):
            assert process.stdout is not None
            await process.stdout.readuntil(b"Approve? [y/n] Approve? [y/n] ")
            os.write(ours, b"y\n")
            code, out, errors = await ended(process)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (code, errors) == (0, "")
    assert "approve, by person" in out


# Agents, in this process.


async def finished(board: Board[Draft], model: Scripted, person: Callable[..., Awaitable[None]] = yes) -> list[str]:
    """Run the flow to its end; returns what was said."""
    said: list[str] = []
    async with asyncio.timeout(SECONDS):
        flow = Flow(board, model, person, lambda agent, what: said.append(f"{agent} {what}"))
        await flow.run("How SQLite keeps your data")
    return said


@pytest.fixture
async def board() -> AsyncIterator[Board[Draft]]:
    async with open_board(":memory:", "draft", Draft, agent="planner") as board:
        yield board


async def test_comments_follow_their_passages(board: Board[Draft]) -> None:
    """A comment made while others write above its passage is on the same words in the end, at another place."""
    slow = {"Where it comes from", "What happens at a commit"}

    class LateBeginning(Scripted):
        async def write(self, topic: str, title: str, brief: str) -> AsyncIterator[str]:
            if title in slow:
                await board.wait_for(lambda state: state.comments)
            async for token in super().write(topic, title, brief):
                yield token

    await finished(board, LateBeginning(0))
    comment = board.snapshot().comments["s3-1"]
    then = next(made for made in reversed(await board.checkpoints()) if made.step == "check")
    passage = board.state.draft.anchor_from(comment.anchor)
    assert passage.quote == comment.quote
    assert passage.start > (await board.at(then)).draft.index(comment.quote) + 500


async def test_a_refused_replacement_leaves_the_text_alone(board: Board[Draft]) -> None:
    """When the authors refuse everything, the text is what they wrote."""

    class Stubborn(Scripted):
        async def judge(self, old: str, new: str, comment: str) -> Verdict:
            return Verdict(accepted=False, reason="No.")

    await finished(board, Stubborn(0))
    assert board.state.draft == final_text(accepted=False)
    assert {each.state for each in board.snapshot().proposals.values()} == {"refused"}


async def test_a_passage_that_has_changed_is_not_replaced(board: Board[Draft]) -> None:
    """A proposal for words that somebody has changed since is refused, and their change stays."""

    class Meanwhile(Scripted):
        async def judge(self, old: str, new: str, comment: str) -> Verdict:
            board.as_agent("eve").state.draft.replace(old, old.replace(" ", "  ", 1))
            return Verdict(accepted=True, reason="Yes.")

    await finished(board, Meanwhile(0))
    assert {each.state for each in board.snapshot().proposals.values()} == {"refused"}
    for old, _, new, _ in REVIEW:
        assert old.replace(" ", "  ", 1) in board.state.draft
        assert new not in board.state.draft


async def test_a_passage_that_is_deleted_needs_no_proposal(board: Board[Draft]) -> None:
    """A comment whose passage somebody deletes before the editor looks is answered, and nothing comes in its place."""

    class Deleting(Scripted):
        async def propose(self, quote: str, comment: str) -> str:
            await board.wait_for(lambda state: len(state.comments) == 3)
            for old, *_ in REVIEW:
                if old != quote:
                    board.as_agent("eve").state.draft.replace(old, "")
            return await super().propose(quote, comment)

    await finished(board, Deleting(0))
    (proposal,) = board.snapshot().proposals.values()
    text = final_text(accepted=False)
    for old, _, new, verdict in REVIEW:
        text = text.replace(old, "" if old != proposal.old else new if verdict.accepted else old)
    assert board.state.draft == text


async def test_a_heading_that_is_gone_is_named(board: Board[Draft]) -> None:
    """When somebody renames a section that is still to be written, the flow ends, and says what to do."""

    class Renaming(Scripted):
        async def plan(self, topic: str, sections: int) -> list[Outline]:
            return [*await super().plan(topic, sections), Outline(title="More", brief="?")]

        async def write(self, topic: str, title: str, brief: str) -> AsyncIterator[str]:
            if "## More" in board.state.draft:
                board.as_agent("eve").state.draft.replace("## More", "## Most")
            yield "Word."

    with pytest.raises(Stuck, match="the heading '## More' is not in the text any more"):
        await finished(board, Renaming(0))


async def test_a_draft_that_changes_is_asked_about_again(board: Board[Draft]) -> None:
    """An edit closes the question; the next one is about the edited draft, and is the one that is decided."""
    eve = board.as_agent("eve")

    async def careful(board: Board[Draft], approval: Approval) -> None:
        if approval.id == "publish-1":
            eve.state.draft.append("\nAnd that is all.\n")
        else:
            await eve.decide(approval.id, "approve")

    await finished(board, Scripted(0), careful)
    assert [each.state for each in board.approvals] == ["superseded", "decided"]
    assert board.state.draft == final_text() + "\nAnd that is all.\n"


async def test_a_quote_that_is_not_there_is_dropped(board: Board[Draft]) -> None:
    """Models misquote: that remark is told about and left out, the others stay."""

    class Misquoting(Scripted):
        async def check(self, title: str, body: str) -> list[Remark]:
            return [Remark(quote="Nobody wrote this.", comment="?"), *await super().check(title, body)]

    said = await finished(board, Misquoting(0))
    assert sum("drops a remark" in each for each in said) == 3
    assert board.state.draft == final_text()
    assert len(board.snapshot().comments) == 3


async def test_headings_in_an_answer_are_no_headings(board: Board[Draft]) -> None:
    """What a model writes into a section stays in it, also when it looks like another section."""

    class Heading(Scripted):
        async def write(self, topic: str, title: str, brief: str) -> AsyncIterator[str]:
            for token in ("## Where", " it ends\n\n", "Here."):
                yield token

    await finished(board, Heading(0))
    text = outline("How SQLite keeps your data", list(TEXT))
    assert board.state.draft == text.replace("\n\n\n", "\n\nWhere it ends  Here.\n")


async def failing(*_arguments: str) -> None:
    raise ModelFailed("overloaded")


async def failing_stream(*_arguments: str) -> AsyncIterator[str]:
    yield "Half a "
    raise ModelFailed("overloaded")


@pytest.mark.parametrize("method", ["plan", "write", "check", "propose", "judge"])
async def test_a_model_that_fails_ends_the_flow_and_the_next_run_goes_on(tmp_path: Path, method: str) -> None:
    """The failure is raised wherever the model was asked; nobody has to wait, and nothing is done twice."""
    model = Scripted(0)
    setattr(model, method, failing_stream if method == "write" else failing)
    with pytest.raises(ModelFailed, match="overloaded"):
        async with open_board(tmp_path / "boards.db", "draft", Draft, agent="planner") as board:
            await finished(board, model)
    async with open_board(tmp_path / "boards.db", "draft", Draft, agent="planner") as board:
        assert not any(record for record in board.leases)
        await finished(board, Scripted(0))
        await check_finished(board)


async def test_what_was_given_up_is_named(
    board: Board[Draft], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that raises is tried again so often; then the flow asks nobody to approve, and says what is missing."""
    monkeypatch.setattr("examples.drafting.flow.ATTEMPTS", 1)

    class Broken(Scripted):
        async def propose(self, quote: str, comment: str) -> str:
            raise ZeroDivisionError

    with pytest.raises(Stuck, match="the comment on 'A database may be 281 terabytes"):
        await finished(board, Broken(0))
    assert "ZeroDivisionError" in caplog.text
    assert board.approvals == []


# A model behind an endpoint.


async def answer_by_script(prompt: str, writer: asyncio.StreamWriter) -> None:
    """Answers the prompts of the example as the script does, with what models put around it."""
    script = Scripted(0)
    review = next((each for each in REVIEW if each[0] in prompt), REVIEW[0])
    if prompt.startswith("Plan"):
        answer = json.dumps([each.model_dump() for each in await script.plan("", 3)])
    elif prompt.startswith("Write"):
        answer = next(text for title, text in TEXT.items() if repr(title) in prompt)
    elif prompt.startswith("Check"):
        answer = json.dumps([each.model_dump() for each in await script.check("", prompt)])
    elif prompt.startswith("An article says"):
        answer = review[2] + "\n"
    else:
        answer = f"Well. ```json\n{review[3].model_dump_json()}\n```"
    await streaming(*(answer[index : index + 7] for index in range(0, len(answer), 7)))(prompt, writer)


async def test_the_flow_with_a_model_behind_an_endpoint(tmp_path: Path) -> None:
    """With a model configured the endpoint is asked for everything; one that fails ends the run with one clear line."""
    place = str(tmp_path / "boards.db")
    async with fake_endpoint(raw(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow")) as fake:
        environment = {"OPENAI_MODEL": "small", "OPENAI_BASE_URL": fake.base_url, "OPENAI_API_KEY": "sk-secret"}
        code, out, errors = await run("--db", place, "--yes", **environment)
        assert code == 1
        assert errors.splitlines() == [
            f"error: small at {fake.base_url}/chat/completions answered 429: slow",
            "The same command goes on from here.",
        ]
        assert "sk-secret" not in out + errors
        fake.behaviour = answer_by_script
        code, _, errors = await run("--db", place, "--yes", **environment)
        assert (code, errors) == (0, "")
        assert all(headers["authorization"] == "Bearer sk-secret" for _, headers, _ in fake.requests)
        assert len(fake.requests) == 1 + 1 + 3 + 3 + 3 + 3
    async with reader_at(place, "draft-1") as board:
        await check_finished(board)


async def test_a_model_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Control characters that a model writes reach the board, and no terminal."""

    async def answer(prompt: str, writer: asyncio.StreamWriter) -> None:
        behaviour = streaming("\x1b[2JCleared.") if prompt.startswith("Write") else answer_by_script
        await behaviour(prompt, writer)

    async with fake_endpoint(answer) as fake:
        place = ["--db", str(tmp_path / "boards.db")]
        code, out, _ = await run(*place, "--yes", OPENAI_MODEL="small", OPENAI_BASE_URL=fake.base_url)
    assert code == 0
    assert "�[2JCleared." in out
    assert "\x1b" not in out


# Mistakes on the command line.


async def test_a_board_about_something_else_is_refused(tmp_path: Path) -> None:
    """Another topic than that of the board is an error that says what to do, and changes nothing."""
    place = str(tmp_path / "boards.db")
    assert (await run("--db", place, "--yes"))[0] == 0
    code, _, errors = await run("--db", place, "--topic", "Bees", "--yes")
    assert code == 1
    assert "is about 'How SQLite keeps your data'" in errors
    assert "Traceback" not in errors


async def test_a_server_that_is_not_there_is_one_clear_error() -> None:
    """Without a server the error names its address."""
    code, _, errors = await run("--url", "ws://127.0.0.1:9", "--yes")
    assert code == 1
    assert errors.startswith("error: ")
    assert "127.0.0.1:9" in errors
    assert "Traceback" not in errors


async def test_without_httpx_the_script_still_runs(tmp_path: Path) -> None:
    """An embedded board with the script needs none of the packages for servers."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['httpx', 'fastapi', 'typer', 'rich']));"
    command = [sys.executable, "-c", f"{blocked} from examples.drafting.__main__ import main; sys.exit(main())"]
    code, _, errors = await run("--db", str(tmp_path / "boards.db"), "--yes", command=command)
    assert (code, errors) == (0, "")
