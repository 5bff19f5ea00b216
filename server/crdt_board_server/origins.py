"""Which web pages may use the server: browsers send requests of every page that is visited, also to this machine.

A page is told by the ``Origin`` of its requests. That of another site is refused, unless the server was told to allow
it; so is a name in ``Host`` that is not this machine's while the server listens on loopback only, since a page can give
its own name this machine's address (DNS rebinding). Programs that are no browsers send no ``Origin``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from crdt_board.errors import BadRequest, ForbiddenOrigin
from crdt_board_server.api.problems import problem_of


class Origins:
    """The policy of one server.

    ``allowed`` are origins like ``https://boards.example``, beside the server's own address. ``loopback``: the server
    listens on this machine only, and pages of this machine are allowed too.
    """

    def __init__(self, allowed: Iterable[str] = (), *, loopback: bool = True) -> None:
        """Raises BadRequest when one of ``allowed`` is no origin."""
        self._allowed = {_normal(_origin(text)) for text in allowed}
        self._hosts = {_origin(text).hostname for text in allowed}
        self._loopback = loopback

    def check_all(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """The same as `check`, for headers that a request may have more than once."""
        for host in (*hosts,) or (None,):
            for origin in (*origins,) or (None,):
                self.check(host, origin)

    def check(self, host: str | None, origin: str | None) -> None:
        """Return when a request with these headers may be answered.

        Raises:
            ForbiddenOrigin: it may not.
        """
        name = urlsplit(f"//{host or ''}").hostname
        if self._loopback and host is not None and not (_is_loopback(name) or name in self._hosts):
            raise ForbiddenOrigin(
                f"this server listens on this machine only and does not answer to the name {name}; "
                "start it with --origin for the address under which a proxy shows it",
                origin=str(origin),
            )
        if origin is None:
            return
        page = urlsplit(origin)
        if page.netloc and page.netloc == host:
            return
        if _normal(page) in self._allowed or (self._loopback and _is_loopback(page.hostname)):
            return
        raise ForbiddenOrigin(
            f"pages of {origin[:200]} may not use this server; start it with --origin {origin[:200]} to allow them",
            origin=origin[:200],
        )


class OriginCheck:
    """The policy for HTTP, in front of everything else."""

    def __init__(self, app: ASGIApp, origins: Origins) -> None:
        self._app = app
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            try:
                self._origins.check_all(headers.getlist("host"), headers.getlist("origin"))
            except ForbiddenOrigin as error:
                await problem_of(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _origin(text: str) -> SplitResult:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        raise BadRequest(f"{text!r} is no origin: write it like https://boards.example or http://localhost:5173")
    return parts


def _normal(parts: SplitResult) -> tuple[str, str | None, int | None]:
    try:
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # a port that is no number
        return parts.scheme, None, None


def _is_loopback(name: str | None) -> bool:
    if name is None:
        return False
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
