"""Looking back at a board, and branching off from it: the part of `Board` that only asks its writer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Generic, TypeVar, cast

from pydantic import JsonValue

from crdt_board.board_link import BoardSession
from crdt_board.checkpoints import Checkpoint, parse_pointer
from crdt_board.commit_arguments import check_number
from crdt_board.control import Blame, Diff, ListEdits, ListForks, Measure, Question, Verify
from crdt_board.errors import BadRequest, BoardError, ConnectionFailed, NotFound
from crdt_board.history import Fork, PathEdit, StateDiff, Stretch, Verification
from crdt_board.limits import check_board_id
from crdt_board.sizes import BoardSizes
from crdt_board.views import View
from crdt_board.wire_values import check_text

M = TypeVar("M")
_Answer = TypeVar("_Answer")

_CHECKPOINTS_MAX = 1000
_NUMBER_MAX = 2**53 - 1
QUERY_SECONDS = 30.0


class BoardPast(Generic[M]):
    """What an agent's handle on a board can ask about its past."""

    _session: BoardSession
    _agent: str
    _view: View

    @property
    def id(self) -> str:
        return self._session.link.board_id

    @property
    def version(self) -> int:
        """The newest checkpoint that this replica has seen; 0 before the first."""
        return self._session.replica.version

    @property
    def failure(self) -> BoardError | None:
        """Why local updates do not become durable just now, or None."""
        return self._session.error or self._session.link.failure

    async def checkpoints(
        self, *, before: int | None = None, limit: int = 100, timeout: float | None = QUERY_SECONDS
    ) -> list[Checkpoint]:
        """Up to ``limit`` (1 to 1000) checkpoints with ``version < before`` (all when None), newest first.

        Raises:
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        self._session.check()
        check_number(limit, "limit", 1, _CHECKPOINTS_MAX)
        if before is not None:
            check_number(before, "before", 0, _NUMBER_MAX)
        return await self._answered(self._session.link.checkpoints(before=before, limit=limit), timeout)

    async def at(self, version: int | str | Checkpoint, *, timeout: float | None = QUERY_SECONDS) -> M:
        """The board as it was at a version, a checkpoint or a pointer to one, verified against its checksum.

        A version from before a migration of this agent's model is migrated as it is read; the board stays as it is.

        Raises:
            SchemaMismatch: the version is of another schema, which the model cannot read.
            NotFound: there is no such version, or it is not the one that the pointer or checkpoint means.
            BadRequest: the text is no pointer, or one to another board.
            BoardCorrupt: stored history does not verify.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        self._session.check()
        number, wanted = self._wanted_version(version)
        stored = await self._answered(self._session.link.state_at(number), timeout)
        checkpoint = stored.checkpoint
        if not checkpoint.hash.startswith(wanted):
            raise NotFound(
                f"version {number} of board {self.id} has the hash {checkpoint.hash[:16]}, not {wanted[:16]}"
            )
        return cast(M, self._view.stored(stored))

    async def fork(
        self, board_id: str, *, at: int | str | Checkpoint | None = None, timeout: float | None = QUERY_SECONDS
    ) -> Checkpoint:
        """Make a new board that begins at a version of this one, the newest if ``at`` is None; open it by its name.

        It has a journal of its own, and nothing that is done there reaches this board, until `merge_from`. Returns the
        fork's first checkpoint; durable on return.

        Raises:
            BoardExists: there is a board of this name.
            InvalidBoardId: ``board_id`` is not one.
            NotFound: as `at`; or this board has no version yet.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever); whether there is a fork is unknown.
        """
        check_board_id(board_id)
        self._session.check()
        if at is None and self.version == 0:
            raise NotFound(f"board {self.id} has no version yet: commit, then fork")
        version = await self._checked_version(self.version if at is None else at)
        return await self._answered(self._session.link.fork(version, board_id, self._agent), timeout)

    async def forks(self, *, timeout: float | None = QUERY_SECONDS) -> list[Fork]:
        """The boards that were forked from this one, in the order of their ids.

        Raises:
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        answer = await self._asked(ListForks(), timeout)
        return [Fork.model_validate(item) for item in cast(list[JsonValue], answer)]

    async def diff(
        self,
        before: int | str | Checkpoint,
        after: int | str | Checkpoint | None = None,
        *,
        timeout: float | None = QUERY_SECONDS,
    ) -> StateDiff:
        """What differs between two versions, checkpoints or pointers, by path; ``str()`` of it is for people to read.

        Version 0 is the empty board; ``after`` None is what is durable now, own edits that are not are left out.

        Raises:
            As `at`.
        """
        sides = [await self._checked_version(version) for version in (before, 0 if after is None else after)]
        question = Diff(before=sides[0], after=None if after is None else sides[1])
        return StateDiff.model_validate(await self._asked(question, timeout))

    async def history(
        self, path: str, *, before: int | None = None, limit: int = 100, timeout: float | None = QUERY_SECONDS
    ) -> list[PathEdit]:
        """Who changed ``path``, when, in which step, and what: up to ``limit`` (1 to 1000) changes, newest first.

        ``path`` is a field, or as in `changes` a key or record inside one, down to a field of a record. To go on, give
        the ``seq`` of the last one as ``before``. Own edits that are not durable yet are left out.

        Raises:
            BadRequest: the path names no field, or a number is out of bounds.
            BoardCorrupt: stored history does not verify.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        check_number(limit, "limit", 1, _CHECKPOINTS_MAX)
        if before is not None:
            check_number(before, "before", 0, _NUMBER_MAX)
        answer = await self._asked(ListEdits(path=_checked_path(path), before=before, limit=limit), timeout)
        return [PathEdit.model_validate(item) for item in cast(list[JsonValue], answer)]

    async def blame(
        self, path: str, *, version: int | str | Checkpoint | None = None, timeout: float | None = QUERY_SECONDS
    ) -> list[Stretch]:
        """Who wrote each stretch of the text at ``path``, in the order of the text; together they are the whole text.

        ``version`` None is what is durable now. Reads the whole journal.

        Raises:
            BadRequest: the path names no text.
            NotFound: there is no such version, or no such record.
            BoardCorrupt, Unavailable: as `history`.
        """
        number = None if version is None else await self._checked_version(version)
        answer = await self._asked(Blame(path=_checked_path(path), version=number), timeout)
        return [Stretch.model_validate(item) for item in cast(list[JsonValue], answer)]

    async def verify(self, *, timeout: float | None = None) -> Verification:
        """Read everything that is stored of the board, and compare hashes, chains, states, snapshots and the head.

        What is wrong is in the result and raises nothing. Takes some 20 µs for each entry.

        Raises:
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        return Verification.model_validate(await self._asked(Verify(), timeout))

    async def sizes(self, *, timeout: float | None = QUERY_SECONDS) -> BoardSizes:
        """How large the board is, field by field and in the store, and how near its bounds.

        Beyond these edits are refused. As of what is durable now. Takes as long as opening the board, and reads the
        lengths of all its entries.

        Raises:
            BoardCorrupt: stored history does not verify.
            Unavailable: no answer within ``timeout`` seconds (None waits for ever).
        """
        return BoardSizes.model_validate(await self._asked(Measure(), timeout))

    async def _answered(self, answer: Awaitable[_Answer], timeout: float | None) -> _Answer:
        try:
            if timeout is None:
                return await answer
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise self._no_answer(f"no answer within {timeout} s") from None

    async def _asked(self, question: Question, timeout: float | None) -> JsonValue:
        self._session.check()
        return await self._answered(self._session.link.ask(question), timeout)

    async def _checked_version(self, version: int | str | Checkpoint) -> int:
        """The number of a version; of a pointer or checkpoint only if the board's is the one that it means."""
        number, wanted = self._wanted_version(version)
        if wanted:
            found = await self.checkpoints(before=number + 1, limit=1)
            if not found or found[0].version != number or not found[0].hash.startswith(wanted):
                raise NotFound(f"version {number} of board {self.id} is not the one that {version} means")
        return number

    def _wanted_version(self, version: int | str | Checkpoint) -> tuple[int, str]:
        if isinstance(version, Checkpoint):
            version = version.pointer
        if isinstance(version, str):
            pointer = parse_pointer(version)
            if pointer.board_id != self.id:
                raise BadRequest(f"{version} points to another board than {self.id}")
            return pointer.version, pointer.hash
        check_number(version, "version", 0, _NUMBER_MAX)
        return version, ""

    def _no_answer(self, what: str) -> BoardError:
        failure = self.failure
        if failure is None:
            return ConnectionFailed(f"{what}; the writer of board {self.id} has not answered yet")
        return type(failure)(f"{what}: {failure}", **failure.data)


def _checked_path(path: object) -> str:
    if not isinstance(path, str) or not path:
        raise BadRequest("a path is the name of a field, like 'draft', or a place in one, like 'findings/f1/title'")
    return check_text(path, "path")
