"""The same work over a classic optimistic store, LangGraph's SQLite saver, and rows that Postgres locks."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks.contention.classic import Client, Refused, SocketClient, State, classic_client
from benchmarks.contention.work import Mode, Operation, Sight

CLASSIC = "classic store: whole-board OCC"
_CONFIG = {"configurable": {"thread_id": "board", "checkpoint_ns": ""}}


def classic_mode(clients: Sequence[Client]) -> Mode:
    """Load, think, commit if nobody was in between; at once again if somebody was."""

    async def operate(agent: int, operation: Operation) -> None:
        client, name = clients[agent], f"v{operation.field}"
        while True:
            version, state = await client.load()
            await operation.think()
            patch = {name: state.get(name, 0) + 1, **operation.marked()}
            try:
                await client.commit(patch, version)
            except Refused:
                continue
            return

    async def count() -> int:
        _, state = await clients[0].load()
        return _total(state)

    return Mode(CLASSIC, operate, count)


@contextlib.asynccontextmanager
async def classic_served(port: int, board: str, agents: int, sight: Sight) -> AsyncIterator[Mode]:
    """Everybody with a connection of their own, and one more who only looks on."""
    async with contextlib.AsyncExitStack() as stack:
        clients: list[SocketClient] = []
        for number in range(agents + 1):
            client = await stack.enter_async_context(classic_client(port, board))
            client.pushed = lambda patch, number=number: sight.seen(number, patch.get("mark", 0))  # type: ignore[misc]
            clients.append(client)
        yield classic_mode(clients)


@contextlib.asynccontextmanager
async def langgraph_modes(file: Path, fields: int) -> AsyncIterator[list[Mode]]:
    """The saver by itself, and a graph whose channels add up what they are given; all agents share one saver."""
    import aiosqlite  # noqa: PLC0415 - with LangGraph only
    from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415 - only the `bench` extra has it
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415
    from langgraph.graph import StateGraph  # noqa: PLC0415

    names = [f"v{at}" for at in range(fields)]
    async with aiosqlite.connect(file) as connection:
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        await connection.execute("PRAGMA synchronous = FULL")
        graph = StateGraph(TypedDict("Sums", dict.fromkeys(names, Annotated[int, operator.add])))  # type: ignore[operator]
        graph.add_node("step", lambda _state: {})
        graph.set_entry_point("step")
        graph.set_finish_point("step")
        compiled = graph.compile(checkpointer=saver)
        sums: Any = {"configurable": {"thread_id": "sums", "checkpoint_ns": ""}}

        async def put(_agent: int, operation: Operation) -> None:
            found, name = await saver.aget_tuple(_CONFIG), f"v{operation.field}"
            values: State = dict(found.checkpoint["channel_values"]) if found else {}
            await operation.think()
            values[name] = values.get(name, 0) + 1
            versions = dict.fromkeys(values, str(operation.number))
            checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": versions}
            metadata = {"source": "loop", "step": operation.number}
            await saver.aput(found.config if found else _CONFIG, checkpoint, metadata, versions)

        async def add(_agent: int, operation: Operation) -> None:
            await compiled.aget_state(sums)
            await operation.think()
            await compiled.aupdate_state(sums, {f"v{operation.field}": 1}, as_node="step")

        async def count_put() -> int:
            found = await saver.aget_tuple(_CONFIG)
            return _total(found.checkpoint["channel_values"]) if found else 0

        async def count_sums() -> int:
            return _total((await compiled.aget_state(sums)).values)

        yield [
            Mode("LangGraph SQLite: latest, put", put, count_put, keeps_all=False),
            Mode("LangGraph SQLite: reducers", add, count_sums, keeps_all=False),
        ]


@contextlib.asynccontextmanager
async def postgres_modes(address: str, agents: int, fields: int) -> AsyncIterator[list[Mode]]:
    """A row for the board and a row for each field, locked from the read to the write; a connection for each agent."""
    import psycopg  # noqa: PLC0415 - only the `bench` extra has it

    async with contextlib.AsyncExitStack() as stack:
        connections = []
        for _ in range(agents):
            connection = await stack.enter_async_context(await psycopg.AsyncConnection.connect(address))
            connections.append(connection)
        first = connections[0]
        await first.execute("CREATE TABLE IF NOT EXISTS boards (id integer PRIMARY KEY, state jsonb NOT NULL)")
        await first.execute("TRUNCATE boards")
        for row in range(fields + 1):
            await first.execute("INSERT INTO boards VALUES (%s, '{}')", [row])
        await first.commit()

        async def locked(agent: int, operation: Operation, row: int) -> None:
            connection, name = connections[agent], f"v{operation.field}"
            async with connection.transaction():
                found = await connection.execute("SELECT state FROM boards WHERE id = %s FOR UPDATE", [row])
                state: State = (await found.fetchone() or [{}])[0]
                await operation.think()
                value = state.get(name, 0) + 1
                await connection.execute(
                    "UPDATE boards SET state = state || jsonb_build_object(%s::text, %s::integer) WHERE id = %s",
                    [name, value, row],
                )

        async def whole(agent: int, operation: Operation) -> None:
            await locked(agent, operation, 0)

        async def by_field(agent: int, operation: Operation) -> None:
            await locked(agent, operation, 1 + operation.field)

        async def count() -> int:
            found = await first.execute("SELECT state FROM boards")
            states = await found.fetchall()
            await first.commit()
            return sum(_total(state) for (state,) in states)

        yield [
            Mode("Postgres: one row, FOR UPDATE", whole, count),
            Mode("Postgres: a row per field, FOR UPDATE", by_field, count),
        ]


def _total(state: State) -> int:
    return sum(value for name, value in state.items() if name.startswith("v"))
