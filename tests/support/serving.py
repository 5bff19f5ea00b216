"""A server in the process of the test, over a store that the test can look into or break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import uvicorn

from crdt_board.host import BoardHost
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.store.contract import Store
from crdt_board_server.app import bind, build_app
from crdt_board_server.heads import http_protocol
from crdt_board_server.rooms import Rooms
from crdt_board_server.websocket import Peers, board_protocol
from support.waiting import eventually


class _Server(uvicorn.Server):
    """uvicorn without its hands on the signals of the test's process, and without waking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        await self.ended.wait()


@dataclass(frozen=True, slots=True)
class Served:
    port: int
    host: BoardHost
    peers: Peers

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def serving(store: Store, *, port: int = 0, limits: Limits = DEFAULT_LIMITS) -> AsyncIterator[Served]:
    """Serve ``store`` until the end of the block, and close it then."""
    with contextlib.closing(bind("127.0.0.1", port)) as listening:
        async with BoardHost(store, limits=limits) as host:
            peers = Peers(Rooms(host), limits)
            settings = uvicorn.Config(
                build_app(host, peers),
                http=http_protocol(limits),
                ws=board_protocol(peers),
                lifespan="on",
                log_config=None,
                access_log=False,
            )
            server = _Server(settings)
            running = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                await eventually(lambda: server.started or running.done(), "the server has started")
                yield Served(listening.getsockname()[1], host, peers)
            finally:
                server.ended.set()
                await running
