"""Stand-ins for live objects, by which any thread may use them: each use is done on the loop's thread.

What a stand-in gives is plain, or a stand-in again. Views and iterators come as lists.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
from collections.abc import AsyncIterator, Awaitable, Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

from crdt_board.blocking.threads import LoopThread
from crdt_board.errors import BoardClosed

_LIVE_PACKAGES = ("crdt_board.live", "crdt_board.team", "crdt_board.artifacts.access")
_LAZY = (Iterator, KeysView, ValuesView, ItemsView)


class Proxy:
    """Stands for one live object; ``isinstance`` takes it for that."""

    __slots__ = ("_proxy_of", "_proxy_thread")

    def __init__(self, thread: LoopThread, of: Any) -> None:
        object.__setattr__(self, "_proxy_thread", thread)
        object.__setattr__(self, "_proxy_of", of)

    @property  # type: ignore[misc]  # what `isinstance` asks is read only here
    def __class__(self) -> Any:
        return type(object.__getattribute__(self, "_proxy_of"))

    def __getattr__(self, name: str) -> Any:
        return _do(self, lambda of: getattr(of, name))

    def __setattr__(self, name: str, value: object) -> None:
        _do(self, lambda of: setattr(of, name, bare(value)))

    def __delattr__(self, name: str) -> None:
        _do(self, lambda of: delattr(of, name))

    def __enter__(self) -> Any:
        return _enter(self)

    def __exit__(self, *error: object) -> Any:
        return _run(self, "__aexit__", *error)

    def __iter__(self) -> Iterator[Any]:
        return _each(self) if hasattr(type(bare(self)), "__anext__") else iter(_do(self, list))

    def __hash__(self) -> int:
        return int(_do(self, hash))

    def __dir__(self) -> list[str]:
        return list(_do(self, dir))


def _operation(name: str, call: Callable[..., Any]) -> None:
    def method(self: Proxy, *operands: Any) -> Any:
        return _do(self, lambda of: call(of, *map(bare, operands)))

    setattr(Proxy, name, method)


for _name in (
    *("getitem", "setitem", "delitem", "contains", "eq", "ne", "lt", "le", "gt", "ge"),
    *("add", "sub", "mul", "mod", "or", "and", "xor", "iadd", "isub", "ior", "iand", "ixor", "neg", "index"),
):
    _operation(f"__{_name}__", getattr(operator, f"__{_name}__"))
for _name, _call in (("str", str), ("repr", repr), ("len", len), ("bool", bool), ("int", int), ("float", float)):
    _operation(f"__{_name}__", _call)
_operation("__format__", format)
_operation("__radd__", lambda of, other: other + of)
_operation("__ror__", lambda of, other: other | of)
_operation("__reversed__", lambda of: list(reversed(of)))


def wrapped(thread: LoopThread, value: Any) -> Any:
    """``value`` as other threads may use it; to be called on the loop's thread."""
    if isinstance(value, _LAZY):
        value = list(value)
    if type(value) in (list, tuple):
        return type(value)(wrapped(thread, item) for item in value)
    if inspect.ismethod(value):
        return _method(thread, value)
    is_live = isinstance(value, AsyncIterator) or type(value).__module__.startswith(_LIVE_PACKAGES)
    return Proxy(thread, value) if is_live else value


def bare(value: Any) -> Any:
    """What a stand-in stands for; anything else as it is."""
    return object.__getattribute__(value, "_proxy_of") if type(value) is Proxy else value


def _method(thread: LoopThread, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        given, named = [bare(each) for each in args], {name: bare(each) for name, each in kwargs.items()}
        if inspect.iscoroutinefunction(method):
            return run_wrapped(thread, lambda: method(*given, **named))
        return thread.call(lambda: wrapped(thread, method(*given, **named)))

    return call


def _do(proxy: Proxy, use: Callable[[Any], Any]) -> Any:
    thread: LoopThread = object.__getattribute__(proxy, "_proxy_thread")
    return thread.call(lambda: wrapped(thread, use(bare(proxy))))


def run_wrapped(thread: LoopThread, work: Callable[[], Awaitable[Any]]) -> Any:
    """What ``work`` gives, awaited on the loop, as other threads may use it."""

    async def run(_caller: object) -> Any:
        return wrapped(thread, await work())

    return thread.run(run)


def _run(proxy: Proxy, method: str, *args: object) -> Any:
    thread: LoopThread = object.__getattribute__(proxy, "_proxy_thread")
    return run_wrapped(thread, lambda: getattr(bare(proxy), method)(*args))


def _enter(proxy: Proxy) -> Any:
    """An interrupt that comes when it was entered already, as Ctrl-C just then, leaves again: nobody else would."""
    thread: LoopThread = object.__getattribute__(proxy, "_proxy_thread")
    entered = False

    async def enter() -> Any:
        nonlocal entered
        value = await bare(proxy).__aenter__()
        entered = True
        return value

    try:
        return run_wrapped(thread, enter)
    except BaseException as error:
        with contextlib.suppress(BoardClosed):
            if thread.call(lambda: entered):  # after the interrupt has cancelled what was not done by then
                _run(proxy, "__aexit__", type(error), error, error.__traceback__)
        raise


def _each(proxy: Proxy) -> Iterator[Any]:
    with contextlib.suppress(StopAsyncIteration):
        while True:
            yield _run(proxy, "__anext__")
