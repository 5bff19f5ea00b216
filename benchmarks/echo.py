"""What a broadcast costs without any board: ``python -m benchmarks.echo`` serves one until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from websockets.asyncio.server import ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed


async def main() -> None:
    """Hand each message to all other connections, with the library of the real server."""
    connected: set[ServerConnection] = set()

    async def handle(connection: ServerConnection) -> None:
        connected.add(connection)
        with contextlib.suppress(ConnectionClosed):
            async for message in connection:
                broadcast(connected - {connection}, message)
        connected.discard(connection)

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with serve(handle, "127.0.0.1", 0, compression=None) as server:
        print(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
