"""What several guests send at once shares a transaction and an entry, and nobody pays for what another wrote."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

import pycrdt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, JsonValue

from crdt_board import BoardModel, verdicts
from crdt_board.applying import Lessons
from crdt_board.engine import Engine
from crdt_board.host import BoardHost
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.planning import grouped
from crdt_board.store.memory import MemoryStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.verdicts import Suspects
from support.waiting import DEADLINE_SECONDS

BOARD = "job-1"


class Job(BoardModel):
    number: Annotated[int, Field(le=10)] = 0
    names: dict[str, str] = {}
    plan: list[str] = []


class Guest:
    """A stock client, which writes into a document of its own."""

    def __init__(self, engine: Engine) -> None:
        self.doc: pycrdt.Doc[Any] = pycrdt.Doc()
        self._engine = engine

    def map(self, name: str) -> Any:
        return self.doc.get(name, type=pycrdt.Map)

    def edit(self, change: Callable[[], Any]) -> bytes:
        before = self.doc.get_state()
        with self.doc.transaction():
            change()
        return self.doc.get_update(before)

    def named(self, name: str) -> bytes:
        return self.edit(lambda: self.map("names").update({name: name}))

    def badly_named(self, name: str) -> bytes:
        return self.edit(lambda: self.map("names").update({name: 5}))

    def numbered(self, number: int) -> bytes:
        return self.edit(lambda: self.map("state").update({"number": number}))

    def submit(self, *updates: bytes, is_difference: bool = False) -> asyncio.Future[Receipt]:
        told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._engine.submit(
            Submission(
                updates=updates, author="guest", source=self, is_shared=True, written=told.set_result,
                is_difference=is_difference,
            )
        )  # fmt: skip
        return told


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Engine]:
    async with BoardHost(MemoryStore()) as host, host.board(BOARD) as engine:
        await engine.join(Job.board_layout())
        yield engine


async def names_of(engine: Engine) -> set[str]:
    state = await engine.read(lambda document: document.wire_state())
    names, number = state["names"], state.get("number", 0)
    assert isinstance(names, dict)
    assert isinstance(number, int)
    assert number <= 10
    return set(names)


async def test_what_guests_send_at_once_is_one_entry() -> None:
    """However many there are, each is told, and the journal grows by one entry."""
    async with opened() as engine:
        guests = [Guest(engine) for _ in range(20)]
        receipts = await asyncio.gather(*(guest.submit(guest.named(str(n))) for n, guest in enumerate(guests)))
        assert {receipt.seq for receipt in receipts} == {1}
        assert all(receipt == Receipt(seq=1) for receipt in receipts)
        assert await names_of(engine) == set(map(str, range(20)))


async def test_agents_keep_entries_of_their_own() -> None:
    """Who may say later which of the changes were its own does not share."""
    async with opened() as engine:
        guests = [Guest(engine) for _ in range(3)]
        submissions = [
            Submission(updates=[guest.named(str(n))], author="agent", source=guest, written=lambda _receipt: None)
            for n, guest in enumerate(guests)
        ]
        for submission in submissions:
            engine.submit(submission)
        await names_of(engine)
        assert engine.seq == 3


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("count", [1, 3])
async def test_a_refused_value_is_told_to_its_writer(first: bool, count: int) -> None:
    """H3: the guilty guest loses the bad value only, the others nothing, wherever in the batch it stands."""
    async with opened() as engine:
        bad, *good = (Guest(engine) for _ in range(6))
        good_updates = [(guest, guest.named(f"good {n}")) for n, guest in enumerate(good)]
        bad_updates = [bad.named(f"bad {n}") for n in range(count - 1)] + [bad.numbered(11)]
        told = bad.submit(*bad_updates) if first else None
        receipts = [guest.submit(update) for guest, update in good_updates]
        refused = await (told or bad.submit(*bad_updates))
        assert [(each.index, [value.path for value in each.values]) for each in refused.rejected] == [
            (count - 1, ["number"])
        ]
        for receipt in await asyncio.gather(*receipts):
            assert (receipt.rejected, receipt.error) == ((), None)
        assert await names_of(engine) == {f"good {n}" for n in range(5)} | {f"bad {n}" for n in range(count - 1)}


async def test_a_guest_that_writes_bad_values_again_and_again_disturbs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is rebuilt to find the guilty one, who writes apart from then on; the others share as before."""
    async with opened() as engine:
        reloads = 0
        reload = engine._tail.reload

        async def counted() -> None:
            nonlocal reloads
            reloads += 1
            await reload()

        monkeypatch.setattr(engine._tail, "reload", counted)
        bad, *good = (Guest(engine) for _ in range(4))
        for turn in range(5):
            before = engine.seq
            told = [guest.submit(guest.named(f"{turn} {n}")) for n, guest in enumerate(good)]
            assert (await bad.submit(bad.numbered(11 + turn))).rejected
            await asyncio.gather(*told)
        assert reloads == 1
        assert engine.seq == before + 2


async def test_many_that_write_bad_values_at_once_disturb_as_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """H3: to tell the guests apart, and to find the first bad one; not once more for each of the others."""
    monkeypatch.setattr(verdicts, "_SUSPECTS_MAX", 3)
    async with opened() as engine:
        reloads = 0
        reload = engine._tail.reload

        async def counted() -> None:
            nonlocal reloads
            reloads += 1
            await reload()

        monkeypatch.setattr(engine._tail, "reload", counted)
        guests = [Guest(engine) for _ in range(6)]
        told = [guest.submit(guest.named(f"{n}"), guest.badly_named(f"bad {n}")) for n, guest in enumerate(guests)]
        async with asyncio.timeout(DEADLINE_SECONDS):
            receipts = await asyncio.gather(*told)
        assert [len(receipt.rejected) for receipt in receipts] == [1] * len(guests)
        assert await names_of(engine) == {f"{n}" for n in range(len(guests))}
        assert reloads == 2


async def test_what_cannot_be_applied_is_refused_to_its_writer() -> None:
    """H2: a value that is nested too deeply ends its own connection and no other."""
    async with opened() as engine:
        bad, *good = (Guest(engine) for _ in range(4))
        holder = bad.edit(lambda: bad.map("free").update({"x": pycrdt.Map()}))
        nested = [holder]
        inner = bad.map("free")["x"]
        for _ in range(DEFAULT_LIMITS.nesting_depth_max):
            nested.append(bad.edit(lambda inner=inner: inner.update({"x": pycrdt.Map()})))  # type: ignore[misc]
            inner = inner["x"]
        told = [guest.submit(guest.named(str(n))) for n, guest in enumerate(good)]
        refused = await bad.submit(*nested)
        assert refused.error is not None
        for receipt in await asyncio.gather(*told):
            assert receipt.error is None
        assert await names_of(engine) == {"0", "1", "2"}


async def test_what_builds_on_something_missing_is_asked_for_from_its_writer() -> None:
    """A gap in what one guest sent holds up nobody else."""
    async with opened() as engine:
        behind, other = Guest(engine), Guest(engine)
        missing, late = behind.named("missing"), behind.named("late")
        told = behind.submit(late)
        assert await other.submit(other.named("other")) == Receipt(seq=1)
        assert (await told).first_unready == 0
        assert (await behind.submit(missing, late)).first_unready is None
        assert await names_of(engine) == {"missing", "late", "other"}


async def test_a_difference_keeps_its_place_in_what_a_guest_sends() -> None:
    """An update that builds on the answer to a state vector is taken in behind it, whoever else writes meanwhile."""
    async with opened() as engine:
        guest, other = Guest(engine), Guest(engine)
        first, second, third = guest.named("first"), guest.named("second"), guest.named("third")
        told = [
            other.submit(other.named("other")),
            guest.submit(first),
            guest.submit(second, is_difference=True),
            guest.submit(third),
            other.submit(other.named("another")),
        ]
        for receipt in await asyncio.gather(*told):
            assert (receipt.first_unready, receipt.error) == (None, None)
        assert await names_of(engine) == {"first", "second", "third", "other", "another"}


def submission(source: int, author: str, is_shared: bool, is_difference: bool) -> Submission:
    return Submission(
        updates=(), author=author, source=source, is_shared=is_shared, is_difference=is_difference,
        written=lambda _receipt: None,
    )  # fmt: skip


SUBMISSIONS = st.lists(
    st.builds(submission, st.integers(0, 3), st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=30
)


@given(SUBMISSIONS, st.sets(st.integers(0, 3)), st.booleans())
def test_groups_keep_order_and_authors(submissions: list[Submission], watched: set[int], apart: bool) -> None:
    """Nothing is lost, each source stays in its order, a group has one author, and only who may share does."""
    suspects = Suspects(DEFAULT_LIMITS)
    for source in watched:
        suspects.watch(source)
    groups = grouped(submissions, Lessons(suspects=suspects, apart=apart))
    together: Sequence[Submission] = [each for group in groups for each in group]
    assert len(together) == len(submissions)
    for source in range(4):
        assert [each for each in together if each.source == source] == [
            each for each in submissions if each.source == source
        ]
    for group in groups:
        assert len({each.author for each in group}) == 1
        if len({each.source for each in group}) > 1:
            assert not apart
            assert all(each.is_shared and not each.is_difference and each.source not in watched for each in group)


class Loose(BoardModel):
    anything: JsonValue = None


async def test_bytes_are_put_back_where_something_else_is_refused() -> None:
    """H3: a guest that replaces bytes, which a stock client may write, by what is refused does not stop the board."""
    async with BoardHost(MemoryStore()) as host, host.board(BOARD) as engine:
        await engine.join(Loose.board_layout())
        guest = Guest(engine)
        raw = await guest.submit(guest.edit(lambda: guest.map("state").update({"anything": b"raw"})))
        assert raw == Receipt(seq=1)
        bad = await guest.submit(guest.edit(lambda: guest.map("state").update({"anything": pycrdt.Map({"a": 1})})))
        assert (bad.error, len(bad.rejected)) == (None, 1)
        kept: bytes = await engine.read(lambda document: bytes(document.root("state")["anything"]))
        assert kept == b"raw"
