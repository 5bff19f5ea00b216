"""The records of leases, tasks and the like: only the writer of a board changes them; what they cost in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pycrdt
import pytest

from crdt_board import BoardHost, open_board
from crdt_board.coordination.leases import AcquireLease, RenewLease
from crdt_board.coordination.task_operations import PutTask
from crdt_board.store.memory import MemoryStore
from crdt_board.team.claims import Finder
from support.model import Report
from support.places import BOARD, place_of
from support.stock import stock_peer
from support.waiting import DEADLINE_SECONDS, eventually

Team = Any
Forgery = Callable[[Team], object]
EXPIRES_LATE_MS = 2**50


def forged_lease() -> dict[str, Any]:
    holder = {"token": "a" * 16, "agent": "eve", "fence": 99, "ttl_ms": 1000, "expires_ms": EXPIRES_LATE_MS}
    return {"name": "payments", "holders": [holder]}


def forged_decision() -> dict[str, Any]:
    return {
        "name": "ship",
        "question": "Ship it?",
        "options": ["approve", "reject"],
        "agent": "ann",
        "asked_ms": 0,
        "decision": {"state": "decided", "at_ms": 1, "option": "approve", "agent": "eve"},
    }


FORGERIES: dict[str, Forgery] = {
    "a lease": lambda team: team.update({"lease:payments": forged_lease()}),
    "a lease whose line cannot be read": lambda team: team.update(
        {"lease:payments": {"name": "payments", "line": "x"}}
    ),
    "a greater fence": lambda team: team.update({"fence:lease": {"name": "lease", "last": 2**53 - 1}}),
    "a task that is done": lambda team: team.update(
        {"task:one": {"name": "one", "number": 1, "put_by": "ann", "put_ms": 0, "status": "done", "result": "mine"}}
    ),
    "a decision": lambda team: team.update({"approval:ship": forged_decision()}),
    "an effect that took place": lambda team: team.update(
        {"effect:pay/7": {"name": "pay/7", "state": "done", "agent": "eve", "token": "t", "since_ms": 1, "result": 0}}
    ),
    "no records": lambda team: [team.pop(key) for key in list(team.keys())],
    "a text in place of a record": lambda team: team.update({"task:one": pycrdt.Text("nothing")}),
    "a map in place of a record": lambda team: team.update({"task:one": pycrdt.Map({"name": "one"})}),
    "what is no record": lambda team: team.update({"no record": 1}),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
async def test_records_that_a_stock_client_forges_are_taken_back(forgery: Forgery, tmp_path: Path) -> None:
    """H5: a client cannot act under another's name."""
    async with place_of("served", tmp_path / "boards.db") as place, place.open(Report, agent="ann") as ann:
        await ann.tasks.put(key="one")
        await ann.ask("Ship it?", key="ship")
        await ann._desk.ask(AcquireLease(name="files", token="t" * 16, ttl_ms=60_000))
        before = ann._desk.ledger.everything()
        async with stock_peer(place.url, BOARD) as eve:
            await eve.synced()
            team = eve.doc.get("$team", type=pycrdt.Map)
            stored = team.to_py()
            with eve.doc.transaction():
                forgery(team)
                eve.doc.get("draft", type=pycrdt.Text).insert(0, "seen")
            await ann.wait_for(lambda state: str(state.draft) == "seen")
            await eventually(lambda: team.to_py() == stored, "the forgery is gone at its author too")
        assert ann._desk.ledger.everything() == before


async def test_renewals_leave_nothing_behind_in_memory() -> None:
    async with BoardHost(MemoryStore()) as host, open_board(host, BOARD, Report, agent="ann") as ann:
        claim = {"name": "files", "token": "t" * 16}
        await ann._desk.ask(AcquireLease(**claim, ttl_ms=60_000))
        for number in range(300):
            await ann._desk.ask(RenewLease(**claim, ttl_ms=60_000 + number))
            assert [lease.name for lease in ann.leases] == ["files"]
        assert len(ann._desk.ledger._deadlines) < 100


async def test_who_waits_for_tasks_of_a_kind_looks_at_those_that_have_become_open_since() -> None:
    """However many others are put at once, and with nothing but others before."""
    async with BoardHost(MemoryStore()) as host, open_board(host, BOARD, Report, agent="ann") as ann:
        for number in range(120):
            await ann.tasks.put({"lang": "py"}, key=f"py {number}")
        finder = Finder(ann._desk, (), {"lang": "js"}, ttl=10)
        assert not finder._sees_one()
        await ann.tasks.put({"lang": "py"}, key="another")
        assert not finder._sees_one()
        js = [PutTask(name="js", payload={"lang": "js"}), PutTask(name="js later", payload={"lang": "js"})]
        await ann._desk.ask(*js, *(PutTask(name=f"more {number}", payload={"lang": "py"}) for number in range(98)))
        assert finder._sees_one()
        claimed = await finder.next(DEADLINE_SECONDS)
        assert claimed is not None
        assert claimed.key == "js"
        await claimed.release()
        assert finder._sees_one()
