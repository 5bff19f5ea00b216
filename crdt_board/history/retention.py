"""Which versions of a board stay, which go, and why. Pure: what a board holds and what the time is are arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pydantic import BaseModel, ConfigDict, Field

from crdt_board.checkpoints import Checkpoint
from crdt_board.store.contract import BoardHead


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Retention(_Frozen):
    """Which versions of a board to keep; without ``keep_versions`` and ``newer_than`` all of them.

    A version stays when one of the rules keeps it: the newest ``keep_versions``, those made within ``newer_than`` of
    now, those with a tag unless ``keep_tagged`` is False. The newest version stays always, and so does whatever
    something else needs (see `crdt_board.history.pins`).
    """

    keep_versions: int | None = Field(default=None, ge=1)
    newer_than: timedelta | None = Field(default=None, gt=timedelta(0))
    keep_tagged: bool = True

    @property
    def keeps_all(self) -> bool:
        return self.keep_versions is None and self.newer_than is None

    def __str__(self) -> str:
        if self.keeps_all:
            return "all versions"
        rules = [f"the newest {self.keep_versions}"] if self.keep_versions is not None else []
        rules += (
            [f"those newer than {str(self.newer_than).removesuffix(', 0:00:00')}"]
            if self.newer_than is not None
            else []
        )
        rules += ["those with a tag"] if self.keep_tagged else []
        return " and ".join(rules)


class KeptVersions(_Frozen):
    """Versions from ``first`` to ``last`` that stay, all for the same reason. With ``is_whole`` the journal between
    them stays too; without, their states stay."""

    first: int
    last: int
    why: str
    is_whole: bool


class DroppedVersions(_Frozen):
    """Versions from ``first`` to ``last`` that go."""

    first: int
    last: int


class CompactionReport(_Frozen):
    """What a compaction removed, or with ``dry_run`` would remove.

    The journal's first ``base_seq`` entries are one state now, ``entries`` of them since this compaction; they took
    ``entry_bytes`` of content, and what stands for them takes ``base_bytes`` (0 for a dry run, which does not make it).
    ``kept`` and ``dropped`` are in the order of versions. Of the dropped ones ``records`` stay without their states,
    because an idempotency key led to them: a repeat of that request gets its first result.
    """

    board_id: str
    dry_run: bool
    base_seq: int
    entries: int
    entry_bytes: int
    base_bytes: int
    kept: tuple[KeptVersions, ...]
    dropped: tuple[DroppedVersions, ...]
    records: int

    @property
    def dropped_versions(self) -> int:
        return sum(each.last - each.first + 1 for each in self.dropped)

    def __str__(self) -> str:
        verb = "would go" if self.dry_run else "went"
        lines = [
            f"board {self.board_id}: {self.dropped_versions} versions and {self.entries} entries "
            f"({self.entry_bytes} bytes) {verb}"
            + ("" if self.dry_run or not self.entries else f"; {self.base_bytes} bytes stand for them")
        ]
        if self.dropped:
            lines.append(f"  {verb}: versions {', '.join(_span(each.first, each.last) for each in self.dropped)}")
        if self.records:
            lines.append(f"  records of {self.records} of them stay for their idempotency keys, without states")
        lines += [f"  stays: {_span(each.first, each.last)}, {each.why}" for each in self.kept]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """``base_seq`` is where the journal is to begin; ``pinned`` are the versions before it whose states stay, each with
    the reason, and ``whole`` those from it on; ``dropped`` go. All ascending."""

    base_seq: int
    pinned: tuple[tuple[Checkpoint, str], ...]
    whole: tuple[tuple[Checkpoint, str], ...]
    dropped: tuple[Checkpoint, ...]

    def kept_ranges(self) -> tuple[KeptVersions, ...]:
        found: list[KeptVersions] = []
        for is_whole, kept in ((False, self.pinned), (True, self.whole)):
            for checkpoint, why in kept:
                last = found[-1] if found else None
                version = checkpoint.version
                if last and (last.last + 1, last.why, last.is_whole) == (version, why, is_whole):
                    found[-1] = last.model_copy(update={"last": version})
                else:
                    found.append(KeptVersions(first=version, last=version, why=why, is_whole=is_whole))
        return tuple(found)

    def dropped_ranges(self) -> tuple[DroppedVersions, ...]:
        found: list[DroppedVersions] = []
        for checkpoint in self.dropped:
            if found and found[-1].last + 1 == checkpoint.version:
                found[-1] = found[-1].model_copy(update={"last": checkpoint.version})
            else:
                found.append(DroppedVersions(first=checkpoint.version, last=checkpoint.version))
        return tuple(found)


def plan_retention(
    policy: Retention,
    head: BoardHead,
    checkpoints: Sequence[Checkpoint],
    *,
    pins: Mapping[int, str],
    with_state: Iterable[int],
    now_ms: int,
) -> RetentionPlan:
    """What a policy means for a board now.

    ``checkpoints`` are all that the board has, newest first. ``pins`` are versions that something else needs, and what
    that is. ``with_state`` are the seqs before the base at which a state was kept; records without one are nothing that
    could be kept.

    The journal is to begin at the oldest of the newest versions that all stay: between these nothing is lost. Of a
    board without versions all edits become the base, unless the policy asks for recent ones.
    """
    states = {*with_state, head.base_seq}
    there = [made for made in checkpoints if made.seq >= head.base_seq or made.seq in states]
    reasons = _reasons(policy, there, pins, now_ms)
    whole: list[tuple[Checkpoint, str]] = []
    for made in there:
        if made.version not in reasons or made.seq < head.base_seq:
            break
        whole.append((made, reasons[made.version]))
    # Edits that are newer than the policy asks for stay too, and so does the version that they followed.
    is_recent = bool(whole) and _is_recent(policy, whole[-1][0], now_ms)
    before = there[len(whole) :][:1]
    if is_recent and before and before[0].seq >= head.base_seq:
        whole.append((before[0], reasons.setdefault(before[0].version, "the newer ones follow it")))
        is_recent = False
    older = there[len(whole) :]
    if policy.keeps_all or is_recent:
        base_seq = head.base_seq
    elif whole:
        base_seq = whole[-1][0].seq
    else:
        base_seq = head.base_seq if policy.newer_than is not None else head.seq
    pinned = [(made, reasons[made.version]) for made in older if made.version in reasons]
    dropped = [made for made in older if made.version not in reasons]
    return RetentionPlan(base_seq, tuple(pinned[::-1]), tuple(whole[::-1]), tuple(dropped[::-1]))


def _reasons(
    policy: Retention, checkpoints: Sequence[Checkpoint], pins: Mapping[int, str], now_ms: int
) -> dict[int, str]:
    """Why each version that stays does: the first rule that keeps it."""
    reasons: dict[int, str] = {}
    newest = policy.keep_versions or 1
    for rank, made in enumerate(checkpoints):
        if policy.keeps_all:
            reasons[made.version] = "all versions are kept"
        elif rank < newest:
            reasons[made.version] = "the newest" if newest == 1 else f"one of the newest {newest}"
        elif _is_recent(policy, made, now_ms):
            reasons[made.version] = f"newer than {policy.newer_than}"
        elif policy.keep_tagged and made.tags:
            reasons[made.version] = f"tagged {', '.join(made.tags)}"
        elif made.version in pins:
            reasons[made.version] = pins[made.version]
    return reasons


def _is_recent(policy: Retention, checkpoint: Checkpoint, now_ms: int) -> bool:
    age = policy.newer_than
    return age is not None and checkpoint.time_ms > now_ms - age.total_seconds() * 1000


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
