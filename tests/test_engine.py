"""The writer of a board: durability, order, commits and refusals, over stores that fail on order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pycrdt
import pytest

from crdt_board import chores
from crdt_board.checkpoints import Checkpoint, CommitRequest, DropKey, PatchOp, SetValue, is_intact
from crdt_board.clock import ManualClock
from crdt_board.document import Document
from crdt_board.engine import Engine
from crdt_board.errors import (
    BoardCorrupt,
    BoardError,
    IdempotencyMismatch,
    LimitExceeded,
    MalformedUpdate,
    NotFound,
    StoreUnavailable,
    VersionConflict,
)
from crdt_board.guarding import DocumentBroken
from crdt_board.host import BoardHost
from crdt_board.journal import GENESIS_HASH, verify_chain
from crdt_board.layout import FieldLayout, Layout
from crdt_board.limits import DEFAULT_LIMITS
from crdt_board.publishing import PublishedEntry
from crdt_board.store.memory import MemoryStore
from crdt_board.store.sqlite import SqliteStore
from crdt_board.submissions import Receipt, Submission
from crdt_board.testing.faults import FaultyStore
from crdt_board.updates import decode_state_vector
from crdt_board.varint import write_varuint
from support.waiting import DEADLINE_SECONDS

LAYOUT = Layout(
    title="Notes",
    fields=(
        FieldLayout(name="status", kind="scalar"),
        FieldLayout(name="budget", kind="scalar"),
        FieldLayout(name="draft", kind="text"),
    ),
)
BOARD = "job-1"
DEADLINE = 20.0


@dataclass
class Peer:
    """A stock replica that submits what it edits, and keeps what it was told."""

    engine: Engine
    name: str = "peer"
    origin: str = ""
    document: Document = field(default_factory=lambda: Document(LAYOUT))
    receipts: list[Receipt] = field(default_factory=list)

    def edit(self, text: str) -> bytes:
        draft = self.document.text("draft")
        return self.document.capture(lambda: draft.insert(len(draft), text))

    def set(self, **values: Any) -> bytes:
        return self.document.capture(lambda: self.document.state_map.update(values))

    async def send(self, *updates: bytes, is_difference: bool = False) -> Receipt:
        told: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.engine.submit(self.submission(updates, told, is_difference=is_difference))
        async with asyncio.timeout(DEADLINE):
            receipt = await told
        self.receipts.append(receipt)
        return receipt

    def submission(
        self, updates: Sequence[bytes], told: asyncio.Future[Receipt], *, is_difference: bool = False
    ) -> Submission:
        return Submission(
            updates=updates,
            author=self.name,
            source=self,
            origin=self.origin or self.name,
            written=told.set_result,
            is_difference=is_difference,
        )


@dataclass
class Recorder:
    """A listener that builds its own document from what it is shown, and remembers the order."""

    document: Document = field(default_factory=lambda: Document(LAYOUT))
    seqs: list[int] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    error: BoardError | None = None

    def published(self, entries: Sequence[PublishedEntry]) -> None:
        for shown in entries:
            self.seqs.append(shown.entry.seq)
            self.document.apply_or_raise(shown.updates)
            if shown.checkpoint:
                self.checkpoints.append(shown.checkpoint)

    def schema_changed(self) -> None:
        pass

    def stopped(self, error: BoardError) -> None:
        self.error = error


@contextlib.asynccontextmanager
async def opened(store: Any, **options: Any) -> AsyncIterator[Engine]:
    async with BoardHost(store, **options) as host, host.board(BOARD) as engine:
        await engine.join(LAYOUT)
        yield engine


class Shared(MemoryStore):
    """A store that outlives the hosts that use it, as a file does."""

    async def close(self) -> None:
        pass


def request(step: str = "step", agent: str = "agent", patch: Sequence[PatchOp] = (), **rest: Any) -> CommitRequest:
    rest.setdefault("origin", agent)
    return CommitRequest(step=step, agent=agent, fingerprint=f"{step}{patch}", patch=tuple(patch), **rest)


async def text_of(engine: Engine) -> str:
    return await engine.read(lambda document: str(document.text("draft")))


async def status_of(engine: Engine) -> Any:
    return await engine.read(lambda document: document.wire_state().get("status"))


async def test_others_go_on_between_two_batches_also_over_a_store_that_answers_at_once() -> None:
    """Who was answered need not wait until everybody else is."""
    async with BoardHost(MemoryStore()) as host, host.board(BOARD) as engine:
        commits = [engine.commit(request(f"step {number}")) for number in range(5)]
        await commits[0]
        assert not commits[-1].done()
        assert (await commits[-1]).version == 5


async def test_an_acknowledged_update_is_in_a_cold_reload() -> None:
    """What was acknowledged is read back by a process that has only the store."""
    store = Shared()
    async with opened(store) as engine:
        peer = Peer(engine)
        receipt = await peer.send(peer.edit("héllo"))
        assert receipt == Receipt(seq=1)
    async with opened(store) as engine:
        assert await text_of(engine) == "héllo"


async def test_nothing_is_shown_or_acknowledged_before_it_is_durable() -> None:
    """No listener sees, and no sender is told of, an update whose append has not returned."""
    store = FaultyStore(Shared())
    async with opened(store) as engine:
        recorder = Recorder()
        engine.add_listener(recorder)
        gate = store.hold("append", when="after")
        peer = Peer(engine)
        sending = asyncio.create_task(peer.send(peer.edit("x")))
        reading = asyncio.create_task(text_of(engine))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE)
        assert not sending.done()
        assert not reading.done()
        assert recorder.seqs == []
        gate.release()
        assert (await sending).seq == 1
        assert await reading == "x"
        assert recorder.seqs == [1]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_append_that_fails_is_made_good_once(when: Any) -> None:
    """D1: whether or not the failed append took place, the update is in the journal once and acknowledged once."""
    store = FaultyStore(Shared())
    async with opened(store) as engine:
        recorder = Recorder()
        engine.add_listener(recorder)
        store.fail("append", when=when)
        peer = Peer(engine)
        await peer.send(peer.edit("once"))
        assert await text_of(engine) == "once"
        entries = await store.entries(BOARD, after=0, limit=10)
        assert [entry.author for entry in entries] == ["peer"]
        assert recorder.seqs == [1]
        verify_chain(GENESIS_HASH, 0, entries)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_commit_whose_append_fails_is_made_once(when: Any) -> None:
    """D1: a commit without a key is not doubled when the store fails after having written it."""
    store = FaultyStore(Shared())
    async with opened(store) as engine:
        store.fail("append", when=when)
        checkpoint = await engine.commit(request(patch=[SetValue(field="status", value="DONE")]))
        assert checkpoint.version == 1
        assert engine.version == 1
        assert len(await store.checkpoints(BOARD)) == 1
        assert await status_of(engine) == "DONE"


@pytest.mark.parametrize("method", ["head", "entries", "snapshots", "schemas", "keys", "checkpoint"])
async def test_a_failure_of_any_read_on_the_way_is_survived(method: str) -> None:
    """D1: after a failed append every further store call may fail once, and nothing is lost or doubled."""
    store = FaultyStore(Shared())
    async with opened(store) as engine:
        await engine.commit(request("first", idempotency_key="k"))
        store.fail("append")
        store.fail(method)
        peer = Peer(engine)
        receipt, checkpoint = await asyncio.gather(
            peer.send(peer.edit("x")),
            engine.commit(request("second", idempotency_key="k2", expected_version=1)),
        )
        assert receipt.error is None
        assert checkpoint.version == 2
        assert await text_of(engine) == "x"


async def test_a_store_that_takes_no_snapshots_loses_nothing() -> None:
    """D6: where there is no space for a snapshot, edits and commits go on, and the journal alone brings them back."""
    shared = Shared()
    store = FaultyStore(shared)
    async with opened(
        store, limits=replace(DEFAULT_LIMITS, snapshot_every_entries=1, snapshot_time_share=1.0)
    ) as engine:
        store.break_down("save_snapshot")
        peer = Peer(engine)
        for number in range(5):
            await peer.send(peer.edit(str(number)))
        assert (await engine.commit(request())).version == 1
        assert engine.failure is None
        written = await text_of(engine)
    assert await shared.snapshots(engine.board_id) == []
    async with opened(shared) as engine:
        assert (await text_of(engine), engine.version) == (written, 1)


async def test_a_store_that_is_down_while_the_board_is_closed_gets_everything_later() -> None:
    """D3: what is queued when the last user leaves is written when the store answers again."""
    shared = Shared()
    store = FaultyStore(shared)
    async with opened(store) as engine:
        peer = Peer(engine)
        store.break_down("append", "head", "entries", "snapshots")
        sending = asyncio.create_task(peer.send(peer.edit("kept")))
        while engine.failure is None:
            await asyncio.sleep(0)
        assert isinstance(engine.failure, StoreUnavailable)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)
        assert not closing.done()
        store.repair()
        async with asyncio.timeout(DEADLINE):
            await closing
        assert (await sending).seq == 1
    async with opened(shared) as engine:
        assert await text_of(engine) == "kept"


BAD_EMBED = b"\x01\x01\x07\x00\x05\x01\x05draft\x03abc\x00"
"""An update that is well-formed as far as bytes go, and whose embed is no JSON."""


async def test_a_malformed_update_is_refused_and_the_others_are_kept() -> None:
    """An update that yrs cannot read changes nothing; what was submitted beside it is durable."""
    async with opened(Shared()) as engine:
        peer, other = Peer(engine, "bad"), Peer(engine, "good")
        bad, good = await asyncio.gather(
            peer.send(peer.edit("a"), BAD_EMBED, peer.edit("b")), other.send(other.edit("c"))
        )
        assert isinstance(bad.error, MalformedUpdate)
        assert good == Receipt(seq=good.seq)
        assert sorted(await text_of(engine)) == ["a", "b", "c"]


async def test_bytes_that_are_no_update_are_refused_at_once() -> None:
    """What is no update is refused before anything of its submission is queued."""
    async with opened(Shared()) as engine:
        peer = Peer(engine)
        with pytest.raises(MalformedUpdate):
            await peer.send(peer.edit("a"), b"\x01\x01garbage")
        assert await text_of(engine) == ""


async def test_nobody_writes_under_the_board_s_own_client_id() -> None:
    """An update that goes on where the engine's own id ends is refused: it would swallow what the engine writes."""
    async with opened(Shared()) as engine:
        await engine.commit(request(patch=[SetValue(field="status", value="x")]))
        own = await engine.read(lambda document: document.client_id)
        forger = Peer(engine, document=Document(LAYOUT, client_id=own))
        forger.document.apply_or_raise([await engine.read(lambda document: document.encode())])
        with pytest.raises(MalformedUpdate, match="client id"):
            await forger.send(forger.edit("forged"))
        peer = Peer(engine)
        peer.document.apply_or_raise([await engine.read(lambda document: document.encode())])
        assert (await peer.send(peer.document.encode(), is_difference=True)).error is None


async def test_an_oversize_update_is_refused_at_once() -> None:
    """An update larger than the limit is refused before anything is queued, naming the limit."""
    async with opened(Shared(), limits=replace(DEFAULT_LIMITS, update_bytes_max=100)) as engine:
        peer = Peer(engine)
        with pytest.raises(LimitExceeded, match="100") as refused:
            await peer.send(peer.edit("x" * 200))
        assert refused.value.limit == "update_bytes_max"


async def test_a_panic_costs_only_the_update_that_caused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """H1: when yrs panics, the document is rebuilt, the guilty update refused, and every other one is kept."""
    apply = Document.apply_ready
    async with opened(Shared()) as engine:
        good, evil = Peer(engine, "good"), Peer(engine, "evil")
        poison = evil.edit("evil")

        def panicking(self: Document, updates: Any, intake: Any) -> Any:
            updates = list(updates)
            answers = apply(self, updates, intake)
            if any(update == poison for update, _ in updates):
                raise DocumentBroken("a panic")
            return answers

        monkeypatch.setattr(Document, "apply_ready", panicking)
        kept, refused = await asyncio.gather(good.send(good.edit("good")), evil.send(poison))
        assert kept.error is None
        assert isinstance(refused.error, MalformedUpdate)
        assert await text_of(engine) == "good"


async def test_an_update_that_is_not_ready_is_neither_kept_nor_acknowledged() -> None:
    """One that builds on a missing one changes nothing, and its sender is told; sent again later, it is taken."""
    store = Shared()
    async with opened(store) as engine:
        peer = Peer(engine)
        first, second, third = peer.edit("1"), peer.edit("2"), peer.edit("3")
        assert (await peer.send(first)).first_unready is None
        assert (await peer.send(third)).first_unready == 0
        assert (await peer.send(second, third)).first_unready is None
        assert (await text_of(engine), engine.seq) == ("123", 2)


async def test_what_is_ready_beside_what_is_not_is_kept() -> None:
    """Of one submission the ready updates are journalled, and the first of the others is named."""
    async with opened(Shared()) as engine:
        peer, other = Peer(engine), Peer(engine, "other")
        first, _, third = peer.edit("1"), peer.edit("2"), peer.edit("3")
        assert (await peer.send(first, third, other.edit("x"))).first_unready == 1
        assert sorted(await text_of(engine)) == ["1", "x"]


async def test_a_deletion_of_what_is_not_known_is_not_ready() -> None:
    """It would take nothing away here, and might later: it is asked for again with what it deletes."""
    async with opened(Shared()) as engine:
        peer = Peer(engine)
        draft = peer.document.text("draft")
        typed = peer.edit("hello")
        deleted = peer.document.capture(lambda: draft.__delitem__(slice(0, 2)))
        assert (await peer.send(deleted)).first_unready == 0
        assert (await peer.send(typed, deleted)).first_unready is None
        assert await text_of(engine) == "llo"


async def test_of_a_difference_the_ready_part_is_taken() -> None:
    """A peer that itself waits for something sends that along; it has no more, so it is not asked again."""
    async with opened(Shared()) as engine:
        peer = Peer(engine)
        first, second, third = peer.edit("1"), peer.edit("2"), peer.edit("3")
        holed = pycrdt.merge_updates(first, third)
        assert (await peer.send(holed, is_difference=True)).first_unready is None
        assert await text_of(engine) == "1"
        assert (await peer.send(second)).first_unready is None
        await peer.send(holed, is_difference=True)
        assert await text_of(engine) == "123"


async def test_a_difference_without_news_writes_nothing() -> None:
    """H5: an answer to our state vector that holds nothing new is accepted and makes no entry."""
    async with opened(Shared()) as engine:
        peer = Peer(engine)
        draft = peer.document.text("draft")
        await peer.send(peer.edit("hello"), peer.document.capture(lambda: draft.__delitem__(slice(0, 2))))
        everything = peer.document.encode()
        assert (await peer.send(everything, is_difference=True)).seq == 1
        assert engine.seq == 1


async def test_a_difference_is_journalled_without_what_was_known() -> None:
    """Of an answer to our state vector only the news is kept, not the deletions that it repeats."""
    store = Shared()
    async with opened(store) as engine:
        peer = Peer(engine)
        draft = peer.document.text("draft")
        await peer.send(peer.edit("x" * 1000), peer.document.capture(lambda: draft.__delitem__(slice(0, 999))))
        peer.edit("news")
        await peer.send(peer.document.encode(), is_difference=True)
        assert await text_of(engine) == "xnews"
        (entry,) = await store.entries(BOARD, after=1, limit=10)
        assert len(entry.payload) < 60


async def test_entries_name_their_authors_and_paths() -> None:
    """One entry an author and batch, with the paths that it touched."""
    store = Shared()
    async with opened(store) as engine:
        ann, bob = Peer(engine, "ann"), Peer(engine, "bob")
        await asyncio.gather(ann.send(ann.edit("a"), ann.set(status="x")), bob.send(bob.set(budget=5)))
        entries = await store.entries(BOARD, after=0, limit=10)
        assert {(entry.author, entry.paths) for entry in entries} == {
            ("ann", ("draft", "status")),
            ("bob", ("budget",)),
        }
        verify_chain(GENESIS_HASH, 0, entries)


async def test_checkpoints_are_chained_and_intact() -> None:
    """Versions count from 1, each names the hash of the one before, and each hash fits its content."""
    async with opened(Shared()) as engine:
        peer = Peer(engine)
        made = []
        for number in range(3):
            await peer.send(peer.edit(str(number)))
            made.append(await engine.commit(request(f"step {number}", output={"n": number}, confidence=0.5)))
        assert [checkpoint.version for checkpoint in made] == [1, 2, 3]
        assert [checkpoint.parent_hash for checkpoint in made[1:]] == [checkpoint.hash for checkpoint in made[:-1]]
        assert all(is_intact(checkpoint) for checkpoint in made)
        assert made[1].fields == ("draft",)
        assert await engine.checkpoints() == made[::-1]


async def test_one_expected_version_has_one_winner() -> None:
    """V1: of ten commits that expect the same version one is made, the others learn who was first and what changed."""
    async with opened(Shared()) as engine:
        commits = [
            engine.commit(request(agent=f"a{n}", patch=[SetValue(field="status", value=str(n))], expected_version=0))
            for n in range(10)
        ]
        results = await asyncio.gather(*commits, return_exceptions=True)
        (winner,) = [result for result in results if isinstance(result, Checkpoint)]
        refused = [result for result in results if isinstance(result, VersionConflict)]
        assert len(refused) == 9
        assert {(error.current_version, error.author, tuple(error.changed)) for error in refused} == {
            (1, winner.agent, ("status",))
        }
        assert await status_of(engine) == winner.agent[1:]


async def test_commits_without_a_precondition_all_merge() -> None:
    """V1: without an expected version every commit is made, and each is reachable from the head."""
    store = Shared()
    async with opened(store) as engine:
        commits = [engine.commit(request(agent=f"a{n}")) for n in range(10)]
        made = await asyncio.gather(*commits)
        assert sorted(checkpoint.version for checkpoint in made) == list(range(1, 11))
        chain = {checkpoint.parent_hash for checkpoint in made}
        assert len(chain) == 10


async def test_two_processes_with_one_expected_version_have_one_winner() -> None:
    """V1: the loser of two hosts on one store is refused, and its patch is on no replica."""
    store = FaultyStore(Shared())
    async with opened(store) as one, opened(store) as two:
        watching = Recorder()
        two.add_listener(watching)
        gate = store.hold("append")
        slow = one.commit(request(agent="one", patch=[SetValue(field="status", value="one")], expected_version=0))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE)
        made = await two.commit(request(agent="two", patch=[SetValue(field="status", value="two")], expected_version=0))
        gate.release()
        with pytest.raises(VersionConflict) as refused:
            await slow
        assert (made.version, refused.value.author, refused.value.changed) == (1, "two", ["status"])
        assert await status_of(one) == "two"
        peer = Peer(one)
        await peer.send(peer.edit("on"))
        two.refresh()
        assert await text_of(two) == "on"
        assert watching.document.wire_state()["status"] == "two"


async def test_two_processes_that_merge_lose_nothing() -> None:
    """V1, D9: two hosts that write one board at the same time each see everything, in one chain."""
    store = FaultyStore(Shared())
    async with opened(store) as one, opened(store) as two:
        peers = [Peer(one, "one"), Peer(two, "two")]

        async def work(peer: Peer) -> None:
            for number in range(25):
                await peer.send(peer.edit(peer.name[0]))
                await peer.engine.commit(request(f"step {number}", agent=peer.name))

        await asyncio.gather(*(work(peer) for peer in peers))
        for engine in (one, two):
            engine.refresh()
            assert sorted(await text_of(engine)) == ["o"] * 25 + ["t"] * 25
            assert engine.version == 50
        entries = await store.entries(BOARD, after=0, limit=1000)
        verify_chain(GENESIS_HASH, 0, entries)
        made = [checkpoint async for checkpoint in _all_checkpoints(store)]
        assert [checkpoint.version for checkpoint in made] == list(range(50, 0, -1))
        for checkpoint in made[::10]:
            await one.history.state_at(checkpoint.version)


async def _all_checkpoints(store: FaultyStore) -> AsyncIterator[Checkpoint]:
    for checkpoint in await store.checkpoints(BOARD, limit=1000):
        yield checkpoint


async def test_reads_conflict_on_those_fields_only() -> None:
    """With ``reads`` a commit is refused when somebody else changed one of these fields, and only then."""
    async with opened(Shared()) as engine:
        ann, bob = Peer(engine, "ann"), Peer(engine, "bob")
        await engine.commit(request(agent="ann"))
        await bob.send(bob.set(status="busy"))
        await engine.commit(request(agent="bob"))
        made = await engine.commit(request(agent="ann", expected_version=1, reads=("budget",)))
        assert made.version == 3
        await bob.send(bob.set(budget=1))
        with pytest.raises(VersionConflict, match="budget") as refused:
            await engine.commit(request(agent="ann", expected_version=3, reads=("budget", "draft")))
        assert refused.value.changed == ["budget"]
        await ann.send(ann.set(budget=2))
        assert (await engine.commit(request(agent="bob", expected_version=3, reads=("status",)))).version == 4


async def test_a_writer_does_not_conflict_with_itself() -> None:
    """V3: own changes of a field that was read are no reason to refuse."""
    async with opened(Shared()) as engine:
        ann = Peer(engine, "ann")
        await engine.commit(request(agent="ann"))
        await ann.send(ann.set(budget=1))
        assert (await engine.commit(request(agent="ann", expected_version=1, reads=("budget",)))).version == 2
        assert (await engine.commit(request(agent="ann", expected_version=2))).version == 3


async def test_a_name_that_two_replicas_share_hides_no_conflict() -> None:
    """V3: what counts as own is what the same replica wrote, not what bears the same name; a commit never does."""
    async with opened(Shared()) as engine:
        other = Peer(engine, "worker", "replica-2")
        await engine.commit(request(agent="worker", origin="replica-1"))
        await other.send(other.set(budget=1))
        with pytest.raises(VersionConflict, match="budget"):
            await engine.commit(request(agent="worker", origin="replica-1", expected_version=1, reads=("budget",)))
        patch = [SetValue(field="budget", value=2)]
        await engine.commit(request(agent="worker", origin="replica-1", patch=patch))
        with pytest.raises(VersionConflict, match="budget"):
            await engine.commit(request(agent="worker", origin="replica-1", base_seq=engine.seq - 1, reads=("budget",)))


async def test_edits_of_others_do_not_disturb_a_commit() -> None:
    """V2: somebody else's edits, as long as they are not committed, leave the expected version as it is."""
    async with opened(Shared()) as engine:
        ann, person = Peer(engine, "ann"), Peer(engine, "person")
        for number in range(20):
            await asyncio.gather(ann.send(ann.edit("token ")), person.send(person.set(budget=number)))
        assert (await engine.commit(request(agent="ann", expected_version=0))).version == 1


async def test_fifty_repeats_of_one_key_are_one_commit() -> None:
    """V4: submissions with one key while the first still runs: one execution, fifty equal results."""
    store = FaultyStore(Shared())
    async with opened(store) as engine:
        gate = store.hold("append")
        commits = [engine.commit(request(idempotency_key="key", output=7)) for _ in range(50)]
        await asyncio.wait_for(gate.reached.wait(), DEADLINE)
        gate.release()
        results = await asyncio.gather(*commits)
        assert {checkpoint.hash for checkpoint in results} == {results[0].hash}
        assert engine.version == 1


async def test_a_key_with_another_request_is_refused() -> None:
    """V4: the same key with another body is refused, naming the version that it made."""
    store = Shared()
    async with opened(store) as engine:
        await engine.commit(request("one", idempotency_key="key"))
    async with opened(store) as engine:
        with pytest.raises(IdempotencyMismatch) as refused:
            await engine.commit(request("two", idempotency_key="key"))
        assert refused.value.version == 1
        assert (await engine.commit(request("one", idempotency_key="key"))).version == 1


async def test_a_refused_patch_leaves_the_board_as_it_was() -> None:
    """A patch that does not fit the layout refuses the commit; nothing was written."""
    async with opened(Shared()) as engine:
        with pytest.raises(BoardError):
            await engine.commit(request(patch=[DropKey(field="nonsense", key="k")]))
        assert engine.seq == 0
        assert (await engine.commit(request())).version == 1


async def test_the_state_of_every_version_can_be_read() -> None:
    """``state_at`` gives each version's own state, also across snapshots."""
    limits = replace(DEFAULT_LIMITS, snapshot_every_entries=5, snapshot_time_share=1.0)
    async with opened(Shared(), limits=limits) as engine:
        peer = Peer(engine)
        for number in range(1, 21):
            await peer.send(peer.edit(str(number % 10)))
            await engine.commit(request(patch=[SetValue(field="budget", value=number)]))
        for number in (1, 7, 20):
            checkpoint, state = await engine.history.state_at(number)
            assert checkpoint.version == number
            assert state == {"budget": number, "draft": "".join(str(n % 10) for n in range(1, number + 1))}
        with pytest.raises(NotFound, match="21"):
            await engine.history.state_at(21)


async def test_a_board_that_falls_silent_gets_its_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written while no snapshot might be taken is in one soon, however long the last one took, and though
    nothing is written any more."""
    monkeypatch.setattr(chores, "_PAUSE_SECONDS_MAX", 0.3)
    store = Shared()
    limits = replace(DEFAULT_LIMITS, snapshot_every_entries=1, snapshot_time_share=1e-9)
    async with opened(store, limits=limits) as engine:
        peer = Peer(engine)
        for letter in "abc":
            await peer.send(peer.edit(letter))
        async with asyncio.timeout(DEADLINE_SECONDS):
            while engine.seq not in await store.snapshot_seqs(engine.board_id):
                await asyncio.sleep(0.01)


async def test_a_bad_snapshot_costs_time_only() -> None:
    """D8: a snapshot whose bytes were changed is passed over, and the journal gives the same state."""
    store = Shared()
    limits = replace(DEFAULT_LIMITS, snapshot_every_entries=3, snapshot_time_share=1.0)
    async with opened(store, limits=limits) as engine:
        peer = Peer(engine)
        for number in range(10):
            await peer.send(peer.edit(str(number)))
    newest = (await store.snapshots(BOARD))[0]
    await store.save_snapshot(replace(newest, data=newest.data[:-1] + b"?"))
    async with opened(store) as engine:
        assert await text_of(engine) == "0123456789"


async def test_an_altered_entry_is_named_and_nothing_is_written() -> None:
    """D8: a board whose journal does not verify is reported, never started empty and never written to."""
    store = Shared()
    async with opened(store) as engine:
        peer = Peer(engine)
        for number in range(3):
            await peer.send(peer.edit(str(number)))
    entries_of = store.entries

    async def altered(board_id: str, *, after: int, limit: int) -> Any:
        return [
            replace(entry, author="mallory") if entry.seq == 2 else entry
            for entry in await entries_of(board_id, after=after, limit=limit)
        ]

    store.entries = altered  # type: ignore[method-assign]
    with pytest.raises(BoardCorrupt, match="entry 2") as refused:
        async with opened(store):
            pass
    assert refused.value.seq == 2
    assert len(await entries_of(BOARD, after=0, limit=10)) == 3


async def test_a_clock_that_stands_still_or_falls_back_keeps_the_order() -> None:
    """M10: order is by seq; the clock is only written down."""
    clock = ManualClock()
    store = Shared()
    async with opened(store, clock=clock) as engine:
        for number in range(50):
            if number == 25:
                clock.advance(-3_600_000)
            await engine.commit(request(f"step {number}"))
        made = await store.checkpoints(BOARD, limit=100)
        assert [checkpoint.step for checkpoint in made] == [f"step {number}" for number in range(49, -1, -1)]


async def test_updates_of_pycrdt_clients_at_the_edges_of_client_ids_survive() -> None:
    """M8: client ids 1, 2^31, 2^32 and 2^53-1 round-trip through journal and snapshot."""
    store = Shared()
    limits = replace(DEFAULT_LIMITS, snapshot_every_entries=2, snapshot_time_share=1.0)
    ids = (1, 2**31, 2**32, 2**53 - 1)
    async with opened(store, limits=limits) as engine:
        for client_id in ids:
            peer = Peer(engine, document=Document(LAYOUT, client_id=client_id))
            await peer.send(peer.edit("x"))
    async with opened(store) as engine:
        state = await engine.read(lambda document: document.encode())
        fresh = pycrdt.Doc()
        fresh.apply_update(state)
        assert str(fresh.get("draft", type=pycrdt.Text)) == "xxxx"
        assert decode_state_vector(await engine.read(Document.state_vector)) == dict.fromkeys(ids, 1)


async def test_closing_gives_up_on_a_store_that_fails() -> None:
    """A process that ends is not held up for ever: what was not acknowledged is refused with the store's error."""
    store = FaultyStore(Shared())
    limits = replace(DEFAULT_LIMITS, close_seconds_max=0.1)
    async with asyncio.timeout(DEADLINE):
        async with BoardHost(store, limits=limits) as host:
            engine = await host.acquire(BOARD)
            await engine.join(LAYOUT)
            store.break_down("append")
            peer = Peer(engine)
            sending = asyncio.create_task(peer.send(peer.edit("x")))
            committing = engine.commit(request())
            while engine.failure is None:
                await asyncio.sleep(0)
    assert isinstance((await sending).error, StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        await committing


async def test_a_model_that_joins_while_the_document_is_rebuilt_is_not_lost() -> None:
    """The rebuilt document has the fields of a model that joined meanwhile."""
    wider = Layout(title="Wider", fields=(*LAYOUT.fields, FieldLayout(name="extra", kind="scalar")))
    store = FaultyStore(Shared())
    async with opened(store) as engine:
        peer = Peer(engine)
        await peer.send(peer.edit("y"))
        store.fail("append")
        gate = store.hold("snapshots")
        sending = asyncio.create_task(peer.send(peer.edit("x")))
        await asyncio.wait_for(gate.reached.wait(), DEADLINE)
        assert await engine.join(wider) == 2
        gate.release()
        await sending
        made = await engine.commit(request(patch=[SetValue(field="extra", value=1)]))
        assert (await engine.history.state_at(made.version))[1]["extra"] == 1


async def test_a_version_handed_over_by_another_process_is_known() -> None:
    """V1: an expected version, or an idempotency key, of another process counts at once, not after it is heard of."""
    store = Shared()
    async with opened(store) as one, opened(store) as two:
        made = await one.commit(request("first", agent="one", idempotency_key="key"))
        following = await two.commit(request("second", agent="two", expected_version=made.version))
        assert following.version == 2
        latest = await one.commit(request("third", agent="one", idempotency_key="other"))
        assert await two.commit(request("third", agent="two", idempotency_key="other")) == latest
        assert two.version == 3


async def test_a_state_under_another_process_schema_can_be_read() -> None:
    """V11: a version made under a schema that this process has not heard of is read under that schema."""
    wider = Layout(title="Wider", fields=(*LAYOUT.fields, FieldLayout(name="extra", kind="scalar")))
    store = Shared()
    async with opened(store) as one, opened(store) as two:
        await one.join(wider)
        made = await one.commit(request(patch=[SetValue(field="extra", value=5)]))
        assert (await two.history.state_at(made.version))[1] == {"extra": 5}


async def test_a_faulty_listener_disturbs_nobody() -> None:
    """W9: a listener that raises is removed and told; the board and the other listeners go on."""

    class Faulty(Recorder):
        def published(self, entries: Sequence[PublishedEntry]) -> None:
            raise RuntimeError("a fault of its own")

    async with opened(Shared()) as engine:
        faulty, sound = Faulty(), Recorder()
        engine.add_listener(faulty)
        engine.add_listener(sound)
        peer = Peer(engine)
        for text in ("a", "b"):
            assert (await peer.send(peer.edit(text))).error is None
        assert sound.seqs == [1, 2]
        assert faulty.error is not None


async def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path: Path) -> None:
    """A database file that was deleted under a board: nothing is acknowledged, and the reason is told."""
    path = tmp_path / "boards.db"
    limits = replace(DEFAULT_LIMITS, close_seconds_max=0.1)
    async with opened(await SqliteStore.open(path), limits=limits) as engine:
        peer = Peer(engine)
        await peer.send(peer.edit("kept"))
        path.unlink()
        sending = asyncio.create_task(peer.send(peer.edit("lost")))
        while engine.failure is None:
            await asyncio.sleep(0)
        assert "deleted" in str(engine.failure)
        assert not sending.done()
    assert isinstance((await sending).error, StoreUnavailable)


LISTED = Layout(title="Listed", fields=(*LAYOUT.fields, FieldLayout(name="plan", kind="list")))


async def test_text_in_the_place_of_a_list_is_refused() -> None:
    """H3: text beyond ASCII in a list makes yrs read for ever; it is taken out by its ids, and the board goes on."""
    async with opened(Shared()) as engine:
        await engine.join(LISTED)
        wrong: pycrdt.Doc[Any] = pycrdt.Doc()
        wrong.get("plan", type=pycrdt.Text).insert(0, "\N{GRINNING FACE}")
        peer = Peer(engine)
        (rejected,) = (await peer.send(wrong.get_update())).rejected
        assert rejected.values[0].path == "plan"
        assert (await peer.send(peer.edit("x"))).error is None
        assert (await engine.commit(request())).version == 1


@pytest.mark.parametrize("root", ["state", "of_no_field"])
async def test_a_chain_of_types_over_many_updates_of_one_batch_is_refused(root: str) -> None:
    """H2: also in a root that nobody reads: deleting a chain of 100,000 would end the process."""
    async with BoardHost(MemoryStore()) as host, host.board(BOARD) as engine:  # without a schema
        peer = Peer(engine)
        chain = _chain_of_maps(root, 1_000)
        assert (await peer.send(*chain[:20])).error is None
        assert isinstance((await peer.send(*chain[20:])).error, MalformedUpdate)
        assert (await engine.commit(request())).version == 1


def _chain_of_maps(root: str, length: int) -> list[bytes]:
    """Updates that each make a map, the next one inside the one before."""
    name = write_varuint(len(root)) + root.encode()
    places = [b"\x27\x01" + name, *(b"\x27\x00\x05" + write_varuint(clock) for clock in range(length - 1))]
    return [b"\x01\x01\x05" + write_varuint(clock) + place + b"\x01z\x01\x00" for clock, place in enumerate(places)]


async def test_depth_gained_over_several_updates_is_refused() -> None:
    """H2: shared types nested ever deeper, one level an update, end at the limit."""
    limits = replace(DEFAULT_LIMITS, nesting_depth_max=8)
    async with BoardHost(MemoryStore(), limits=limits) as host, host.board(BOARD) as engine:  # without a schema
        doc: pycrdt.Doc[Any] = pycrdt.Doc()
        inner: Any = doc.get("state", type=pycrdt.Map)
        peer = Peer(engine)
        refused = None
        for _ in range(12):
            before = doc.get_state()
            inner["status"] = pycrdt.Map()
            inner = inner["status"]
            refused = refused or (await peer.send(doc.get_update(before))).error
        assert isinstance(refused, MalformedUpdate)
        assert (await engine.commit(request())).version == 1
