"""pycrdt-websocket under uvicorn, with its SQLite store; DATA names the folder.

The library does not load a room from its store, so `get_room` does. Of two clients that open a new room at once its own
`get_room` leaves one without an answer for ever (0.16.5), hence the lock.
"""

import os
from contextlib import suppress
from pathlib import Path

from anyio import Lock
from pycrdt.store import SQLiteYStore, YDocNotFound
from pycrdt.websocket import ASGIServer, WebsocketServer, YRoom, exception_logger


class Store(SQLiteYStore):
    db_path = str(Path(os.environ["DATA"]) / "rooms.db")


class Server(WebsocketServer):
    def __init__(self):
        super().__init__(exception_handler=exception_logger)
        self._locks: dict[str, Lock] = {}

    async def get_room(self, name: str) -> YRoom:
        async with self._locks.setdefault(name, Lock()):
            if name not in self.rooms:
                store = Store(name, log=self.log)
                room = YRoom(ready=False, ystore=store, exception_handler=exception_logger, log=self.log)
                await self.start_room(room)
                await store.started.wait()
                with suppress(YDocNotFound):
                    await store.apply_updates(room.ydoc)
                room.ready = True
                await room.ydoc_observed.wait()
                self.rooms[name] = room
            return self.rooms[name]


server = Server()
serve = ASGIServer(server)


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        async with server:
            await serve(scope, receive, send)
    else:
        await serve(scope, receive, send)
