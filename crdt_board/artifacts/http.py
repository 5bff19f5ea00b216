"""Artifacts at a server, over its HTTP API. Needs httpx, which the extra ``artifacts`` brings."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from crdt_board.addresses import http_address
from crdt_board.artifacts.contract import CHUNK_BYTES, StoredArtifact
from crdt_board.artifacts.pointer import Artifact
from crdt_board.artifacts.sweep import SweepReport
from crdt_board.artifacts.threads import in_thread
from crdt_board.errors import ArtifactCorrupt, BadRequest, ConnectionFailed, from_details

if TYPE_CHECKING:
    import httpx

_PLACE = "/api/artifacts"
_DAMAGED_STATUS = 500
_CONNECT_SECONDS = 10.0
_SWEEP_SECONDS = 3600.0
_ANSWER_SECONDS = 300.0
"""How long a server may take to store what was sent, or to send more: its own store may be a bucket far away."""


class HttpArtifacts:
    """What `ArtifactAccess` promises, at the server whose address, or that of its websockets, is ``url``.

    What the server sends is verified here too. Making one raises BadRequest when ``url`` is no such address.
    """

    def __init__(self, url: str) -> None:
        self._address = http_address(url)
        self._client: httpx.AsyncClient | None = None

    async def put(self, chunks: AsyncIterable[bytes], media_type: str) -> Artifact:
        with self._errors():
            answer = await self._http().post(_PLACE, content=aiter(chunks), headers={"Content-Type": media_type})
        return Artifact.model_validate_json(self._checked(answer).content)

    async def stat(self, digest: str) -> StoredArtifact | None:
        with self._errors():
            answer = await self._http().head(f"{_PLACE}/{digest}")
        if answer.status_code == 404:
            return None
        headers = self._checked(answer).headers
        stored = parsedate_to_datetime(headers["Last-Modified"])
        return StoredArtifact(
            sha256=digest, size=int(headers["Content-Length"]), stored_ms=int(stored.timestamp() * 1000)
        )

    async def read(self, digest: str) -> AsyncGenerator[bytes]:
        sha256, held = hashlib.sha256(), b""
        try:
            with self._errors():
                async with self._http().stream("GET", f"{_PLACE}/{digest}") as answer:
                    if not answer.is_success:
                        await answer.aread()
                    async for chunk in self._checked(answer).aiter_bytes(CHUNK_BYTES):
                        if held:
                            yield held
                        held = chunk
                        await in_thread(sha256.update, chunk)
        except ConnectionFailed:
            await self._raise_damage(digest)
            raise
        if sha256.hexdigest() != digest:
            raise ArtifactCorrupt(f"artifact {digest} arrived with another hash; read it again", sha256=digest)
        if held:
            yield held

    async def page(self, *, after: str = "", limit: int) -> list[StoredArtifact]:
        """See `ArtifactStore.page`."""
        with self._errors():
            answer = await self._http().get(_PLACE, params={"after": after, "limit": limit})
        return [StoredArtifact.model_validate(each) for each in self._checked(answer).json()["artifacts"]]

    async def sweep(self, *, grace: timedelta, dry_run: bool) -> SweepReport:
        """See `crdt_board.artifacts.sweep`; the server does it."""
        wanted = {"grace_seconds": int(grace.total_seconds()), "dry_run": dry_run}
        with self._errors():
            answer = await self._http().post(f"{_PLACE}/sweeps", json=wanted, timeout=_SWEEP_SECONDS)
        return SweepReport.model_validate_json(self._checked(answer).content)

    async def close(self) -> None:
        """Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _raise_damage(self, digest: str) -> None:
        """Raise ArtifactCorrupt when that is why the server broke off: it has looked at all of it by then."""
        with self._errors():
            answer = await self._http().get(f"{_PLACE}/{digest}", headers={"Range": "bytes=0-0"})
        if answer.status_code == _DAMAGED_STATUS:
            self._checked(answer)

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            try:
                import httpx  # noqa: PLC0415 - an extra, which only artifacts need
            except ModuleNotFoundError as error:
                raise BadRequest(
                    f"artifacts at a server need {error.name}: pip install 'crdt-board[artifacts]'"
                ) from None
            timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
            self._client = httpx.AsyncClient(base_url=self._address, timeout=timeout)
        return self._client

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        self._http()
        import httpx  # noqa: PLC0415 - an extra, which only artifacts need

        try:
            yield
        except httpx.HTTPError as error:
            raise ConnectionFailed(
                f"{self._address} did not answer about artifacts ({str(error) or type(error).__name__}); try again"
            ) from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        """The answer itself; raises the error that it is, if it is one."""
        if answer.is_success:
            return answer
        if answer.headers.get("content-type", "").startswith("application/problem+json") and answer.content:
            problem = answer.json()
            raise from_details({"code": problem["code"], "message": problem["detail"], "data": problem.get("data")})
        raise ConnectionFailed(f"{self._address} answered {answer.status_code}: is it a CRDT Board server?")
