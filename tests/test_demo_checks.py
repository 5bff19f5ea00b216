"""The checks of the demo: each must fail when the board is not what the team made."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crdt_board.checkpoints import GENESIS_HASH, Checkpoint, make_checkpoint
from crdt_board_demo import messages
from crdt_board_demo.checks import Audit, Incidents, check_all
from crdt_board_demo.model import RESEARCHERS, TEAM, Migration, checksum
from crdt_board_demo.record import Record
from crdt_board_demo.script import Script, make_script

_SCRIPT = make_script(3)
_VICTIM = RESEARCHERS[1]


def _state(script: Script) -> Migration:
    return Migration(
        target_service=script.target_service,
        status="DONE",
        dependencies={finding.dependency for finding in script.findings},
        findings={finding.key: finding.text for finding in script.findings},
        evidence=[finding.evidence for finding in script.findings],
        plan=[item.text for item in script.plan_items],
        draft=script.final_draft,
        tokens_spent=sum(finding.tokens for finding in script.findings),
    )


def _checkpoints(script: Script) -> list[Checkpoint]:
    made: list[Checkpoint] = []
    steps = [(agent, step) for agent in TEAM for step in script.steps_of(agent)]
    for agent, step in steps:
        made.append(
            make_checkpoint(
                board_id="demo",
                epoch="e",
                version=len(made) + 1,
                seq=10 * len(made) + 10,
                parent_hash=made[-1].hash if made else GENESIS_HASH,
                checksum="c",
                agent=agent,
                step=step,
                schema_version=1,
                time_ms=0,
            )
        )
    return made


def _record(script: Script, state: Migration) -> Record:
    record = Record(TEAM)
    for agent in TEAM:
        record.take(agent, messages.Started(pid=1, version=0, steps_done=("survey",)))
        edits = script.edits_of(agent)
        for number, edit in enumerate(edits):
            record.take(agent, messages.Edited(id=edit, online=number > 0, acknowledged=number))
        record.take(agent, messages.Finished(version=13, checksum=checksum(state), acknowledged=len(edits)))
    return record


def _incidents() -> Incidents:
    return Incidents(
        server_kills=[-9], server_restarts=1, server_exit_code=0, agent_kills=[_VICTIM], agent_restarts=[_VICTIM]
    )


def _audit(state: Migration) -> Audit:
    return Audit(state=state, state_at_last=state, checkpoints=_checkpoints(_SCRIPT))


def _failed(record: Record, audit: Audit, incidents: Incidents | None = None) -> set[str]:
    checks = check_all(_SCRIPT, record, incidents or _incidents(), audit)
    return {check.name for check in checks if not check.passed}


def test_a_board_that_holds_everything_once_passes() -> None:
    """Nothing fails when the board holds what the script says."""
    state = _state(_SCRIPT)
    assert _failed(_record(_SCRIPT, state), _audit(state)) == set()


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"plan": _state(_SCRIPT).plan[1:]}, {"edits"}),
        ({"plan": [*_state(_SCRIPT).plan, _state(_SCRIPT).plan[0]]}, {"duplicates"}),
        ({"evidence": [*_state(_SCRIPT).evidence, _state(_SCRIPT).evidence[3]]}, {"duplicates"}),
        ({"findings": {}}, {"edits"}),
        ({"tokens_spent": _state(_SCRIPT).tokens_spent + 1}, {"counter"}),
        ({"draft": _SCRIPT.final_draft[1:]}, {"edits", "draft"}),
        ({"draft": _SCRIPT.final_draft + _SCRIPT.sentences[0].reviewed}, {"duplicates", "draft"}),
    ],
)
def test_a_lost_or_doubled_edit_fails(change: dict[str, object], failing: set[str]) -> None:
    """Whatever is missing, there twice or different in the file fails the check that watches over it."""
    broken = _state(_SCRIPT).model_copy(update=change)
    assert _failed(_record(_SCRIPT, broken), _audit(broken)) == failing


def test_one_replica_that_differs_fails() -> None:
    """An agent whose snapshot is not the file's state is found."""
    state = _state(_SCRIPT)
    record = _record(_SCRIPT, state)
    record.take(_VICTIM, messages.Finished(version=13, checksum="other", acknowledged=15))
    assert _failed(record, _audit(state)) == {"replicas equal"}


def test_an_edit_that_was_never_acknowledged_fails() -> None:
    """Being on the board is not enough: the agent must have been told that its edit is durable."""
    state = _state(_SCRIPT)
    record = _record(_SCRIPT, state)
    record.agents[_VICTIM].acknowledged.discard(_SCRIPT.edits_of(_VICTIM)[-1])
    assert _failed(record, _audit(state)) == {"edits"}


def test_a_gap_or_a_forged_checkpoint_fails() -> None:
    """Versions count by one, and each hash is that of its content and names the one before."""
    state = _state(_SCRIPT)
    record, audit = _record(_SCRIPT, state), _audit(state)
    gap = replace(audit, checkpoints=[*audit.checkpoints[:4], *audit.checkpoints[5:]])
    assert _failed(record, gap) == {"versions", "hash chain"}
    forged = audit.checkpoints[-1].model_copy(update={"checksum": "other"})
    assert _failed(record, replace(audit, checkpoints=[*audit.checkpoints[:-1], forged])) == {"hash chain"}


def test_a_step_that_was_committed_twice_fails() -> None:
    """A resumed agent that repeats a finished step is found."""
    state = _state(_SCRIPT)
    audit = _audit(state)
    last = audit.checkpoints[-1]
    content = last.model_dump(exclude={"hash"}) | {"version": last.version + 1, "seq": last.seq + 1}
    again = make_checkpoint(**content | {"parent_hash": last.hash})
    failed = _failed(_record(_SCRIPT, state), replace(audit, checkpoints=[*audit.checkpoints, again]))
    assert failed == {"versions", "duplicates"}


def test_a_demo_without_incidents_fails() -> None:
    """When nothing was killed, nothing was shown."""
    state = _state(_SCRIPT)
    assert _failed(_record(_SCRIPT, state), _audit(state), Incidents()) == {"server restarts", "agent restarts"}
