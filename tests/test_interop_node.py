"""Stock Yjs clients under Node, the real ``yjs`` and ``y-websocket``, on one board with Python clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pycrdt
import pytest
from pydantic import Field

from crdt_board import AgentPresence, BoardModel, Text, items_of, open_board, wire
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board_client import connect
from support.children import Child, child
from support.model import Report
from support.server import ServerProcess
from support.serving import Served, serving
from support.stock import stock_peer
from support.waiting import DEADLINE_SECONDS, eventually

_FOLDER = Path(__file__).resolve().parent / "interop"
_MIXED = "naïve e\u0301 漢字 👩‍👩‍👧 \U0001f9ff ﷽ 𝔘"
_CLIENT_ID_MAX = 2**53 - 1


@pytest.fixture(scope="module", autouse=True)
def _node() -> None:
    """Node and the packages are needed: skipped on a laptop, a failure in CI."""
    missing = None
    if shutil.which("node") is None:
        missing = "there is no `node` on the PATH"
    elif not (_FOLDER / "node_modules").is_dir():
        missing = f"the Node packages are not installed: run `npm ci --prefix {_FOLDER}`"
    if missing and os.environ.get("CI") == "true":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)


@pytest.fixture(params=["2", "3"], ids=["y-websocket-2", "y-websocket-3"])
def major(request: pytest.FixtureRequest) -> str:
    """The major version of y-websocket."""
    return str(request.param)


@contextlib.asynccontextmanager
async def node_peer(
    server: ServerProcess | Served, board_id: str, major: str, client_id: int | None = None
) -> AsyncIterator[Child]:
    """A Node client that is in step with the board on entry."""
    arguments = [major, server.url, board_id, *([] if client_id is None else [str(client_id)])]
    async with child(["node", "peer.mjs", *arguments], folder=_FOLDER) as peer:
        assert await peer.answer() == "ready"
        await eventually(lambda: peer.ask("isSynced"), "the Node client is in step")
        yield peer


async def _reads(peer: Child, expected: Any, *command: Any) -> None:
    """Wait until the Node client answers ``command`` with ``expected``."""
    answer: Any = None

    async def look() -> bool:
        nonlocal answer
        answer = await peer.ask(*command)
        return bool(answer == expected)

    try:
        await eventually(look, "")
    except AssertionError:
        assert answer == expected


async def test_python_writes_and_node_reads(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """Every kind of field that a Python client writes is in the document of a stock client, to the character."""
    async with (
        node_peer(shared_server, board_id, major) as peer,
        connect(shared_server.url, board_id, Report, agent="writer") as board,
    ):
        board.state.title = _MIXED
        board.state.due = datetime(2030, 1, 2, tzinfo=UTC)
        board.state.draft.append(_MIXED)
        board.state.draft.insert(1, "漢")
        board.state.plan.extend(["eins", _MIXED])
        board.state.sources.update(["a", _MIXED])
        board.state.scores[_MIXED] = 2**53 - 1
        board.state.spent += 812

        await _reads(peer, _MIXED[0] + "漢" + _MIXED[1:], "text", "draft")
        await _reads(peer, {"title": _MIXED, "due": "2030-01-02T00:00:00Z"}, "map", "state")
        await _reads(peer, ["eins", _MIXED], "array", "plan")
        await _reads(peer, {_MIXED: 2**53 - 1}, "map", "scores")
        assert set(await peer.ask("map", "sources")) == {'"a"', f'"{_MIXED}"'}
        assert sum((await peer.ask("map", "spent")).values()) == 812


async def test_node_writes_and_python_reads(server: ServerProcess, board_id: str, major: str) -> None:
    """Every kind of field that a stock client writes is read by a Python client, now and in a cold reload."""
    async with (
        connect(server.url, board_id, Report, agent="reader") as board,
        node_peer(server, board_id, major) as peer,
    ):
        await peer.ask("insertText", "draft", 0, _MIXED)
        await peer.ask("setKey", "state", "title", _MIXED)
        await peer.ask("insertItems", "plan", 0, ["eins", _MIXED])
        await peer.ask("setKey", "sources", f'"{_MIXED}"', _MIXED)
        await peer.ask("setKey", "scores", _MIXED, 7)
        await peer.ask("setKey", "spent", str(await peer.ask("clientId")), 5)
        board.state.spent += 2

        seen = await board.wait_for(lambda state: state.spent == 7, 5)
        expected = Report(
            draft=_MIXED, title=_MIXED, plan=["eins", _MIXED], sources={_MIXED}, scores={_MIXED: 7}, spent=7
        )
        assert seen == expected
    await server.terminate()
    async with open_board(server.database, board_id, Report, agent="reader") as board:
        assert board.snapshot() == expected


class Finding(BoardModel):
    title: str = ""
    severity: int = 0
    notes: Text
    scores: dict[str, int]


class Findings(BoardModel):
    findings: dict[str, Finding]


async def test_records_both_ways(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """A stock client reads and edits a record that Python opened, and Python one that the stock client made."""
    async with (
        node_peer(shared_server, board_id, major) as peer,
        connect(shared_server.url, board_id, Findings, agent="writer") as board,
    ):
        record = board.state.findings["f/1"]
        record.notes.append(_MIXED)
        record.title = "cast"
        expected = {"title": "cast", "notes": _MIXED, "scores": {}}
        await _reads(peer, expected, "record", "findings", "f/1")

        await peer.ask("insertInRecord", "findings", "f/1", "notes", 0, "漢")
        await peer.ask("setInRecord", "findings", "f/1", "severity", 3)
        record.notes.append("!")
        seen = await board.wait_for(lambda state: state.findings["f/1"].severity == 3, 5)
        assert seen.findings["f/1"] == Finding(title="cast", severity=3, notes=Text(f"漢{_MIXED}!"))
        expected = {"title": "cast", "severity": 3, "notes": f"漢{_MIXED}!", "scores": {}}
        await _reads(peer, expected, "record", "findings", "f/1")

        await peer.ask("setRecord", "findings", "f2", {"title": "by Node", "notes": {"text": "N"}})
        await board.wait_for(lambda state: "f2" in state.findings, 5)
        board.state.findings["f2"].notes.append("P")
        board.state.findings["f2"].scores["p"] = 1
        await _reads(peer, {"title": "by Node", "notes": "NP", "scores": {"p": 1}}, "record", "findings", "f2")
        del board.state.findings["f/1"]
        await _reads(peer, None, "record", "findings", "f/1")
        board.state.findings["f/1"].title = "again"
        await _reads(peer, {"title": "again", "notes": "", "scores": {}}, "record", "findings", "f/1")


class Section(BoardModel):
    title: str = ""
    body: Text


class Outline(BoardModel):
    sections: list[Section]


async def test_lists_of_records_both_ways(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """A stock client reads the order as docs/layout.md tells, edits an item, moves one, and inserts where it wants."""
    async with (
        node_peer(shared_server, board_id, major) as peer,
        connect(shared_server.url, board_id, Outline, agent="writer") as board,
    ):

        async def read(expected: str) -> None:
            await _reads(peer, list(expected), "titles", "sections")
            await board.wait_for(lambda state: [each.title for each in state.sections] == list(expected), 5)

        board.state.sections.extend([Section(title=title) for title in "bad"])
        items_of(board.state.sections).move(1, 0)
        await read("abd")
        section = board.state.sections[1]
        assert await peer.ask("itemIds", "sections") == items_of(board.state.sections).ids
        await peer.ask("setInRecord", "sections", items_of(board.state.sections).id_of(1), "title", "B")
        await peer.ask("insertInRecord", "sections", items_of(board.state.sections).id_of(1), "body", 0, "by Node")
        board.state.sections.insert(0, Section(title="0"))
        await read("0aBd")
        await board.wait_for(lambda _state: section.body == "by Node", 5)

        for index, title, expected in (
            (2, "-", "0a-Bd"),
            (0, "<", "<0a-Bd"),
            (6, ">", "<0a-Bd>"),
            (3, "+", "<0a+-Bd>"),
        ):
            await peer.ask("insertItem", "sections", index, f"id {title}", {"title": title, "body": {"text": title}})
            await read(expected)
        await peer.ask("moveItem", "sections", "id <", 7)
        await read("0a+-Bd><")
        await peer.ask("deleteKey", "sections", "id >")
        await read("0a+-Bd<")
        board.state.sections[6].body.append("!")
        items_of(board.state.sections).move(6, 3)
        board.state.sections.insert(3, Section(title="P"))
        await read("0a+P<-Bd")
        expected = {"title": "<", "body": "<!"}
        found = await peer.ask("record", "sections", "id <")
        assert {name: value for name, value in found.items() if name != "$place"} == expected
        await peer.ask("setKey", "sections", "rubbish", "no item")
        await peer.ask("setRecord", "sections", "no place", {"title": "x"})
        await peer.ask("setInRecord", "sections", "id +", "$place", "nowhere")
        await read("0aP<-Bd")


class Bounded(BoardModel):
    count: Annotated[int, Field(le=10)] = 0
    plan: list[str] = []
    draft: Text


async def test_a_refused_write_is_taken_back_at_node_too(
    shared_server: ServerProcess, board_id: str, major: str
) -> None:
    """V10, H3: a stock client that writes against the schema stays connected and converges to what everybody has."""
    async with (
        node_peer(shared_server, board_id, major) as peer,
        connect(shared_server.url, board_id, Bounded, agent="reader") as board,
    ):
        await peer.ask("setKey", "state", "count", 7)
        await peer.ask("insertItems", "plan", 0, ["eins"])
        await peer.ask("setKey", "state", "count", 11)
        await peer.ask("insertItems", "plan", 1, [5, "zwei"])
        await peer.ask("insertText", "$board", 0, "x")
        await peer.ask("setKey", "state", "other", 1)
        await peer.ask("insertText", "draft", 0, _MIXED)
        await _reads(peer, {"count": 7}, "map", "state")
        await _reads(peer, ["eins", "zwei"], "array", "plan")
        seen = await board.wait_for(lambda state: str(state.draft) == _MIXED, 5)
        assert seen == Bounded(count=7, plan=["eins", "zwei"], draft=Text(_MIXED))
        await peer.ask("setKey", "state", "count", 8)
        await board.wait_for(lambda state: state.count == 8, 5)
        assert await peer.ask("connections") == 1


async def test_both_edit_one_text(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """Concurrent edits of a stock and a Python client in one text, emoji beside them, merge alike on both sides."""
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as board,
        node_peer(shared_server, board_id, major) as peer,
    ):
        board.state.draft.append("👍middle👍")
        await _reads(peer, "👍middle👍", "text", "draft")
        # A JavaScript index counts UTF-16 units, so that the emoji is 2 long there and 1 in Python.
        asking = asyncio.create_task(peer.ask("insertText", "draft", 2, "é漢"))
        board.state.draft.insert(7, "𝔘!")
        board.state.draft.delete(8, 9)
        await asking
        await board.wait_for(lambda state: "é漢" in str(state.draft), 5)
        assert str(board.state.draft) == "👍é漢middle𝔘👍"
        await _reads(peer, "👍é漢middle𝔘👍", "text", "draft")
        await peer.ask("deleteText", "draft", 0, 2)
        await board.wait_for(lambda state: str(state.draft) == "é漢middle𝔘👍", 5)


@pytest.mark.parametrize("client_id", [1, 2**31, 2**32, _CLIENT_ID_MAX])
async def test_client_ids(server: ServerProcess, board_id: str, client_id: int) -> None:
    """M8: a stock client with any client id up to 2^53-1 is merged, stored, and read by another one under that id."""
    async with (
        node_peer(server, board_id, "3", client_id) as peer,
        connect(server.url, board_id, Report, agent="a") as board,
    ):
        await peer.ask("insertText", "draft", 0, "from Node")
        await board.wait_for(lambda state: str(state.draft) == "from Node", 5)
        board.state.draft.append(", and on")
        await board.flush(5)
    await server.kill9()
    await server.start()
    async with node_peer(server, board_id, "3") as peer:
        assert client_id in await peer.ask("stateVector")
        assert await peer.ask("text", "draft") == "from Node, and on"


async def test_a_large_board_that_nobody_has_open(tmp_path: Path, major: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newcomer is sent it from the store, entries behind the snapshot included, before it says that it is in step."""
    monkeypatch.setattr("crdt_board_server.connection._BEFORE_LOAD_SECONDS_MAX", DEADLINE_SECONDS)
    values = {f"key-{number}": f"a value of some forty letters, {number:8}" for number in range(2_000)}
    for part in values, {"later": "1"}, {"latest": "2"}:
        async with (
            serving(await SqliteStore.open(tmp_path / "boards.db")) as server,
            stock_peer(server.url, "b") as peer,
        ):
            with peer.doc.transaction():
                peer.doc.get("values", type=pycrdt.Map).update(part)
            await eventually(lambda peer=peer: isinstance(peer.frames[-1], wire.SyncUpdate), "it is durable")
    async with (
        serving(await SqliteStore.open(tmp_path / "boards.db")) as server,
        node_peer(server, "b", major) as peer,
    ):
        assert await peer.ask("map", "values") == values | {"later": "1", "latest": "2"}
        first = [message[:2] for message in await peer.ask("received")][:3]
        assert first == [[0, 2], [0, 2], [0, 1]], "an update, an update, and the step 2"
        await peer.ask("setKey", "values", "later", "from Node")
        async with stock_peer(server.url, "b") as late:
            held = late.doc.get("values", type=pycrdt.Map)
            await eventually(lambda: held.get("later") == "from Node", "the edit of Node")
            held["latest"] = "from Python"
            await _reads(peer, values | {"later": "from Node", "latest": "from Python"}, "map", "values")


async def test_stock_clients_get_stock_frames_only(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """A stock client is sent binary sync and awareness messages, whatever Python clients do beside it."""
    async with (
        node_peer(shared_server, board_id, major) as peer,
        connect(shared_server.url, board_id, Report, agent="writer") as board,
    ):
        board.announce(step="draft")
        board.state.draft.append("x")
        await board.commit("draft", patch={"title": "T"})
        await _reads(peer, {"title": "T"}, "map", "state")
        assert {message[0] if message != "text" else message for message in await peer.ask("received")} == {0, 1}


async def test_presence_both_ways(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """Stock clients and Python clients see each other's presence, and what it says."""
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as board,
        node_peer(shared_server, board_id, major) as peer,
    ):
        board.announce(role="author", step="§1 漢", focus="draft")
        await peer.ask("announce", {"user": {"name": "Zoë 👋"}, "cursor": 3})
        await eventually(lambda: len(board.agents) == 2, "both are present at the Python client")
        assert board.agents == [
            AgentPresence(agent="Zoë 👋"),
            AgentPresence(agent="writer", role="author", step="§1 漢", focus="draft"),
        ]

        async def others() -> list[dict[str, Any]]:
            return [state for state in await peer.ask("present") if state.get("agent") == "writer" and "step" in state]

        (writer,) = await eventually(others, "the Python client is present at the Node client")
        assert (writer["user"], writer["step"]) == ({"name": "writer"}, "§1 漢")


async def test_presence_of_a_killed_client(shared_server: ServerProcess, board_id: str, major: str) -> None:
    """W2: the presence of a client that was killed is gone within a second, at Python and at stock clients."""
    async with (
        connect(shared_server.url, board_id, Report, agent="writer") as board,
        node_peer(shared_server, board_id, major) as witness,
        node_peer(shared_server, board_id, major) as victim,
    ):
        await victim.ask("announce", {"user": {"name": "victim"}})

        async def witnessed() -> bool:
            return any(state.get("user") == {"name": "victim"} for state in await witness.ask("present"))

        async def forgotten() -> bool:
            return not await witnessed()

        await eventually(witnessed, "the victim is present")
        await eventually(lambda: "victim" in [each.agent for each in board.agents], "the victim is present")
        await victim.kill()
        await eventually(forgotten, "the victim is gone", seconds=1)
        await eventually(lambda: [each.agent for each in board.agents] == ["writer"], "the victim is gone", seconds=1)


async def test_idle_client_hears_the_server(board_id: str, major: str) -> None:
    """W1: an idle stock client is sent an empty awareness message every ``keepalive_seconds``, and nothing else."""
    limits = replace(DEFAULT_LIMITS, keepalive_seconds=0.2)
    async with serving(MemoryStore(), limits=limits) as served, node_peer(served, board_id, major) as peer:
        at_first = len(await peer.ask("received"))

        async def later() -> list[Any]:
            messages: list[Any] = (await peer.ask("received"))[at_first:]
            return messages if len(messages) >= 5 else []

        assert (await eventually(later, "five signs of life", seconds=5))[:5] == [[1, 1, 0]] * 5
        assert await peer.ask("connections") == 1


@pytest.mark.slow
async def test_idle_client_stays_connected_for_three_minutes(
    shared_server: ServerProcess, board_id: str, major: str
) -> None:
    """W1: a single idle stock client does not reconnect in three minutes, and is in step afterwards."""
    async with node_peer(shared_server, board_id, major) as peer:
        await asyncio.sleep(180)
        assert await peer.ask("connections") == 1
        async with connect(shared_server.url, board_id, Report, agent="writer") as board:
            board.state.draft.append("still there")
            await _reads(peer, "still there", "text", "draft")
