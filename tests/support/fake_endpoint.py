"""An endpoint for chat completions on a real socket, which answers and fails as a test tells it to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

Behaviour = Callable[[str, asyncio.StreamWriter], Awaitable[None]]
"""Given the prompt of a request, answers it."""

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class FakeEndpoint:
    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.port = 0
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        """First line, headers and body of each."""
        self.serving: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer(reader, writer)
        finally:
            writer.close()
            self.serving.discard(task)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append((first, headers, body))
        await self.behaviour(body["messages"][-1]["content"], writer)
        await writer.drain()


@contextlib.asynccontextmanager
async def fake_endpoint(behaviour: Behaviour) -> AsyncIterator[FakeEndpoint]:
    fake = FakeEndpoint(behaviour)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        serving = list(fake.serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def event(text: str | None = None, finish: str | None = None) -> bytes:
    """One piece of an answer."""
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]}, ensure_ascii=False)}\n\n".encode()


def streaming(*pieces: str) -> Behaviour:
    """Answers with these pieces."""

    async def answer(_prompt: str, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"".join(map(event, pieces)) + event(finish="stop") + b"data: [DONE]\n\n")

    return answer


def raw(*parts: bytes) -> Behaviour:
    """Answers with these bytes, each part in a packet of its own."""

    async def answer(_prompt: str, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    return answer
