"""Approvals while servers are killed, and while several processes decide and edit at once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import httpx

from crdt_board import Board, BoardHost, open_board
from crdt_board.coordination.approvals import ApprovalRecord
from crdt_board.document import Document
from crdt_board.journal import Entry, unpack_updates
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.testing.faults import FaultyStore
from crdt_board_client import connect
from support.children import child
from support.model import Report
from support.relay import relay_to
from support.server import ServerProcess
from support.waiting import DEADLINE_SECONDS
from support.web import web_client

BOARD = "job-884"
ROUNDS = 40


async def decide_over_http(
    server: ServerProcess, approval: str, option: str, *, key: str | None = None
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    async with web_client(server.http) as client:
        address = f"/api/boards/{BOARD}/approvals/{approval}/decision"
        return await client.post(address, json={"option": option, "agent": "eve"}, headers=headers)


async def start_elsewhere(server: ServerProcess) -> None:
    """Start a server that was killed on another port."""
    before, server.port = server.port, 0
    await server.start()
    assert server.port != before


async def test_an_agent_goes_on_waiting_when_its_server_was_killed(server: ServerProcess) -> None:
    """V8: ask, kill -9, start on another port, decide over HTTP: the asker goes on, also when it is begun anew."""
    async with relay_to(server.url) as relay, connect(relay.url, BOARD, Report, agent="ann") as ann:
        ann.state.draft.append("The plan.")
        asked = await ann.ask("Ship?", about=["draft"], key="ship")
        waiting = asyncio.create_task(asked.decided(DEADLINE_SECONDS))
        await server.kill9()
        await start_elsewhere(server)
        relay.server = server.url
        answer = await decide_over_http(server, "ship", "approve")
        assert (answer.status_code, answer.json()["state"]) == (200, "decided")
        decision = await waiting
        assert (decision.state, decision.option, decision.agent) == ("decided", "approve", "eve")
    async with connect(server.url, BOARD, Report, agent="ann") as resumed:
        again = await resumed.ask("Ship?", about=["draft"], key="ship")
        assert await again.decided(0) == decision


async def test_how_an_approval_ended_is_told_apart_after_a_crash(server: ServerProcess) -> None:
    """V8: decided otherwise, expired, superseded and withdrawn, each found by agents that resume by key."""
    async with connect(server.url, BOARD, Report, agent="ann") as ann:
        for key in ("rejected", "withdrawn"):
            await ann.ask(f"{key}?", key=key)
        await ann.ask("superseded?", about=["draft"], key="superseded")
        expiring = await ann.ask("expired?", key="expired", expires=0.05)
        await ann.decide("rejected", "reject")
        await ann.withdraw("withdrawn")
        ann.state.draft.append("The plan.")
        await ann.flush(DEADLINE_SECONDS)
        await expiring.decided(DEADLINE_SECONDS)
    await server.kill9()
    await start_elsewhere(server)
    async with connect(server.url, BOARD, Report, agent="ann") as ann:
        found = {}
        for key in ("rejected", "expired", "superseded", "withdrawn"):
            asked = await ann.ask(f"{key}?", about=["draft"] if key == "superseded" else [], key=key)
            decision = await asked.decided(0)
            found[key] = (decision.state, decision.option)
    assert found == {
        "rejected": ("decided", "reject"),
        "expired": ("expired", None),
        "superseded": ("superseded", None),
        "withdrawn": ("withdrawn", None),
    }


async def test_what_was_under_way_when_the_server_was_killed_takes_place_once(server: ServerProcess) -> None:
    """D1, V7: a question and a decision that nobody answered are sent again by themselves, and made once."""
    async with relay_to(server.url) as relay, connect(relay.url, BOARD, Report, agent="ann") as ann:
        await ann.ask("First?", key="first")
        asking = asyncio.create_task(ann.ask("Ship?"))
        deciding = asyncio.create_task(ann.decide("first", "reject"))
        await asyncio.sleep(0)
        await server.kill9()
        await start_elsewhere(server)
        relay.server = server.url
        async with asyncio.timeout(DEADLINE_SECONDS):
            asked, decision = await asyncio.gather(asking, deciding)
        assert decision.option == "reject"
        assert [(each.name, each.state) for each in ann.approvals] == [("first", "decided"), (asked.id, "pending")]


async def test_two_people_decide_within_a_moment(server: ServerProcess) -> None:
    """V7: over HTTP one of two gets its decision, the other hears of it; the winner's repeat is answered as before."""
    async with connect(server.url, BOARD, Report, agent="ann") as ann:
        for number in range(10):
            asked = await ann.ask("Ship?", key=f"ship-{number}")
            keys = {"approve": f"a-{number}", "reject": f"b-{number}"}
            answers = await asyncio.gather(
                *(decide_over_http(server, asked.id, option, key=key) for option, key in keys.items())
            )
            assert sorted(answer.status_code for answer in answers) == [200, 409]
            won, lost = sorted(answers, key=lambda answer: answer.status_code)
            chosen = won.json()["decision"]["option"]
            problem = lost.json()
            assert (problem["code"], problem["data"]["state"], problem["data"]["option"]) == (
                "approval_closed", "decided", chosen,
            )  # fmt: skip
            again = await decide_over_http(server, asked.id, chosen, key=keys[chosen])
            assert (again.status_code, again.json()) == (200, won.json())
            assert (await asked.decided(DEADLINE_SECONDS)).option == chosen


async def test_no_decision_is_taken_on_a_subject_that_was_changed_before(tmp_path: Path) -> None:
    """Of two processes on one file one decides and one edits at the same time, many times over: in the order of the
    journal every decision comes before the first change of its subject, or is refused."""
    file = tmp_path / "boards.db"
    answers: Counter[str] = Counter()
    async with open_board(file, BOARD, Report, agent="ann") as ann, contextlib.AsyncExitStack() as stack:
        ann.state.draft.append("The plan.")
        processes = []
        for name in ("eve", "bob"):
            command = [sys.executable, "-m", "support.embedded_agent", str(file), BOARD, name]
            processes.append(await stack.enter_async_context(child(command)))
            assert await processes[-1].answer() == "ready"
        eve, bob = processes
        for number in range(ROUNDS):
            asked = await ann.ask("Ship?", about=["draft"], key=f"ship-{number}")
            for process in (eve, bob):
                await process.ask("see_approval", asked.id)
            first, second = (eve.ask("decide", asked.id, "approve"), bob.ask("append", f" {number}."))
            if number % 2:
                _, state = await asyncio.gather(second, first)
            else:
                state, _ = await asyncio.gather(first, second)
            answers[state] += 1
            assert (await asked.decided(DEADLINE_SECONDS)).state == state
    assert answers.keys() <= {"decided", "superseded"}
    store = await SqliteStore.open(file)
    try:
        entries = await store.entries(BOARD, after=0, limit=100_000)
    finally:
        await store.close()
    assert decided_in(entries) == answers["decided"]


def decided_in(entries: Sequence[Entry]) -> int:
    """How many approvals were decided; fails at the first one that was not about the draft of that moment."""
    document, drafts, decided = Document(Report.board_layout()), dict[str, str](), set[str]()
    changed: set[str] = set()
    for entry in entries:
        document.apply_or_raise(unpack_updates(entry.payload))
        draft = document.read_text("draft")
        for record in document.ledger.all(ApprovalRecord).values():
            if record.state == "decided" and record.name not in decided:
                assert record.name not in changed, f"entry {entry.seq} decides on what was changed before"
                assert draft == drafts[record.name]
                decided.add(record.name)
            elif drafts.setdefault(record.name, draft) != draft:
                changed.add(record.name)
    return len(decided)


async def test_a_process_that_has_not_heard_of_a_question_or_its_answer_closes_what_is_to_be_closed() -> None:
    """An edit that was planned before others' entries came in between is planned anew, with the approvals of now."""
    store = MemoryStore()
    async with (
        BoardHost(store) as here,
        BoardHost(DeafStore(store.peer())) as there,
        open_board(here, BOARD, Report, agent="ann") as ann,
        open_board(there, BOARD, Report, agent="bob") as bob,
    ):
        for change in (append, commit) * 5:  # which of two writes to a record wins, is chance
            unheard = await ann.ask("Ship?", about=["draft"])
            assert bob.approvals == ann.approvals[:-1]
            await change(bob)
            assert (await unheard.decided(DEADLINE_SECONDS)).state == "superseded"
            heard = await ann.ask("Ship?", about=["draft"])
            await bob.commit("hear")
            decision = await ann.decide(heard.id, "approve")
            assert bob.approvals[-1].state == "pending"
            await change(bob)
            assert bob.approvals[-1].decision == decision
            await ann.commit("hear")
            assert ann.approvals == bob.approvals
        assert decided_in(await store.entries(BOARD, after=0, limit=1_000)) == 10


class DeafStore(FaultyStore):
    """A store that never tells of other processes: what these wrote is met when something is appended."""

    async def wait_for_others(self) -> None:
        await asyncio.Event().wait()


async def append(board: Board[Report]) -> None:
    board.state.draft.append("More.")
    await board.flush(DEADLINE_SECONDS)


async def commit(board: Board[Report]) -> None:
    await board.commit("more", patch={"draft": f"{board.state.draft} And more."})
