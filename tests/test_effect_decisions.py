"""What is decided about effects, in any order of requests, repeats, crashes and resolutions."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crdt_board.coordination.effects import (
    AbandonEffect,
    BeginEffect,
    EffectRecord,
    FinishEffect,
    RenewEffect,
    ResolveEffect,
)
from crdt_board.coordination.ledger import Draft, Ledger
from crdt_board.coordination.operations import Operation, decide
from crdt_board.errors import BoardError, Conflict, EffectInDoubt

_TTL_MS = 1000
_WHICH = {"name": "open", "key": "k"}


class Runner:
    """An agent that runs the call when it is told to; it may be stopped at any point."""

    def __init__(self, number: int) -> None:
        self.token = f"{number:024d}"
        self.may_act = False
        self.acted = False


class Effects(RuleBasedStateMachine):
    """One key, any number of runners, and people who look outside before they resolve."""

    def __init__(self) -> None:
        super().__init__()
        self.draft = Draft(Ledger(), "agent", 0, 0, "", lambda _paths: "", lambda _path: None)
        self.runners: list[Runner] = []
        self.sent: list[Operation] = []
        self.seen: set[str] = set()

    def ask(self, operation: Operation) -> object:
        """The writer's decision; refused is None, and so is what it answers with null."""
        self.sent.append(operation)
        record = self.record
        if record is not None and record.deadline_ms is not None and record.deadline_ms <= self.draft.now_ms:
            self.draft.put(record.run_out(self.draft.now_ms))
        return decide(self.draft, [operation])[0]

    @property
    def record(self) -> EffectRecord | None:
        return self.draft.get(EffectRecord, "open/k")

    @property
    def acts(self) -> int:
        return sum(runner.acted for runner in self.runners)

    @rule()
    def begin(self) -> None:
        runner = Runner(len(self.runners))
        self.runners.append(runner)
        try:
            answer = self.ask(BeginEffect(**_WHICH, token=runner.token, ttl_ms=_TTL_MS))
        except EffectInDoubt:
            return
        assert isinstance(answer, dict)
        runner.may_act = answer["state"] == "running" and answer["token"] == runner.token
        if answer["state"] == "done":
            self.seen.add(str(answer["result"]))

    @precondition(lambda self: any(runner.may_act for runner in self.runners))
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """The call acts outside, however late."""
        runner = data.draw(st.sampled_from([each for each in self.runners if each.may_act]))
        runner.may_act, runner.acted = False, True

    @precondition(lambda self: self.runners)
    @rule(data=st.data())
    def tell(self, data: st.DataObject) -> None:
        """A runner renews, or tells how its call has ended, as far as it knows."""
        runner = data.draw(st.sampled_from(self.runners))
        told: Operation = RenewEffect(**_WHICH, token=runner.token, ttl_ms=_TTL_MS)
        if runner.acted:
            done = FinishEffect(**_WHICH, token=runner.token, result=runner.token)
            told = data.draw(st.sampled_from([done, AbandonEffect(**_WHICH, token=runner.token, in_doubt="raised")]))
        elif runner.may_act:
            told = AbandonEffect(**_WHICH, token=runner.token, in_doubt=data.draw(st.sampled_from([None, "unknown"])))
            runner.may_act = False
        try:
            result = self.ask(told)
        except Conflict:
            return
        if isinstance(told, FinishEffect):
            self.seen.add(str(result))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """A request arrives a second time, however late; nobody hears the answer."""
        sent = [each for each in self.sent if not isinstance(each, ResolveEffect | BeginEffect)]
        if sent:
            try:
                self.ask(data.draw(st.sampled_from(sent)))
            except BoardError:
                self.sent.pop()

    @rule(milliseconds=st.sampled_from([100, _TTL_MS]))
    def wait(self, milliseconds: int) -> None:
        self.draft.now_ms += milliseconds

    @precondition(lambda self: self.record is not None and self.record.state == "in_doubt")
    @rule()
    def resolve(self) -> None:
        """Somebody who waits until whoever may still act is gone, looks outside, and says so."""
        assert self.record is not None
        for runner in self.runners:
            runner.may_act = False
        acted = [runner.token for runner in self.runners if runner.acted]
        self.ask(ResolveEffect(**_WHICH, took_place=bool(acted), result=acted[0] if acted else None))

    @invariant()
    def it_takes_place_at_most_once(self) -> None:
        assert self.acts <= 1

    @invariant()
    def everybody_sees_one_result(self) -> None:
        assert len(self.seen) <= 1

    @invariant()
    def what_took_place_is_never_free_again(self) -> None:
        assert self.record is not None or not self.acts


TestEffects = Effects.TestCase
