"""Boards without an event loop: the same names, blocking, from any thread."""

from __future__ import annotations

import concurrent.futures
import contextlib
import inspect
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdt_board import (
    BadRequest,
    Board,
    BoardClosed,
    BoardModel,
    Counter,
    EffectInDoubt,
    Event,
    ModelError,
    StepResult,
    Text,
    VersionConflict,
)
from crdt_board.blocking.threads import Caller, LoopThread, _Holding
from crdt_board.live.text import LiveText
from crdt_board.sync import BlockingBoard, open_board
from crdt_board_client.sync import connect
from support.forking import Forking
from support.server import ServerProcess

_SECONDS = 30


class Finding(BoardModel):
    title: str = ""


class Job(BoardModel):
    status: str = ""
    plan: list[str] = []
    findings: dict[str, Finding] = {}
    draft: Text
    spent: Counter


def opened(url: str | None, board_id: str, agent: str = "ann") -> Any:
    if url is not None:
        return connect(url, board_id, Job, agent=agent)
    return open_board(":memory:", board_id, Job, agent=agent)


def test_the_names_of_the_board_work_without_a_loop(either_url: str | None, board_id: str) -> None:
    """Edits, commits, history and waiting, as with an event loop, embedded and served."""
    with opened(either_url, board_id) as board:
        board.state.status = "OPEN"
        board.state.plan.append("one")
        board.state.plan += ["two"]
        board.state.spent += 3
        board.state.findings["f1"].title = "cast"
        board.state.draft += "Hello world"
        board.state.draft.replace("world", "board")
        assert [*board.state.plan] == ["one", "two"]
        assert board.state.plan[-1] == "two"
        assert "one" in board.state.plan
        assert [(key, each.title) for key, each in board.state.findings.items()] == [("f1", "cast")]
        assert (board.state.draft, len(board.state.draft), f"{board.state.draft:>12}") == (
            "Hello board",
            11,
            " Hello board",
        )
        assert isinstance(board.state.draft, LiveText)
        board.flush()
        made = board.commit("first", patch={"status": "DONE", "draft": board.state.draft}, expected_version=0)
        assert board.at(made).status == board.wait_for(lambda state: state.status == "DONE").status == "DONE"
        with pytest.raises(VersionConflict):
            board.commit("second", patch={"status": "OPEN"}, expected_version=0)
        assert board.attempt(lambda state: {"status": f"{state.status}!"}, step="third").version == 2
        assert [each.step for each in board.checkpoints()] == ["third", "first"]
        with board.lease("payments", ttl=5) as lease:
            assert board.commit("paid", lease=lease).version == 3
            assert [each.name for each in board.leases] == ["payments"]
        with board.state.draft.edit_stream() as stream:
            stream.write("!")
        assert board.as_agent("bob").restore(made).agent == "bob"
        assert board.snapshot().spent == 3


def test_every_name_of_the_board_is_there() -> None:
    """What `Board` gets, its blocking form has too."""
    for name, each in inspect.getmembers_static(Board):
        if not name.startswith("_"):
            assert hasattr(BlockingBoard, name), name
            assert not inspect.iscoroutinefunction(getattr(BlockingBoard, name)), name
            assert isinstance(inspect.getattr_static(BlockingBoard, name), property) == isinstance(each, property), name


def test_threads_lose_nothing_on_one_handle(either_url: str | None, board_id: str) -> None:
    """Eight threads edit and commit at once: every edit and every commit is there."""
    with opened(either_url, board_id) as board:

        def work(number: int) -> None:
            for turn in range(25):
                board.state.spent += 1
                board.state.plan.append(f"{number}-{turn}")
                board.state.findings[f"f{turn}"].title = "found"
            board.commit(f"thread {number}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_SECONDS)
        state = board.snapshot()
        assert (state.spent, len(set(state.plan)), len(state.findings), board.version) == (200, 200, 25, 8)


def test_a_transaction_is_one_update_also_among_threads() -> None:
    """What other threads do waits until its end; an exception takes back what it did, and only that."""
    with opened(None, "job") as board:
        board.state.plan.append("before")
        entered, other_done = threading.Event(), threading.Event()

        def other() -> None:
            entered.wait(_SECONDS)
            board.state.plan.append("other")
            other_done.set()

        thread = threading.Thread(target=other)
        thread.start()

        def fail_inside() -> None:
            with board.transaction():
                board.state.plan.append("inside")
                entered.set()
                assert not other_done.wait(0.05)
                assert [*board.state.plan] == ["before", "inside"]
                raise KeyError

        with pytest.raises(KeyError):
            fail_inside()
        assert other_done.wait(_SECONDS)
        thread.join()
        assert [*board.state.plan] == ["before", "other"]
        with board.transaction(), board.transaction():
            with pytest.raises(BadRequest, match="inside a transaction"):
                board.flush()
            board.state.status = "DONE"
        board.flush()
        assert board.snapshot().status == "DONE"


def test_functions_run_in_the_thread_that_gives_them(either_url: str | None, board_id: str) -> None:
    """Steps, effects in them and attempts run here, where they may block; each once, and their outputs are recorded."""
    here, runs = threading.get_ident(), []

    def pay() -> dict[str, int]:
        runs.append(("pay", threading.get_ident()))
        return {"receipt": 7}

    with opened(either_url, board_id) as board:

        @board.step("settle")
        def settle(amount: int) -> StepResult[int]:
            runs.append(("settle", threading.get_ident()))
            board.state.plan.append("paid")
            receipt = board.effect("pay", None, pay, request={"amount": amount})
            return StepResult(receipt["receipt"], patch={"status": "PAID"})

        assert settle(5) == settle(5) == 7
        assert board.step("again").run(lambda: "x") == "x"
        assert runs == [("settle", here), ("pay", here)]
        assert (board.snapshot().status, board.snapshot().plan) == ("PAID", ["paid"])
        assert [effect.effect_key for effect in board.effects] == [f"{board_id}/settle@0"]
        with pytest.raises(RuntimeError, match="StopIteration"):
            board.effect("empty", "k", lambda: next(iter(())))
        with pytest.raises(EffectInDoubt):
            board.effect("empty", "k", lambda: 1)


def test_what_the_board_offers_beside_fields_blocks_too(either_url: str | None, board_id: str) -> None:
    """Artifacts, followers and whatever else comes: their coroutines wait, and what is asynchronous is iterated."""
    with opened(either_url, board_id) as board:
        ref = board.artifacts.put(b"x" * 100_000)
        assert board.artifacts.get(ref) == b"".join(board.artifacts.stream(ref)) == b"x" * 100_000
        board.state.plan.append("one")
        board.flush()
        with board.follow("reader", "plan", own=True) as follower:
            news = next(iter(follower))
            follower.commit("read", patch={"status": f"read {len(news.paths)}"})
        assert board.snapshot().status == "read 1"
        board.settled(_SECONDS)


def test_a_reaction_may_block_and_use_the_board(either_url: str | None, board_id: str) -> None:
    """The function of `on` runs beside the thread of the board: it edits, waits, and its patch is a step."""
    threads: list[threading.Thread] = []
    with opened(either_url, board_id) as board:

        @board.on("findings/*", when=lambda finding: finding.title and not finding.title.endswith("!"))
        def shout(event: Event) -> dict[str, str]:
            threads.append(threading.current_thread())
            event.value.title += "!"
            board.flush()
            return {"status": f"shouted {event.key}"}

        board.state.findings["f1"].title = "cast"
        board.settled(_SECONDS)
        assert board.state.findings["f1"].title == "cast!"
        assert board.snapshot().status == "shouted f1"
        assert [made.step for made in board.checkpoints()] == ["shout"]
    (used,) = threads
    assert used is not threading.current_thread()


def test_an_interrupt_inside_a_function_ends_the_call_and_not_the_board() -> None:
    """Ctrl-C in a step: the step is open again at once, the effect in doubt, and the board usable."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with opened(None, "job") as board:
        with pytest.raises(KeyboardInterrupt):
            board.step("work", ttl=3600).run(interrupted)
        assert board.step("work").run(lambda: "done") == "done"
        with pytest.raises(KeyboardInterrupt):
            board.effect("mail", "k", interrupted, ttl=3600)
        with pytest.raises(EffectInDoubt):
            board.effect("mail", "k", lambda: 1)


def test_changes_are_iterated() -> None:
    """`changes` gives what other threads write, in order."""
    with opened(None, "job") as board:
        changes = board.changes("plan")
        thread = threading.Thread(target=lambda: [board.state.plan.append(each) for each in "ab"])
        thread.start()
        assert [next(changes).path for _ in range(2)] == ["plan", "plan"]
        thread.join()


def test_waiting_in_the_boards_own_thread_is_refused() -> None:
    """A condition that waits would wait for itself."""
    with opened(None, "job") as board, pytest.raises(BadRequest, match="another thread"):
        board.wait_for(lambda state: board.flush() is None)


def test_after_the_block_nothing_is_left() -> None:
    """The thread has ended, also after an error inside, or when the board could not be opened; calls say so."""
    before = threading.active_count()
    kept: list[BlockingBoard[Job]] = []

    def fail_inside() -> None:
        with opened(None, "job") as board:
            kept.append(board)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    with pytest.raises(ModelError), open_board(":memory:", "job", int, agent="ann"):  # type: ignore[type-var]
        pass
    uses: list[Callable[[], object]] = [lambda: kept[0].state.status, kept[0].flush, kept[0].snapshot]
    for use in uses:
        with pytest.raises(BoardClosed):
            use()
    assert threading.active_count() == before


def test_a_call_that_comes_with_the_end_of_the_loop_is_told() -> None:
    """Its task is made, and cancelled before its first turn."""
    loop, told = LoopThread("ending"), concurrent.futures.Future[None]()
    begun, free, posted = threading.Event(), threading.Event(), threading.Event()

    async def nothing(_caller: Caller) -> None:
        pass

    def occupy() -> None:
        begun.set()
        free.wait(_SECONDS)

    def call() -> None:
        try:
            loop.run(nothing)
        except BoardClosed as closed:
            told.set_exception(closed)
        else:
            told.set_result(None)

    def post(function: Callable[[], object]) -> None:
        original(function)
        posted.set()

    threading.Thread(target=loop.call, args=(occupy,)).start()
    assert begun.wait(_SECONDS)
    original, loop._post = loop._post, post  # type: ignore[method-assign]
    threading.Thread(target=call).start()
    assert posted.wait(_SECONDS)
    stopping = threading.Thread(target=loop.stop)
    stopping.start()
    while not loop._stopped:
        time.sleep(0.001)
    free.set()
    stopping.join(_SECONDS)
    with pytest.raises(BoardClosed):
        told.result(_SECONDS)


def occupied(loop: LoopThread) -> threading.Event:
    """The loop does nothing until the event is set."""
    begun, free = threading.Event(), threading.Event()

    def occupy() -> None:
        begun.set()
        free.wait(_SECONDS)

    threading.Thread(target=loop.call, args=(occupy,)).start()
    assert begun.wait(_SECONDS)
    return free


def in_thread(function: Callable[[], Any]) -> concurrent.futures.Future[Any]:
    """What a function gives in a thread of its own, which must not keep the tests from ending."""
    done: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def run() -> None:
        try:
            done.set_result(function())
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def test_an_interrupt_while_a_block_waits_for_the_loop_leaves_the_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C before a transaction has begun: the loop goes on, and can be stopped; so it is for the same thread."""
    loop = LoopThread("interrupted")
    free = occupied(loop)

    def interrupted(_self: threading.Event, _timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    def enter() -> None:
        with loop.held():
            raise AssertionError

    def enter_and_call() -> int:
        with monkeypatch.context() as patched:
            patched.setattr(_Begun, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                enter()
        free.set()
        return loop.call(lambda: 5)

    monkeypatch.setattr("crdt_board.blocking.threads.threading.Event", _Begun)
    assert in_thread(enter_and_call).result(_SECONDS) == 5
    in_thread(loop.stop).result(_SECONDS)
    assert not loop._thread.is_alive()


class _Begun(threading.Event):
    """What a block waits for, so that a test can interrupt it and nothing else."""


@pytest.mark.parametrize("held", [True, False], ids=["got", "waiting"])
def test_an_interrupt_while_a_lease_is_got_leaves_it_to_others(monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    """Whether it was got by then, or not yet."""
    with open_board(":memory:", "job", agent="ann") as board, contextlib.ExitStack() as others:
        if not held:
            others.enter_context(board.as_agent("bob").lease("payments"))
        work = Caller.work

        def interrupted(caller: Caller) -> None:
            if held:
                work(caller)
            raise KeyboardInterrupt

        def enter() -> None:
            with board.lease("payments"):
                raise AssertionError

        with monkeypatch.context() as patched:
            patched.setattr(Caller, "work", _once(interrupted, work))
            with pytest.raises(KeyboardInterrupt):
                enter()
        others.close()
        with board.as_agent("cid").lease("payments", timeout=_SECONDS):
            (lease,) = board.leases
            assert [each.agent for each in lease.holders] == ["cid"]


def _once(first: Callable[[Caller], None], then: Callable[[Caller], None]) -> Callable[[Caller], None]:
    """``first`` in the first call, ``then`` in all others."""
    calls = iter([first])

    def work(caller: Caller) -> None:
        next(calls, then)(caller)

    return work


def test_a_block_that_comes_with_the_end_of_the_loop_has_it_or_is_told() -> None:
    """Entered before the end: it is served, and the loop ends after it. Entered later: it is told."""
    loop = LoopThread("ending")
    free, posted, leave = occupied(loop), threading.Event(), threading.Event()

    def enter() -> int:
        with loop.held():
            assert leave.wait(_SECONDS)
            return loop.call(lambda: 5)

    def post(function: Callable[[], object]) -> None:
        original(function)
        posted.set()

    original, loop._post = loop._post, post  # type: ignore[method-assign]
    entered = in_thread(enter)
    assert posted.wait(_SECONDS)
    stopped = in_thread(loop.stop)
    while not loop._stopped:
        time.sleep(0.001)
    free.set()
    late = in_thread(enter)
    with pytest.raises(BoardClosed):
        late.result(_SECONDS)
    leave.set()
    assert entered.result(_SECONDS) == 5
    stopped.result(_SECONDS)
    assert not loop._thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_ends_by_itself_lets_nobody_wait() -> None:
    """A condition that exits the program ends the loop: what was asked before is done, and what is asked later told."""
    loop = LoopThread("exiting")
    free = occupied(loop)

    async def leave(_caller: Caller) -> None:
        raise SystemExit(3)

    def enter() -> int:
        with loop.held():
            return loop.call(lambda: 5)

    exiting = in_thread(lambda: loop.run(leave))
    free.set()
    with pytest.raises((SystemExit, BoardClosed)):
        exiting.result(_SECONDS)
    loop._thread.join(_SECONDS)
    uses: list[Callable[[], Any]] = [enter, lambda: loop.call(lambda: 5), lambda: loop.run(leave)]
    for use in uses * 20:  # in threads that may have the number of the one that has ended
        with pytest.raises(BoardClosed):
            in_thread(use).result(_SECONDS)
    in_thread(loop.stop).result(_SECONDS)


def test_the_holder_of_the_loop_may_leave_while_others_look() -> None:
    """Who looks whether it holds the loop itself looks once: another thread may end its block in between."""

    class Changing(LoopThread):
        looks = 0

        @property
        def _held_by(self) -> Any:
            self.looks += 1
            return _Holding(0) if self.looks % 2 else None

        @_held_by.setter
        def _held_by(self, _holding: Any) -> None:
            self.looks = 0

    loop = Changing("changing")

    async def nothing(_caller: Caller) -> int:
        return 5

    assert in_thread(lambda: loop.run(nothing)).result(_SECONDS) == 5
    loop.stop()


def test_a_transaction_in_the_boards_own_thread_holds_up_nothing() -> None:
    """A condition or a callback runs there, and nothing else does meanwhile."""
    loop = LoopThread("own")

    def enter() -> int:
        with loop.held():
            return loop.call(lambda: 5)

    assert in_thread(lambda: loop.call(enter)).result(_SECONDS) == 5
    loop.stop()


def test_threads_that_wait_are_told_when_the_board_is_closed() -> None:
    """The end of the block ends every call of every other thread, whatever it is about just then."""
    told: list[BaseException] = []
    waiting = threading.Barrier(5)

    def wait(work: Callable[[], object]) -> None:
        waiting.wait(_SECONDS)
        try:
            while True:
                work()
        except BoardClosed as closed:
            told.append(closed)

    with opened(None, "job") as board:
        works: list[Callable[[], object]] = [
            lambda: board.wait_for(lambda state: False),
            lambda: board.state.plan.append("x"),
            lambda: board.state.status,
            lambda: next(board.changes("status")),
        ]
        threads = [threading.Thread(target=wait, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        waiting.wait(_SECONDS)
    for thread in threads:
        thread.join(_SECONDS)
        assert not thread.is_alive()
    assert len(told) == 4


_WAITS = """
from crdt_board.sync import open_board
with open_board({file!r}, "job", agent="ann") as board:
    board.state["begun"] = True
    board.flush()
    print("waiting", flush=True)
    board.wait_for(lambda state: False)
"""


def test_ctrl_c_ends_a_program_that_waits_and_keeps_what_it_wrote(tmp_path: Path) -> None:
    """SIGINT ends the wait and the block as an exception does; what was written before is durable."""
    file = str(tmp_path / "boards.db")
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", _WAITS.format(file=file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=_SECONDS)
    assert errors.strip().endswith("KeyboardInterrupt"), errors
    assert "Task" not in errors
    with open_board(file, "job", agent="ann") as board:
        assert board.state["begun"] is True


def test_the_example_runs_against_a_server(shared_server: ServerProcess, tmp_path: Path, forking: Forking) -> None:
    """examples/blocking_agent.py with an address is a client, and resumes too."""
    example = Path(__file__).resolve().parent.parent / "examples" / "blocking_agent.py"
    for _ in range(2):
        status, said, errors = forking.run(example, shared_server.url, folder=tmp_path)
        assert (status, "beta: BETA" in said) == (0, True), errors
    assert "reads" not in said
