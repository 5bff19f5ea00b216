"""Steps whose functions run in the thread that calls them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

from crdt_board.blocking.threads import LoopThread
from crdt_board.team.steps import Step, StepResult

T = TypeVar("T")
P = ParamSpec("P")


class BlockingStep:
    """As `crdt_board.team.steps.Step`, for plain functions; made by `BlockingBoard.step`."""

    def __init__(self, thread: LoopThread, step: Step) -> None:
        self._thread = thread
        self._step = step

    @overload
    def __call__(self, function: Callable[P, StepResult[T]]) -> Callable[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T]) -> Callable[P, T]: ...
    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as one that runs as this step, in the thread that calls it."""

        @functools.wraps(function)
        def as_step(*args: Any, **kwargs: Any) -> Any:
            return self._thread.run(lambda caller: self._step(caller.does(function))(*args, **kwargs))

        return as_step

    def run(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
        """The output of ``function(*args, **kwargs)``, run as this step."""
        return self(function)(*args, **kwargs)
