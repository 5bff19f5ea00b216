"""pycrdt's own ``Provider`` on one board with Python clients of CRDT Board."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pycrdt
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from crdt_board_client import connect
from support.model import Report
from support.server import ServerProcess
from support.stock import stock_socket
from support.waiting import eventually

_MIXED = "naïve e\u0301 漢字 👩‍👩‍👧 \U0001f9ff ﷽ 𝔘"


class _Channel(pycrdt.Channel):
    """A websocket in the form that a `pycrdt.Provider` wants."""

    def __init__(self, socket: ClientConnection, path: str) -> None:
        self._socket = socket
        self._path = path

    @property
    def path(self) -> str:
        return self._path

    async def send(self, message: bytes) -> None:
        await self._socket.send(message)

    async def recv(self) -> bytes:
        message = await self._socket.recv()
        assert isinstance(message, bytes)
        return message

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except ConnectionClosed:
            raise StopAsyncIteration from None


@contextlib.asynccontextmanager
async def provided(url: str, board_id: str) -> AsyncIterator[pycrdt.Doc[Any]]:
    """A document that a `pycrdt.Provider` keeps in step with the board."""
    doc: pycrdt.Doc[Any] = pycrdt.Doc()
    async with (
        stock_socket(url, board_id, max_queue=None) as socket,
        pycrdt.Provider(doc, _Channel(socket, board_id)) as provider,
    ):
        await provider.synced.wait()
        yield doc


async def test_python_writes_and_provider_reads(shared_server: ServerProcess, board_id: str) -> None:
    """What a client of ours writes, before a provider comes and after, is in the provider's document."""
    async with connect(shared_server.url, board_id, Report, agent="writer") as board:
        board.state.draft.append(_MIXED)
        board.state.sources.add(_MIXED)
        await board.flush(5)
        async with provided(shared_server.url, board_id) as doc:
            draft, plan = doc.get("draft", type=pycrdt.Text), doc.get("plan", type=pycrdt.Array)
            assert str(draft) == _MIXED
            assert doc.get("sources", type=pycrdt.Map).to_py() == {f'"{_MIXED}"': _MIXED}
            board.state.plan.extend([_MIXED, "two"])
            board.state.draft.insert(1, "漢")
            board.state.spent += 3
            await eventually(lambda: str(draft) == _MIXED[0] + "漢" + _MIXED[1:], "the text has arrived")
            await eventually(lambda: plan.to_py() == [_MIXED, "two"], "the list has arrived")


async def test_provider_writes_and_python_reads(shared_server: ServerProcess, board_id: str) -> None:
    """What a provider sends is on the board of a client of ours, and stays when the provider has gone."""
    async with (
        connect(shared_server.url, board_id, Report, agent="reader") as board,
        provided(shared_server.url, board_id) as doc,
    ):
        with doc.transaction():
            doc.get("draft", type=pycrdt.Text).insert(0, _MIXED)
            doc.get("state", type=pycrdt.Map)["title"] = _MIXED
            doc.get("plan", type=pycrdt.Array).extend(["one", _MIXED])
            doc.get("scores", type=pycrdt.Map)[_MIXED] = 7
            doc.get("spent", type=pycrdt.Map)[str(doc.client_id)] = 5
        seen = await board.wait_for(lambda state: state.spent == 5, 5)
        assert seen == Report(draft=_MIXED, title=_MIXED, plan=["one", _MIXED], scores={_MIXED: 7}, spent=5)
    async with connect(shared_server.url, board_id, Report, agent="reader") as board:
        assert board.snapshot() == seen


@pytest.mark.parametrize("rounds", [50])
async def test_provider_and_python_at_once(shared_server: ServerProcess, board_id: str, rounds: int) -> None:
    """Two providers and a client of ours that type at once end with one text, which holds all of it."""
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as board,
        provided(shared_server.url, board_id) as first,
        provided(shared_server.url, board_id) as second,
    ):
        texts = [doc.get("draft", type=pycrdt.Text) for doc in (first, second)]
        for _ in range(rounds):
            board.state.draft.append("ä")
            texts[0].insert(0, "漢")
            texts[1].insert(0, "👋")
        await board.wait_for(lambda state: len(state.draft) == 3 * rounds, 10)
        whole = str(board.state.draft)
        assert [whole.count(each) for each in "ä漢👋"] == [rounds] * 3
        for text in texts:
            await eventually(lambda text=text: str(text) == whole, "the same text everywhere")
