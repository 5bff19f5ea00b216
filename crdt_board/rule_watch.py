"""Looks, for an agent that has the model, whether the board keeps the model's rules, and reports what it finds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pydantic import JsonValue

from crdt_board.board_link import BoardSession, end_task
from crdt_board.errors import BoardError
from crdt_board.findings import Findings
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.model_rules import has_rules, judge
from crdt_board.replica import Change
from crdt_board.schema import BoardModel

_REST_OF_LOOK = 9
"""How many times as long as a look took it rests: on a large board that changes all the time, nine tenths of it."""

logger = logging.getLogger(__name__)


class RuleWatch:
    """One for each replica, whatever its handles; without rules that only the model knows it does nothing.

    Looks when nothing has changed for a moment, or at the latest half a second after a change, and once at the
    beginning, since whoever recorded what stands may have left. What is found broken and not recorded is reported, and
    what is recorded and kept too. A report that is out of date does no harm: what made it so arrives here, and is
    looked at.
    """

    def __init__(self, session: BoardSession, model: type[BoardModel] | None, agent: str) -> None:
        self._session = session
        self._model = model
        self._agent = agent
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.has_rules:
            self._changed.set()
            self._session.replica.watchers.append(self._notice)
            self._task = asyncio.create_task(self._run(), name=f"rules-{self._session.link.board_id}")

    async def close(self) -> None:
        """Stop looking. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            self._session.replica.watchers.remove(self._notice)
            await end_task(task)

    @property
    def has_rules(self) -> bool:
        return self._model is not None and has_rules(self._model)

    def findings(self, after: dict[str, JsonValue] | None = None) -> Findings | None:
        """What the replica's state now, and the one ``after`` a patch, say of the rules; see `judge`."""
        if self._model is None:
            return None
        replica = self._session.replica
        return judge(replica.document, self._model, seq=replica.seq, after=after)

    def _notice(self, _changes: Sequence[Change]) -> None:
        self._changed.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        board_id, failing = self._session.link.board_id, False
        while True:
            await self._changed.wait()
            await self._settle()
            began = loop.time()
            try:
                news = self._news()
                took = loop.time() - began
                if news is not None:
                    await self._session.link.report(self._agent, news)
                failing = False
            except BoardError:  # the board was closed or failed, which its handles are told
                took = 0.0
            except Exception:  # the boundary of this task: a validator is the model's own code
                took = loop.time() - began
                if not failing:
                    logger.exception("board %s: a validator failed, so its rules are not watched", board_id)
                failing = True
            await asyncio.sleep(took * _REST_OF_LOOK)

    async def _settle(self) -> None:
        limits, loop = DEFAULT_LIMITS, asyncio.get_running_loop()
        latest = loop.time() + limits.rules_settle_seconds_max
        while self._changed.is_set() and loop.time() < latest:
            self._changed.clear()
            await asyncio.sleep(limits.rules_settle_seconds)
        self._changed.clear()

    def _news(self) -> Findings | None:
        """What is to be told: what is broken and not recorded yet, and what is recorded and kept."""
        findings = self.findings()
        if findings is None:
            return None
        document = self._session.replica.document
        recorded = document.standing.recorded(document)
        new = tuple(each for each in findings.broken if f"{each.rule}@{each.path}" not in recorded)
        news = findings.model_copy(update={"broken": new})
        return news if news.tells else None
