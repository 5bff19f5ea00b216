"""An event loop in a thread of its own, and how other threads have things done there. Knows no boards."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from queue import SimpleQueue
from typing import Any, TypeVar

from crdt_board.errors import BadRequest, BoardClosed

T = TypeVar("T")

_JOIN_SECONDS = 5.0


class LoopThread:
    """Runs an event loop until `stop`. All methods may be called from any other thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._held_by: _Holding | None = None
        self._stopped = False
        self._posting = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """What ``function`` gives, called on the loop's thread between two turns of it."""
        if self._is_own_thread:
            return function()
        holding = self._own_holding()
        if holding is not None:
            return holding.call(function)
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._post(lambda: _settle(done, function))
        return done.result()

    def run(self, work: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine that runs on the loop, in the caller's context.

        What it has `Caller` do is done in the calling thread. An interrupt of that, as Ctrl-C, cancels the coroutine.
        """
        if self._is_own_thread:
            raise BadRequest("this waits, and would hold up the thread that it waits for: call it from another thread")
        if self._own_holding() is not None:
            raise BadRequest("do not wait for anything inside a transaction")
        caller, context = Caller(), contextvars.copy_context()
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def start() -> asyncio.Task[T]:
            task = self._loop.create_task(work(caller), context=context)
            # Not inside the coroutine: of a task that is cancelled before its first turn, as by `stop`, nothing runs.
            task.add_done_callback(lambda ended: _finish(ended, done, caller))
            return task

        started = self.call(start)
        try:
            caller.work()
        except BaseException:
            with contextlib.suppress(BoardClosed):
                self._post(started.cancel)
            raise
        return done.result()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The loop does nothing but what this thread calls, until the end of the block.

        Whoever enters it while the loop ends has it for the block, or is told that the board was closed.
        """
        if self._is_own_thread or self._own_holding() is not None:
            yield
            return
        holding = _Holding(threading.get_ident())
        self._post(lambda: self._be_held(holding))
        try:  # an interrupt of the wait, too, must not leave the loop to a thread that has gone on
            holding.begun.wait()
            yield
        finally:
            holding.end()

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        with self._posting:  # what was posted before is done before, and nothing is posted after it
            if not self._stopped:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._stopped = True
        self._thread.join(_JOIN_SECONDS)

    @property
    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread  # its number may be that of another one when it has ended

    def _own_holding(self) -> _Holding | None:
        """That of the calling thread. Others begin and end theirs meanwhile, so this looks once."""
        holding = self._held_by
        return holding if holding is not None and holding.is_of(threading.get_ident()) else None

    def _be_held(self, holding: _Holding) -> None:
        self._held_by = holding
        try:
            holding.serve()
        finally:
            self._held_by = None

    def _post(self, function: Callable[[], object]) -> None:
        with self._posting:
            if self._stopped:
                raise BoardClosed("the board was closed")
            self._loop.call_soon_threadsafe(function)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.get_loop().run_forever()
            finally:
                # Also when a SystemExit has ended the loop. What was posted by now is done while the runner closes.
                with self._posting:
                    self._stopped = True


class Caller:
    """A thread that waits for a coroutine, and meanwhile does what that asks of it."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def work(self) -> None:
        """Do jobs until `end`."""
        while (job := self._jobs.get()) is not None:
            job()

    def end(self) -> None:
        self._jobs.put(None)

    def does(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A coroutine function that calls a plain ``function`` in the waiting thread; others are left as they are."""
        if inspect.iscoroutinefunction(function):
            return function

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            loop, context = asyncio.get_running_loop(), contextvars.copy_context()
            done: concurrent.futures.Future[Any] = concurrent.futures.Future()
            self._jobs.put(lambda: _do(done, lambda: context.run(function, *args, **kwargs)))
            return await asyncio.wrap_future(done, loop=loop)

        return call


class _Holding:
    """A stretch of time in which a loop serves one thread only; ended by that thread, also before it has begun."""

    def __init__(self, thread: int) -> None:
        self.begun = threading.Event()
        self._thread = thread
        self._ended = False
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def is_of(self, thread: int) -> bool:
        """Whether it is of this thread, and has not ended."""
        return self._thread == thread and not self._ended

    def call(self, function: Callable[[], T]) -> T:
        done: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._calls.put(lambda: _settle(done, function))
        return done.result()

    def end(self) -> None:
        self._ended = True
        self._calls.put(None)

    def serve(self) -> None:
        self.begun.set()
        while (call := self._calls.get()) is not None:
            call()


def _settle(done: concurrent.futures.Future[T], function: Callable[[], T]) -> None:
    """Give ``done`` what ``function`` returns or raises."""
    try:
        done.set_result(function())
    except BaseException as error:  # noqa: BLE001 - it is the caller's, and is raised there
        done.set_exception(error)


def _do(done: concurrent.futures.Future[T], function: Callable[[], T]) -> None:
    """The same for what a coroutine waits for; an interrupt is raised here instead, and ends the wait for that."""
    if done.cancelled():
        return
    try:
        result = function()
    except StopIteration as error:  # a coroutine cannot raise one
        failed = RuntimeError("the function raised StopIteration")
        failed.__cause__ = error
        done.set_exception(failed)
    except Exception as error:  # noqa: BLE001 - it is the caller's, and is raised there
        done.set_exception(error)
    else:
        done.set_result(result)


def _finish(ended: asyncio.Task[T], done: concurrent.futures.Future[T], caller: Caller) -> None:
    if ended.cancelled():
        done.set_exception(BoardClosed("the board was closed"))
    elif (error := ended.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(ended.result())
    caller.end()
