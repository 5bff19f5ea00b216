"""The board as a program without an event loop sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from pydantic import JsonValue

from crdt_board.blocking.proxies import bare, run_wrapped, wrapped
from crdt_board.blocking.team import BlockingStep
from crdt_board.blocking.threads import LoopThread
from crdt_board.board import Board
from crdt_board.checkpoints import Checkpoint
from crdt_board.replica import Change
from crdt_board.schema import BoardModel
from crdt_board.team.leases import Lease
from crdt_board.team.reactions import Event
from crdt_board.views import Patch, PlainModel

M = TypeVar("M", bound=BoardModel | PlainModel)
T = TypeVar("T")
P = ParamSpec("P")
_Work = TypeVar("_Work", bound=Callable[[Event], Any])


def _waits(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """A coroutine method of `Board` as a method that blocks."""

    def wait(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        given = [_bare_patch(each) for each in args]
        named = {name: _bare_patch(each) for name, each in kwargs.items()}
        return cast(T, run_wrapped(self._thread, lambda: method(self._board, *given, **named)))

    functools.update_wrapper(wait, method)
    return wait


def _asks(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method of `Board`, done on the loop's thread."""

    def ask(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done = self._thread.call(lambda: wrapped(self._thread, method(self._board, *args, **kwargs)))
        return cast(T, done)

    functools.update_wrapper(ask, method)
    return ask


class BlockingBoard(Generic[M]):
    """One agent's handle on a board; every method waits until it is done. Usable from any thread, also several.

    Everything is named and behaves as in `Board`; what differs is said here. Functions that are given to `effect`,
    `step` and `attempt` run in the thread that calls these, those given to `on` in one of their own. Ctrl-C in a call
    cancels it.
    """

    def __init__(self, thread: LoopThread, board: Board[M]) -> None:
        """Use `crdt_board.sync.open_board` or ``crdt_board_client.sync.connect``."""
        self._thread = thread
        self._board = board

    def __repr__(self) -> str:
        return f"<Blocking{repr(self._board)[1:]}"

    @property
    def state(self) -> M:
        """The live board, for use in any thread. Each use takes a turn of the board's own thread, some 50 µs.

        Iterating goes over a copy. Views, as of ``items()``, are lists.
        """
        return cast(M, self._thread.call(lambda: wrapped(self._thread, self._board.state)))

    @property
    def id(self) -> str:
        return self._board.id

    @property
    def agent(self) -> str:
        return self._board.agent

    @property
    def version(self) -> int:
        return self._thread.call(lambda: self._board.version)

    def as_agent(self, agent: str) -> BlockingBoard[M]:
        return BlockingBoard(self._thread, self._thread.call(lambda: self._board.as_agent(agent)))

    def snapshot(self) -> M:
        return self._thread.call(self._board.snapshot)

    def at(self, version: int | str | Checkpoint, *, timeout: float | None = 30.0) -> M:
        return self._thread.run(lambda _caller: self._board.at(version, timeout=timeout))

    flush = _waits(Board.flush)
    commit = _waits(Board.commit)
    checkpoints = _waits(Board.checkpoints)
    restore = _waits(Board.restore)
    diff = _waits(Board.diff)
    history = _waits(Board.history)
    blame = _waits(Board.blame)
    fork = _waits(Board.fork)
    forks = _waits(Board.forks)
    merge_from = _waits(Board.merge_from)
    verify = _waits(Board.verify)
    dismiss = _waits(Board.dismiss)
    resolve_effect = _waits(Board.resolve_effect)
    effect_key = _asks(Board.effect_key)
    announce = _asks(Board.announce)

    def transaction(self) -> AbstractContextManager[None]:
        """As `Board.transaction`; the board's thread does nothing else until the end of the block, so be quick."""
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._thread.held():
            context = self._thread.call(self._board.transaction)
            self._thread.call(context.__enter__)
            try:
                yield
            except BaseException:
                error = sys.exc_info()
                if not self._thread.call(lambda: context.__exit__(*error)):
                    raise
            else:
                self._thread.call(lambda: context.__exit__(None, None, None))

    def wait_for(self, condition: Callable[[M], bool], timeout: float | None = None) -> M:
        """As `Board.wait_for`; ``condition`` runs in the board's own thread."""
        return self._thread.run(lambda _caller: self._board.wait_for(condition, timeout))

    def attempt(self, work: Callable[[M], Patch | None], **options: Any) -> Checkpoint:
        """As `Board.attempt`, with its keywords; ``work`` runs in this thread."""

        async def attempt(caller: Any) -> Checkpoint:
            return await self._board.attempt(caller.does(work), **options)

        return self._thread.run(attempt)

    def changes(self, path: str = "") -> Iterator[Change]:
        """As `Board.changes`: from now on, without an end."""
        changes = self._thread.call(lambda: wrapped(self._thread, self._board.changes(path)))
        return iter(cast(Iterator[Change], changes))

    def lease(
        self, name: str, *, ttl: float = 30.0, shared: bool = False, timeout: float | None = None
    ) -> AbstractContextManager[Lease]:
        lease = self._thread.call(lambda: self._board.lease(name, ttl=ttl, shared=shared, timeout=timeout))
        return cast(AbstractContextManager[Lease], wrapped(self._thread, lease))

    def effect(
        self,
        name: str,
        key: str | None,
        call: Callable[[], T],
        *,
        request: JsonValue = None,
        not_done: tuple[type[BaseException], ...] = (),
        ttl: float = 30.0,
    ) -> T:
        """As `Board.effect`; ``call`` runs in this thread."""

        async def run(caller: Any) -> T:
            does: Callable[[], Awaitable[T]] = caller.does(call)
            return await self._board.effect(name, key, does, request=request, not_done=not_done, ttl=ttl)

        return self._thread.run(run)

    def step(self, name: str, *, key: str | Callable[..., str] | None = None, ttl: float = 30.0) -> BlockingStep:
        """As `Board.step`, for plain functions; they run in the thread that calls them."""
        return BlockingStep(self._thread, self._thread.call(lambda: self._board.step(name, key=key, ttl=ttl)))

    def on(self, path: str, **options: Any) -> Callable[[_Work], _Work]:
        """As `Board.on`, with its keywords. The function runs in a thread beside the caller's, and may block.

        ``when`` runs in the board's own thread, and is given the live value.
        """

        def register(work: _Work) -> _Work:
            run = work if inspect.iscoroutinefunction(work) else self._in_a_thread(work)
            self._thread.call(lambda: self._board.on(path, **options)(run))
            return work

        return register

    def _in_a_thread(self, work: Callable[[Event], Patch | None]) -> Callable[[Event], Coroutine[Any, Any, Any]]:
        @functools.wraps(work)
        async def run(event: Event) -> Patch | None:
            patch = await asyncio.to_thread(work, wrapped(self._thread, event))
            return cast("Patch | None", _bare_patch(patch))

        return run

    def close(self) -> None:
        """As `Board.close`. Leaving the block does the same."""
        self._thread.run(lambda _caller: self._board.close())


def _bare_patch(value: Any) -> Any:
    """An argument without stand-ins; those of a patch are one level down."""
    if isinstance(value, Mapping) and type(value) is dict:
        return {name: bare(each) for name, each in value.items()}
    return bare(value)


def _delegate_the_rest() -> None:
    """What `Board` has and nothing above names, with types that checkers do not see."""
    for name, each in inspect.getmembers_static(Board):
        if name.startswith("_") or hasattr(BlockingBoard, name):
            continue
        if isinstance(each, property):
            getter = each.fget
            assert getter is not None
            setattr(BlockingBoard, name, property(_asks(getter), doc=each.__doc__))
        else:
            setattr(BlockingBoard, name, _waits(each) if inspect.iscoroutinefunction(each) else _asks(each))


_delegate_the_rest()


@contextlib.contextmanager
def blocking(opened: Callable[[], AbstractAsyncContextManager[Board[M]]], name: str) -> Iterator[BlockingBoard[M]]:
    """The block of ``open_board`` or ``connect``, in a thread of its own."""
    thread = LoopThread(f"board-{name}")
    try:
        context = thread.call(opened)
        board = thread.run(lambda _caller: context.__aenter__())
        try:
            yield BlockingBoard(thread, board)
        except BaseException:
            error = sys.exc_info()
            if not thread.run(lambda _caller: context.__aexit__(*error)):
                raise
        else:
            thread.run(lambda _caller: context.__aexit__(None, None, None))
    finally:
        thread.stop()
