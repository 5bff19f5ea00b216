"""Snapshots are loaded back in another process, which never outlives the server and never takes it down."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import zlib
from pathlib import Path

import pytest

from crdt_board import BoardModel, Text
from crdt_board.document import Document
from crdt_board.loading import encode_snapshot
from crdt_board_client import connect
from crdt_board_server import snapshot_process
from crdt_board_server.snapshot_process import SnapshotProcess
from support.model import Report
from support.server import ServerProcess
from support.waiting import DEADLINE_SECONDS, eventually

LAYOUT = type("Draft", (BoardModel,), {"__annotations__": {"draft": Text}}).board_layout()

TALKATIVE = (sys.executable, "-c", "print('welcome ' * 10, flush=True); __import__('time').sleep(600)")


def snapshot(characters: int = 200_000) -> tuple[bytes, str]:
    """The bytes of a board with a text of random letters, and the checksum of its state."""
    document = Document(LAYOUT)
    document.capture(lambda: document.text("draft").insert(0, os.urandom(characters // 2).hex()))
    return encode_snapshot(document), document.checksum()


async def test_the_process_answers_as_a_thread_does() -> None:
    """What loads back is compressed, what does not is nothing, and one process answers again and again."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    for _ in range(3):
        compressed = await process.compress(data, LAYOUT, checksum)
        assert compressed is not None
        assert zlib.decompress(compressed) == data
        assert await process.compress(data, LAYOUT, "another") is None
        assert await process.compress(os.urandom(len(data)), LAYOUT, checksum) is None
    child = process._process
    assert child is not None
    await process.aclose()
    assert child.returncode is not None
    await process.aclose()


async def test_many_ask_at_once() -> None:
    """Each gets the answer to its own question."""
    process = SnapshotProcess()
    asked = [snapshot(150_000 + 2 * n) for n in range(8)]
    answers = await asyncio.gather(*(process.compress(data, LAYOUT, checksum) for data, checksum in asked))
    assert [zlib.decompress(answer or b"") for answer in answers] == [data for data, _ in asked]
    await process.aclose()


async def test_small_ones_need_no_process() -> None:
    """A server of small boards does without one."""
    process = SnapshotProcess()
    data, checksum = snapshot(100)
    assert await process.compress(data, LAYOUT, checksum) is not None
    assert process._process is None
    await process.aclose()


async def test_a_process_that_dies_over_a_snapshot_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """D7: bytes that end the process that loads them are bytes that do not load back; the next ones do."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    assert await process.compress(data, LAYOUT, checksum) is not None
    child = process._process
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    asked = asyncio.create_task(process.compress(data, LAYOUT, checksum))
    await asyncio.sleep(0)
    os.kill(child.pid, signal.SIGKILL)
    assert await asked is None
    assert "ended with code -9" in caplog.text
    assert await process.compress(data, LAYOUT, checksum) is not None
    await process.aclose()


async def test_a_process_that_hangs_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """One that is stopped holds up neither the snapshots of other boards for ever nor the end of the server."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    for _ in range(2):
        assert await process.compress(data, LAYOUT, checksum) is not None
        child, patience = process._process, process._patience
        assert child is not None
        os.kill(child.pid, signal.SIGSTOP)
        process._patience = snapshot_process._Patience(0.1, 0.0)
        asked = asyncio.create_task(process.compress(data, LAYOUT, checksum))
        async with asyncio.timeout(snapshot_process._PATIENCE.seconds - 5.0):
            assert await asked is None
        assert "did not answer" in caplog.text
        assert child.returncode == -signal.SIGKILL
        process._patience = patience
    async with asyncio.timeout(DEADLINE_SECONDS):
        await process.aclose()


async def test_a_process_that_has_ended_unasked_costs_no_snapshot() -> None:
    """Whoever kills it while nobody asks it does not take the next snapshot away."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    assert await process.compress(data, LAYOUT, checksum) is not None
    child = process._process
    assert child is not None
    child.kill()
    await child.wait()
    assert await process.compress(data, LAYOUT, checksum) is not None
    await process.aclose()


async def test_what_tells_the_server_to_stop_does_not_end_the_process() -> None:
    """A service manager signals all processes of a service at once; the last snapshots are still to be taken."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    assert await process.compress(data, LAYOUT, checksum) is not None
    child = process._process
    assert child is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(child.pid, number)
    assert await process.compress(data, LAYOUT, checksum) is not None
    assert process._process is child
    await process.aclose()


async def test_files_where_the_server_was_started_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `zlib.py` in somebody's folder is no module of the process, as it is none of the server."""
    (tmp_path / "zlib.py").write_text("raise SystemExit(3)")
    (tmp_path / "signal.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    process = SnapshotProcess()
    data, checksum = snapshot()
    assert await process.compress(data, LAYOUT, checksum) is not None
    await process.aclose()


async def test_a_question_that_is_given_up_leaves_no_answer_to_the_next() -> None:
    """Cancelled in the middle, the process ends, and the next question is answered by another one."""
    process = SnapshotProcess()
    (data, checksum), (other, its_checksum) = snapshot(), snapshot(180_000)
    assert await process.compress(data, LAYOUT, checksum) is not None
    child = process._process
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    asked = asyncio.create_task(process.compress(data, LAYOUT, checksum))
    await asyncio.sleep(0.05)
    asked.cancel()
    os.kill(child.pid, signal.SIGCONT)
    await asyncio.wait([asked])
    assert zlib.decompress(await process.compress(other, LAYOUT, its_checksum) or b"") == other
    assert process._process is not child
    await process.aclose()


async def test_closing_waits_for_no_process() -> None:
    """One that gets no time holds up nobody: what was asked is answered in a thread."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    assert await process.compress(data, LAYOUT, checksum) is not None
    child = process._process
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    asked = [asyncio.create_task(process.compress(data, LAYOUT, checksum)) for _ in range(3)]
    await asyncio.sleep(0.01)
    async with asyncio.timeout(DEADLINE_SECONDS):
        await process.aclose()
        answers = await asyncio.gather(*asked)
    assert [zlib.decompress(answer or b"") for answer in answers] == [data] * 3


async def test_a_process_that_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is given back, and the next snapshot gets another one."""
    monkeypatch.setattr(snapshot_process, "_IDLE_SECONDS", 0.3)
    process = SnapshotProcess()
    data, checksum = snapshot()
    for _ in range(2):
        assert await process.compress(data, LAYOUT, checksum) is not None
        await eventually(lambda: process._process is None, "it has ended")
    await process.aclose()


@pytest.mark.parametrize("command", [("no-such-program",), (sys.executable, "-c", ""), TALKATIVE])
async def test_without_another_process(monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    """Where none can be started a thread does it; one that ends at once or talks is no answer, and nothing hangs."""
    monkeypatch.setattr(snapshot_process, "_COMMAND", command)
    process = SnapshotProcess()
    data, checksum = snapshot()
    async with asyncio.timeout(DEADLINE_SECONDS):
        answer = await process.compress(data, LAYOUT, checksum)
        assert (answer is not None) == (command == ("no-such-program",))
        await process.aclose()


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kills", [False, True])
async def test_the_process_ends_with_the_server(server: ServerProcess, kills: bool) -> None:
    """Neither SIGTERM nor `kill -9` leaves it behind, and a large board is there afterwards."""
    async with connect(server.url, "large", Report, agent="writer") as board:
        for _ in range(4):
            board.state.draft.append("x" * 200_000)
            await board.flush(DEADLINE_SECONDS)
        child = (await eventually(lambda: children_of(server.pid), "the server has started it"))[0]
    if kills:
        await server.kill9()
    else:
        assert await server.terminate() == 0
    # It may just have begun to import, with the least of all priorities.
    await eventually(lambda: not Path(f"/proc/{child}").exists(), "it has ended", seconds=60)
    await server.start()
    async with connect(server.url, "large", Report, agent="reader") as board:
        assert len(board.state.draft) == 800_000


@pytest.mark.skipif(sys.platform != "linux", reason="sessions share the processor there")
async def test_the_process_gives_way_to_whoever_asks() -> None:
    """It is nicer, within the same session, since sessions share the processor evenly; and Ctrl-C does not reach it."""
    process = SnapshotProcess()
    data, checksum = snapshot()
    assert await process.compress(data, LAYOUT, checksum) is not None
    child = process._process
    assert child is not None
    assert os.getsid(child.pid) == os.getsid(0)
    assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    assert os.getpriority(os.PRIO_PROCESS, child.pid) > os.getpriority(os.PRIO_PROCESS, 0)
    await process.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_process_that_hangs_does_not_keep_the_server(server: ServerProcess) -> None:
    """Stopped in the middle of a snapshot, it neither stays nor makes the server stay, and everything is there."""
    async with connect(server.url, "large", Report, agent="writer") as board:
        board.state.draft.append("x" * 200_000)
        for _ in range(3):
            board.state.draft.append("x" * 200_000)
            await board.flush(DEADLINE_SECONDS)
        child = (await eventually(lambda: children_of(server.pid), "the server has started it"))[0]
        os.kill(child, signal.SIGSTOP)
        for _ in range(4):
            board.state.draft.append("x" * 200_000)
            await board.flush(DEADLINE_SECONDS)
    assert await server.terminate() == 0
    assert not Path(f"/proc/{child}").exists()
    await server.start()
    async with connect(server.url, "large", Report, agent="reader") as board:
        assert len(board.state.draft) == 1_600_000
