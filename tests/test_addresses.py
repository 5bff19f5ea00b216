"""The address of a server, in the forms in which people have it."""

from __future__ import annotations

from typing import Any

import pytest

from crdt_board import BadRequest, open_board
from crdt_board.addresses import http_address, websocket_address


@pytest.mark.parametrize(
    ("given", "http", "websocket"),
    [
        ("http://127.0.0.1:8765", "http://127.0.0.1:8765", "ws://127.0.0.1:8765"),
        ("ws://127.0.0.1:8765/", "http://127.0.0.1:8765", "ws://127.0.0.1:8765"),
        (" HTTPS://boards.example\n", "https://boards.example", "wss://boards.example"),
        ("wss://boards.example/team/", "https://boards.example/team", "wss://boards.example/team"),
        ("ws://[::1]:80", "http://[::1]:80", "ws://[::1]:80"),
        ("http://wss.example:1/https", "http://wss.example:1/https", "ws://wss.example:1/https"),
    ],
)
def test_both_forms_of_an_address_lead_to_the_server(given: str, http: str, websocket: str) -> None:
    assert (http_address(given), websocket_address(given)) == (http, websocket)


@pytest.mark.parametrize(
    "given",
    ["", "boards", "127.0.0.1:80", "ftp://h", "http://", "ws://:80", "http://h:0", "http://h:p", "ws://h/#x", 5],
)
def test_what_is_no_address_is_refused(given: Any) -> None:
    """Saying what one looks like."""
    with pytest.raises(BadRequest, match=r"is not the address of a server: use http://host:port or ws://host:port"):
        http_address(given)


def test_the_address_of_a_board_is_refused() -> None:
    """Of those that stock clients are given."""
    with pytest.raises(BadRequest, match="without /ws and the board"):
        http_address("ws://127.0.0.1:8765/ws/job")


@pytest.mark.parametrize("given", ["ws://127.0.0.1:8765", "http://127.0.0.1:8765"])
async def test_an_address_is_no_file(given: str) -> None:
    """A server is not opened as a database."""
    with pytest.raises(BadRequest, match=r"use crdt_board_client\.connect"):
        await open_board(given, "job", agent="ann").__aenter__()
