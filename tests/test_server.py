"""The server as a process: starting, stopping, dying, and peers that behave badly."""

from __future__ import annotations

import httpx

from crdt_board_client import connect
from support.model import Report
from support.server import ServerProcess
from support.stock import stock_peer


async def test_health(server: ServerProcess) -> None:
    """A server that runs says that it is alive, ready, and how many boards and connections it serves."""
    async with httpx.AsyncClient(base_url=server.http, trust_env=False) as http, connect(server.url, "b", Report, agent="a") as board:
        board.state.draft.append("hei 🇳🇴")
        await board.flush(5)
        assert (await http.get("/healthz")).json()["status"] == "ok"
        ready = (await http.get("/readyz")).json()
        assert (ready["boards"], ready["connections"]) == (1, 1)
        async with stock_peer(server.url, "b") as peer:
            assert peer.text("draft") == "hei 🇳🇴"
