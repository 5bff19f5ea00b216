"""The address of a server, in either of the forms in which `crdt-board serve` prints it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from crdt_board.errors import BadRequest

_OVER_HTTP = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


def http_address(url: str) -> str:
    """Where a server's HTTP API is: ``http://`` or ``https://``, without a slash at the end.

    Raises:
        BadRequest: ``url`` is not the address of a server.
    """
    parts = _parts(url)
    if parts is None or parts.scheme not in _OVER_HTTP or not parts.hostname or parts.query or parts.fragment:
        raise BadRequest(
            f"{url!r} is not the address of a server: use http://host:port or ws://host:port, or https:// or wss://"
        )
    if "ws" in parts.path.split("/"):
        raise BadRequest(f"{url!r}: give the server's address without /ws and the board; the board is an argument")
    return f"{_OVER_HTTP[parts.scheme]}://{parts.netloc}{parts.path.rstrip('/')}"


def _parts(url: object) -> SplitResult | None:
    try:
        parts = urlsplit(url.strip()) if isinstance(url, str) else None
        return None if parts is None or parts.port == 0 else parts
    except ValueError:  # a port that is no number
        return None


def websocket_address(url: str) -> str:
    """The same for its websockets: ``ws://`` or ``wss://``.

    Raises:
        BadRequest: ``url`` is not the address of a server.
    """
    return http_address(url).replace("http", "ws", 1)
