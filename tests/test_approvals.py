"""Approvals: asked, decided once, and closed by whatever changes what they are about; at both places of a board."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pycrdt
import pytest
import pytest_asyncio

from crdt_board import (
    BadRequest,
    Board,
    BoardError,
    BoardHost,
    BoardModel,
    IdempotencyMismatch,
    InvalidValue,
    LimitExceeded,
    NotFound,
    Text,
    migrates,
    open_board,
)
from crdt_board.clock import ManualClock
from crdt_board.coordination import approvals as rules
from crdt_board.coordination.approvals import ApprovalRecord, DecideApproval, Decision
from crdt_board.document import Document
from crdt_board.errors import ApprovalClosed, ApprovalMismatch
from crdt_board.journal import unpack_updates
from crdt_board.store.memory import MemoryStore
from support.places import BOARD, Place, PlaceKind, has_version, place_of
from support.stock import stock_peer
from support.waiting import DEADLINE_SECONDS, eventually


class Finding(BoardModel):
    title: str = ""
    notes: Text


class Job(BoardModel):
    status: str = ""
    plan: list[str] = []
    findings: dict[str, Finding] = {}
    sections: list[Finding] = []
    draft: Text


@pytest_asyncio.fixture(params=["embedded", "served"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    kind: PlaceKind = request.param
    async with place_of(kind, tmp_path / "boards.db") as place:
        yield place


@pytest_asyncio.fixture
async def ann(place: Place) -> AsyncIterator[Board[Job]]:
    """An agent on a board with a draft and two findings, which is at version 1."""
    async with place.open(Job, "ann") as board:
        board.state.draft.append("The plan. Ready.")
        board.state.findings["f1"].title = "cast"
        board.state.findings["f2"].title = "join"
        await board.commit("begin")
        yield board


async def ended(approval: Any) -> Decision:
    decision = await approval.decided(DEADLINE_SECONDS)
    assert isinstance(decision, Decision)
    return decision


async def test_what_a_person_decides_reaches_the_agent_that_asked(place: Place, ann: Board[Job]) -> None:
    """The question with all that belongs to it is on every replica; so is the answer, with who gave it."""
    async with place.open(Job, "eve") as eve:
        asked = await ann.ask(
            "Ship?", options=["yes", "no"], about=["draft"], payload={"cost": 3}, expires=timedelta(1)
        )
        assert (asked.state, asked.record.version, asked.record.agent) == ("pending", 1, "ann")
        await eve.wait_for(lambda _state: eve.approvals, DEADLINE_SECONDS)
        (shown,) = eve.approvals
        assert (shown.question, shown.options, shown.payload, shown.hash) == (
            "Ship?",
            ("yes", "no"),
            {"cost": 3},
            asked.hash,
        )
        newest = (await ann.checkpoints())[0]
        assert shown.checkpoint_hash == newest.hash
        waiting = asyncio.create_task(ended(asked))
        made = await eve.decide(asked.id, "no", comment="Not yet.", seen=shown.hash)
        decision = await waiting
        assert decision == made
        assert (decision.state, decision.option, decision.agent, decision.comment) == (
            "decided",
            "no",
            "eve",
            "Not yet.",
        )
        assert asked.record.asked_ms <= decision.at.timestamp() * 1000 <= asked.record.asked_ms + 60_000
        assert asked.record.expires_ms == asked.record.asked_ms + 24 * 3600 * 1000


async def test_three_open_approvals_are_answered_in_any_order(place: Place, ann: Board[Job]) -> None:
    """V7: each is decided by its id, and none is closed by the decision on another."""
    first, second, third = [await ann.ask(f"Ship {part}?", about=["draft"]) for part in ("a", "b", "c")]
    async with place.open(Job, "eve") as eve:
        await eve.decide(third.id, "reject")
        await eve.decide(first.id, "approve")
        assert [(await ended(each)).option for each in (first, third)] == ["approve", "reject"]
        assert second.state == "pending"
        await eve.decide(second.id, "approve")
        assert (await ended(second)).option == "approve"
        assert [each.name for each in eve.approvals] == [first.id, second.id, third.id]


async def test_of_two_decisions_at_once_the_second_hears_of_the_first(place: Place, ann: Board[Job]) -> None:
    """V7: one transition, whichever comes first; the other is told what was decided, and by whom."""
    async with place.open_all(Job, "eve", "dan") as (eve, dan):
        for _ in range(5):
            asked = await ann.ask("Ship?", about=["draft"])
            options = {eve: "approve", dan: "reject"}
            answers = await asyncio.gather(
                *(board.decide(asked.id, option) for board, option in options.items()), return_exceptions=True
            )
            (made,) = [each for each in answers if isinstance(each, Decision)]
            (refused,) = [each for each in answers if isinstance(each, ApprovalClosed)]
            assert (refused.approval, refused.state, refused.option, refused.agent, refused.at_ms) == (
                asked.id, "decided", made.option, made.agent, made.at_ms,
            )  # fmt: skip
            assert await ended(asked) == made


async def test_the_same_decision_sent_again_is_the_same(place: Place, ann: Board[Job]) -> None:
    """A request that reaches the writer twice decides once, and is answered alike; it cannot choose anew."""
    asked = await ann.ask("Ship?")
    request = DecideApproval(name=asked.id, option="approve", token="t" * 16)
    first, again = await ann._desk.ask(request, request)
    assert first == again
    assert await ann._desk.ask_one(request) == first
    with pytest.raises(IdempotencyMismatch):
        await ann._desk.ask_one(request.model_copy(update={"option": "reject"}))
    with pytest.raises(ApprovalClosed):
        await ann.decide(asked.id, "approve")


async def test_a_question_is_asked_once_under_a_key(place: Place, ann: Board[Job]) -> None:
    """V8: the same question under the same key is the same approval, in whatever state; another question is refused."""
    asked = await ann.ask("Ship?", about=["draft"], key="ship-1", payload=[1])
    assert asked.id == "ship-1"
    async with place.open(Job, "bob") as bob:
        again = await bob.ask("Ship?", about=["draft"], key="ship-1", payload=[1], expires=1)
        assert again.record == asked.record
        for other in ({"payload": [2]}, {"about": []}, {"options": ["yes"]}):
            with pytest.raises(IdempotencyMismatch):
                await bob.ask("Ship?", key="ship-1", **{"about": ["draft"], "payload": [1], **other})
    await ann.decide("ship-1", "approve")
    assert (await ended(await ann.ask("Ship?", about=["draft"], key="ship-1", payload=[1]))).option == "approve"
    assert len(ann.approvals) == 1


async def edit(board: Board[Job]) -> None:
    board.state.draft.append(" Now.")


async def edit_finding(board: Board[Job]) -> None:
    board.state.findings["f1"].notes.append("seen")


async def delete_finding(board: Board[Job]) -> None:
    del board.state.findings["f1"]


async def patch(board: Board[Job]) -> None:
    await board.commit("patch", patch={"draft": "Other."})


async def restore(board: Board[Job]) -> None:
    await board.restore(1)


async def merge(board: Board[Job]) -> None:
    await board.merge_from("job-fork")


CHANGES: list[tuple[Callable[[Board[Job]], Awaitable[None]], str]] = [
    (edit, "draft"),
    (edit_finding, "findings/f1/notes"),
    (delete_finding, "findings/f1"),
    (patch, "draft"),
    (restore, "plan"),
    (merge, "draft"),
]


@pytest.mark.parametrize("who", ["ann", "bob"])
@pytest.mark.parametrize(("change", "path"), CHANGES, ids=lambda each: getattr(each, "__name__", each))
async def test_what_changes_its_subject_closes_an_approval(
    place: Place, ann: Board[Job], who: str, change: Callable[[Board[Job]], Awaitable[None]], path: str
) -> None:
    """By edits, commits, restores and merges, one's own and others': the asker wakes up, and no decision is taken."""
    await ann.fork("job-fork")
    async with place.open(Job, "fay", "job-fork") as fork:
        fork.state.draft.append(" Or not.")
        await fork.commit("other")
    ann.state.plan.append("ship")
    await ann.commit("plan")
    asked = await ann.ask("Ship?", about=["draft", "plan", "findings/f1"])
    other = await ann.ask("And this?", about=["findings/f2", "status"])
    async with place.open(Job, "bob") as bob:
        board = {"ann": ann, "bob": bob}[who]
        await has_version(board, 2)
        await change(board)
        decision = await ended(asked)
        assert (decision.state, decision.option, decision.agent, decision.path) == ("superseded", None, who, path)
        with pytest.raises(ApprovalClosed, match="superseded") as refused:
            await bob.decide(asked.id, "approve")
        assert (refused.value.state, refused.value.agent, refused.value.path) == ("superseded", who, path)
        assert other.state == "pending"
        await bob.decide(other.id, "approve")


async def test_what_changes_nothing_of_its_subject_leaves_an_approval_open(ann: Board[Job]) -> None:
    """Other fields, neighbours in the same field, and an edit that is taken back in the same update."""
    asked = await ann.ask("Ship?", about=["draft", "findings/f1"])
    nothing = await ann.ask("Lunch?")
    with ann.transaction():
        ann.state.draft.append("x")
        ann.state.draft.replace("x", "")
    ann.state.plan.append("ship")
    ann.state.findings["f2"].title = "join!"
    ann.state.findings["f10"].title = "new"
    await ann.commit("level", patch={"status": "DONE"})
    assert (asked.state, nothing.state) == ("pending", "pending")
    await ann.decide(asked.id, "approve")
    ann.state.draft.append(" Later.")
    await ann.flush(DEADLINE_SECONDS)
    assert (asked.state, (await ended(asked)).option) == ("decided", "approve")


async def test_an_approval_can_be_about_one_item_of_a_list(ann: Board[Job]) -> None:
    """By its id: wherever the item is moved, only what it holds counts."""
    ann.state.sections = [Finding(title="one"), Finding(title="two")]
    first, second = [f"sections/{ann.state.sections.id_of(index)}" for index in (0, 1)]  # type: ignore[attr-defined]
    one, two = await ann.ask("One?", about=[first]), await ann.ask("Two?", about=[second])
    ann.state.sections.move(0, 1)  # type: ignore[attr-defined]
    ann.state.sections[0].title = "two!"
    await ann.flush(DEADLINE_SECONDS)
    assert (await ended(two)).path == f"{second}/title"
    assert one.state == "pending"


async def test_a_stock_client_closes_an_approval_and_cannot_decide_it(tmp_path: Path) -> None:
    """What a Yjs client writes into the subject counts; what it writes into the records is taken back."""
    async with place_of("served", tmp_path / "boards.db") as place, place.open(Job, "ann") as ann:
        ann.state.draft.append("The plan.")
        asked = await ann.ask("Ship?", about=["draft"], key="ship")
        async with stock_peer(place.url, BOARD) as peer:
            team = peer.doc.get("$team", type=pycrdt.Map)
            forged = {**team["approval:ship"], "decision": {"state": "decided", "at_ms": 1, "option": "approve"}}
            team["approval:ship"] = forged
            await eventually(lambda: "decision" not in team["approval:ship"], "the forged decision is taken back")
            assert asked.state == "pending"
            peer.doc.get("draft", type=pycrdt.Text).insert(0, "Not ")
            assert (await ended(asked)).state == "superseded"


async def test_a_decision_and_a_change_are_taken_in_their_order(ann: Board[Job]) -> None:
    """Requests that the writer takes in one batch: what comes first counts, for edits and for commits."""
    for change in (edit, patch):
        late, early = await ann.ask("Late?", about=["draft"]), await ann.ask("Early?", about=["draft"])
        eve = ann.as_agent("eve")
        before = asyncio.create_task(eve.decide(early.id, "approve"))
        await asyncio.sleep(0)
        changing = asyncio.create_task(change(ann))
        await asyncio.sleep(0)
        after = asyncio.create_task(eve.decide(late.id, "approve"))
        answers = await asyncio.gather(before, changing, after, return_exceptions=True)
        assert isinstance(answers[0], Decision)
        assert isinstance(answers[2], ApprovalClosed)
        assert ((await ended(late)).state, (await ended(early)).state) == ("superseded", "decided")
        await restore_draft(ann)


async def restore_draft(board: Board[Job]) -> None:
    await board.commit("again", patch={"draft": "The plan. Ready."})


async def test_the_entry_of_a_commit_closes_what_its_patch_changed(place: Place, ann: Board[Job]) -> None:
    """No reader of the journal finds the new subject and the open approval together behind a commit."""
    asked = await ann.ask("Ship?", about=["draft"])
    made = await ann.commit("patch", patch={"draft": "Other."})
    document = Document(Job.board_layout())
    for entry in (await place.entries())[: made.seq]:
        document.apply_or_raise(unpack_updates(entry.payload))
    record = document.ledger.get(ApprovalRecord, asked.id)
    assert record is not None
    assert (record.state, document.read_text("draft")) == ("superseded", "Other.")


async def test_a_migration_closes_an_approval_whose_subject_is_not_the_same_any_more(tmp_path: Path) -> None:
    """Its entry does it, when the value is another one afterwards."""

    class Before(BoardModel):
        budget: str = ""
        draft: Text

    class After(BoardModel):
        budget: int = 0
        draft: Text

        @migrates(from_version=1)
        @staticmethod
        def numbers(old: dict[str, Any]) -> dict[str, Any]:
            return {**old, "budget": int(old["budget"])}

    async with open_board(tmp_path / "boards.db", BOARD, Before, agent="ann") as board:
        board.state.budget = "12"
        board.state.draft.append("x")
        await board.ask("Spend it?", about=["budget"], key="spend")
        await board.ask("Ship?", about=["draft"], key="ship")
    async with open_board(tmp_path / "boards.db", BOARD, After, agent="bob") as board:
        states = {each.name: each.state for each in board.approvals}
        assert states == {"spend": "superseded", "ship": "pending"}


async def test_an_approval_expires_by_itself(ann: Board[Job]) -> None:
    """Its asker wakes up, and who decides later is told so."""
    asked = await ann.ask("Ship?", about=["draft"], expires=0.05)
    decision = await ended(asked)
    assert (decision.state, decision.option, decision.agent) == ("expired", None, None)
    assert decision.at_ms == asked.record.expires_ms
    with pytest.raises(ApprovalClosed) as refused:
        await ann.decide(asked.id, "approve")
    assert refused.value.state == "expired"


async def test_an_approval_expires_while_nobody_has_the_board_open() -> None:
    """On the store's clock: who opens the board later finds it expired, also if a change comes before all else."""
    clock = ManualClock()
    async with BoardHost(MemoryStore(clock=clock), clock=clock) as host:
        async with open_board(host, BOARD, Job, agent="ann") as board:
            asked = await board.ask("Ship?", about=["draft"], expires=3600)
        clock.advance(3_599_999)
        async with open_board(host, BOARD, Job, agent="ann") as board:
            assert board.approvals[0].state == "pending"
        clock.advance(1)
        async with open_board(host, BOARD, Job, agent="bob") as board:
            board.state.draft.append("Late.")
            with pytest.raises(ApprovalClosed) as refused:
                await board.decide(asked.id, "approve")
            assert refused.value.state == "expired"


async def test_a_question_is_taken_back(place: Place, ann: Board[Job]) -> None:
    """Withdrawn once however often it is asked for; a decision stands against it."""
    asked, other = await ann.ask("Ship?"), await ann.ask("Lunch?")
    async with place.open(Job, "eve") as eve:
        first = await eve.withdraw(asked.id)
        assert await ended(asked) == first == await asked.withdraw()
        assert (first.state, first.agent) == ("withdrawn", "eve")
        with pytest.raises(ApprovalClosed, match="withdrawn by eve"):
            await eve.decide(asked.id, "approve")
        await eve.decide(other.id, "approve")
        with pytest.raises(ApprovalClosed, match="approve, by eve"):
            await other.withdraw()


async def test_a_decision_is_on_what_was_seen(ann: Board[Job]) -> None:
    """Another hash than the approval's own is refused, and nothing is decided."""
    asked, other = await ann.ask("Ship?", about=["draft"]), await ann.ask("Ship?", about=["plan"])
    with pytest.raises(ApprovalMismatch) as refused:
        await ann.decide(asked.id, "approve", seen=other.hash)
    assert (refused.value.hash, asked.state) == (asked.hash, "pending")
    await ann.decide(asked.id, "approve", seen=asked.hash)


async def test_a_fork_has_the_open_questions_of_its_own(place: Place, ann: Board[Job]) -> None:
    """Decided there they are open here, also after the merge; a merge that changes the subject closes them."""
    same = await ann.ask("Same?", about=["findings/f1"])
    changed = await ann.ask("Changed?", about=["draft"])
    await ann.commit("asked")
    await ann.decide((await ann.ask("Before?")).id, "approve")
    await ann.fork("job-fork", at=2)
    async with place.open(Job, "fay", "job-fork") as fork:
        there = {each.name: each for each in fork.approvals}
        assert {name: each.state for name, each in there.items()} == {same.id: "pending", changed.id: "pending"}
        assert (there[same.id].hash, there[same.id].forked) == (same.hash, True)
        await fork.decide(same.id, "reject")
        await fork.ask("Only there?", key="only-there")
        fork.state.draft.append(" Or not.")
        await fork.commit("other")
        assert fork.approvals[1].state == "superseded"
        assert (same.state, changed.state) == ("pending", "pending")
    await ann.merge_from("job-fork")
    assert (await ended(changed)).state == "superseded"
    assert same.state == "pending"
    assert "only-there" not in {each.name for each in ann.approvals}
    await ann.decide(same.id, "approve")


@pytest.mark.parametrize(
    ("arguments", "error", "path"),
    [
        ({"question": ""}, InvalidValue, "question"),
        ({"question": "\x1b[2JShip?"}, InvalidValue, "question"),
        ({"options": []}, InvalidValue, "options"),
        ({"options": ["a", "a"]}, InvalidValue, "options"),
        ({"options": ["a\nb"]}, InvalidValue, "options"),
        ({"options": "yes"}, BadRequest, None),
        ({"about": "draft"}, BadRequest, None),
        ({"about": ["drafft"]}, InvalidValue, "drafft"),
        ({"about": ["findings/f9"]}, InvalidValue, "about"),
        ({"expires": 0}, InvalidValue, "expires"),
        ({"expires": timedelta(days=400)}, InvalidValue, "expires"),
        ({"expires": "soon"}, InvalidValue, "expires"),
        ({"payload": {"at": object()}}, InvalidValue, "payload/at"),
        ({"payload": "x" * 70_000}, LimitExceeded, None),
        ({"key": "a\nb"}, InvalidValue, "key"),
        ({"key": ""}, InvalidValue, "key"),
    ],
)
async def test_a_wrong_question_is_refused(
    ann: Board[Job], arguments: dict[str, Any], error: type[BoardError], path: str | None
) -> None:
    """Naming the argument; nothing is asked."""
    with pytest.raises(error) as refused:
        await ann.ask(**{"question": "Ship?", **arguments})
    if path is not None:
        assert refused.value.path == path
    assert ann.approvals == []


async def test_without_a_model_a_question_is_about_what_is_there(place: Place) -> None:
    """A key of a plain board that nobody has written is refused: a misspelt one would never be superseded."""
    async with place.open(None, "ann") as ann:
        ann.state["draft"] = "The plan."
        asked = await ann.ask("Ship?", about=["draft"])
        with pytest.raises(InvalidValue, match="no such field"):
            await ann.ask("Ship?", about=["drafft"])
        ann.state["draft"] = "Another."
        assert (await ended(asked)).path == "draft"


async def test_a_wrong_decision_is_refused(ann: Board[Job]) -> None:
    """An option that there is not, an approval that there is not, a comment that would steer a terminal."""
    asked = await ann.ask("Ship?")
    with pytest.raises(InvalidValue, match="approve, reject"):
        await ann.decide(asked.id, "yes")
    with pytest.raises(NotFound, match="no approval nope"):
        await ann.decide("nope", "approve")
    with pytest.raises(NotFound):
        await ann.withdraw("nope")
    with pytest.raises(InvalidValue) as refused:
        await ann.decide(asked.id, "approve", comment="\x1b[2J")
    assert refused.value.path == "comment"
    with pytest.raises(TimeoutError, match="still pending"):
        await asked.decided(0)


async def test_so_many_questions_may_be_pending(monkeypatch: pytest.MonkeyPatch, ann: Board[Job]) -> None:
    """One more is refused until another is closed; asking one of them again is not."""
    monkeypatch.setattr(rules, "PENDING_MAX", 2)
    for key in ("first", "second", "second"):
        await ann.ask(f"{key}?", key=key)
    with pytest.raises(LimitExceeded, match="2 approvals are pending"):
        await ann.ask("third?", key="third")
    await ann.withdraw("first")
    await ann.ask("third?", key="third")


async def test_closed_approvals_make_room(monkeypatch: pytest.MonkeyPatch, ann: Board[Job]) -> None:
    """The one that was closed first goes when there are too many and another is asked; those that are pending stay."""
    monkeypatch.setattr(rules, "CLOSED_MAX", 2)
    for key in ("pending", "first", "second"):
        await ann.ask(f"{key}?", key=key)
    for key in ("second", "first"):
        await ann.decide(key, "approve")
        await asyncio.sleep(0.005)  # of two in the same millisecond, either may go
    await ann.ask("Last?", key="last")
    assert {each.name: each.state for each in ann.approvals} == {
        "pending": "pending",
        "first": "decided",
        "last": "pending",
    }
