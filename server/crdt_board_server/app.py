"""The composition root: one store, one host of boards, one port for HTTP and websockets."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence

import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from crdt_board import __version__
from crdt_board.artifacts import ArtifactStore
from crdt_board.errors import BoardDeleted, BoardError
from crdt_board.host import BoardHost
from crdt_board.limits import DEFAULT_LIMITS, Limits
from crdt_board.store.contract import Store
from crdt_board_server.api.artifacts import artifact_routes
from crdt_board_server.api.bodies import BodyLimit
from crdt_board_server.api.problems import DescribedApp, install_problems
from crdt_board_server.api.routes import board_routes
from crdt_board_server.heads import http_protocol
from crdt_board_server.origins import OriginCheck, Origins
from crdt_board_server.rooms import Rooms
from crdt_board_server.snapshot_process import SnapshotProcess
from crdt_board_server.websocket import Peers, board_protocol

_BACKLOG = 2048
_READY_SECONDS = 2.0
_SHUTDOWN_SECONDS = 10
_IMPATIENT_SECONDS = 1.0

logger = logging.getLogger(__name__)


def bind(host: str, port: int) -> socket.socket:
    """Take the port, so that a fault is known before anything else is done.

    Raises:
        OSError: the address is in use or not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns off Nagle's algorithm only for sockets that name their protocol; with it on, a small answer waits
    # 40 ms for the peer's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


async def serve(
    store: Store,
    listening: socket.socket,
    *,
    artifacts: ArtifactStore | None = None,
    limits: Limits = DEFAULT_LIMITS,
    allowed: Sequence[str] = (),
) -> None:
    """Serve the boards of ``store`` until the process is told to stop (SIGTERM, SIGINT); closes the store.

    ``artifacts`` as in `BoardHost`. ``allowed`` are origins of web pages that may use it, see `Origins`.

    Everything that was acknowledged is durable then; connections are closed with a code that says to try again.
    """
    snapshots = SnapshotProcess()
    async with (
        BoardHost(
            store,
            artifacts=artifacts,
            idle_seconds=limits.room_idle_seconds,
            client_ids_rest_seconds=limits.client_ids_rest_seconds,
            limits=limits,
            compress=snapshots.compress,
        ) as host,
        contextlib.aclosing(snapshots),  # first: the last snapshots are taken in a thread
    ):
        loopback = ipaddress.ip_address(listening.getsockname()[0]).is_loopback
        peers = Peers(Rooms(host), limits, Origins(allowed, loopback=loopback))
        settings = uvicorn.Config(
            build_app(host, peers),
            http=http_protocol(limits),
            ws=board_protocol(peers),
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        await _Server(settings).serve(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn, ending normally on a signal.

    uvicorn raises the signal once more when it is done, which would end the process before the boards are closed.
    """

    _stopped_at = 0.0

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        """The first signal stops in order; another one, when a person is impatient, at once.

        A process and its group are often signalled in the same moment, which is one wish and not two.
        """
        now = asyncio.get_running_loop().time()
        app = self.config.app
        if isinstance(app, FastAPI):
            end_streams(app)
        if self.should_exit and now - self._stopped_at > _IMPATIENT_SECONDS:
            self.force_exit = True
        elif not self.should_exit:
            self._stopped_at = now
        self.should_exit = True


def build_app(host: BoardHost, peers: Peers) -> FastAPI:
    """The HTTP side: boards, and the health of the process and of its store."""

    @contextlib.asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(peers.keep_alive(), name="keep-alive"),
            asyncio.create_task(peers.look_for_dead(), name="look-for-dead"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    app = DescribedApp(title="CRDT Board", version=__version__, lifespan=lifespan, summary="Boards and their past.")
    app.state.stopping, app.state.bells = asyncio.Event(), set()  # what ends event streams when the server stops
    app.add_middleware(BodyLimit, limits=host.limits)
    app.add_middleware(OriginCheck, origins=peers.origins)
    install_problems(app)
    app.include_router(board_routes(peers.rooms))
    app.include_router(artifact_routes(host))

    @app.get("/healthz", summary="Whether the process answers")
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @app.get("/readyz", summary="Whether boards can be read and written now")
    async def readyz() -> JSONResponse:
        problems = await _problems(host, peers)
        content: dict[str, object] = {"status": "ok" if not problems else "unavailable", "problems": problems}
        content |= {"boards": len(host.open_boards()), "connections": len(peers)}
        return JSONResponse(content, status_code=503 if problems else 200)

    return app


def end_streams(app: FastAPI) -> None:
    """Let every event stream end: the server waits for answers under way."""
    app.state.stopping.set()
    for bell in app.state.bells:
        bell.set()


async def _problems(host: BoardHost, peers: Peers) -> list[str]:
    problems = [
        f"board {board_id}: {engine.failure}"
        for board_id, engine in host.open_boards().items()
        if engine.failure is not None and not isinstance(engine.failure, BoardDeleted)
    ]
    if peers.stopping:
        problems.append("the server is stopping")
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await host.store.boards(limit=1)
    except BoardError as error:
        problems.append(f"store: {error}")
    except TimeoutError:
        problems.append(f"store: no answer within {_READY_SECONDS:g} s")
    return problems
