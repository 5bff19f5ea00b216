"""Whether the board holds what the team did, each thing once. Pure."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

from crdt_board.checkpoints import GENESIS_HASH, Checkpoint, is_intact
from crdt_board_demo.model import TEAM, Migration, checksum
from crdt_board_demo.record import AgentRecord, Record
from crdt_board_demo.script import Finding, Script, Sentence


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the database file says when it is opened after the server has stopped."""

    state: Migration
    state_at_last: Migration
    checkpoints: list[Checkpoint]
    """All of them, oldest first."""


@dataclass(slots=True)
class Incidents:
    """What was done to the processes."""

    server_kills: list[int] = field(default_factory=list)
    server_restarts: int = 0
    server_exit_code: int | None = None
    agent_kills: list[str] = field(default_factory=list)
    agent_restarts: list[str] = field(default_factory=list)


def check_all(script: Script, record: Record, incidents: Incidents, audit: Audit) -> list[Check]:
    """Every check; the demo passed when all of them did."""
    return [
        _edits(script, record, audit.state),
        _duplicates(script, audit),
        _offline(record),
        _tokens(script, audit.state),
        _draft(script, audit.state),
        _versions(script, audit.checkpoints),
        _chain(audit.checkpoints),
        _replicas(record, audit),
        _server(incidents),
        _agent(record, incidents),
    ]


def occurrences(script: Script, state: Migration) -> dict[str, int]:
    """How often the board holds each edit of the script."""
    counts = {item.id: state.plan.count(item.text) for item in script.plan_items}
    counts |= {finding.id: _finding_count(finding, state) for finding in script.findings}
    for sentence in script.sentences:
        typed, reviewed = _sentence_counts(sentence, state.draft)
        counts |= {sentence.stretch_id(index): typed for index in range(len(sentence.stretches))}
        counts[sentence.review_id] = reviewed
    return counts


def _finding_count(finding: Finding, state: Migration) -> int:
    """A finding and its dependency cannot be there twice; its evidence can."""
    if state.findings.get(finding.key) != finding.text or finding.dependency not in state.dependencies:
        return 0
    return state.evidence.count(finding.evidence)


def _sentence_counts(sentence: Sentence, draft: str) -> tuple[int, int]:
    lines = draft.splitlines(keepends=True)
    reviewed = lines.count(sentence.reviewed)
    return reviewed + lines.count(sentence.typed), reviewed


def _edits(script: Script, record: Record, state: Migration) -> Check:
    expected = {edit for agent in TEAM for edit in script.edits_of(agent)}
    sent = {edit for agent in record.agents.values() for edit in agent.edits}
    durable = {edit for agent in record.agents.values() for edit in agent.durable}
    present = {edit for edit, count in occurrences(script, state).items() if count}
    detail = f"{len(sent)} sent, {len(durable)} acknowledged, {len(present)} present of {len(expected)}"
    return Check("edits", expected == sent == durable == present, detail)


def _duplicates(script: Script, audit: Audit) -> Check:
    edits = sum(max(0, count - 1) for count in occurrences(script, audit.state).values())
    steps = Counter((made.agent, made.step) for made in audit.checkpoints)
    twice = sum(count - 1 for count in steps.values())
    return Check("duplicates", edits + twice == 0, f"{edits} edits, {twice} steps")


def _offline(record: Record) -> Check:
    agents = [name for name, agent in record.agents.items() if agent.offline_edits]
    detail = f"{record.offline_edits} edits by {', '.join(agents) or 'nobody'} while the server was down"
    return Check("work offline", bool(agents), detail)


def _tokens(script: Script, state: Migration) -> Check:
    expected = sum(finding.tokens for finding in script.findings)
    return Check("counter", state.tokens_spent == expected, f"{int(state.tokens_spent):,} of {expected:,} tokens")


def _draft(script: Script, state: Migration) -> Check:
    passed = state.draft == script.final_draft
    detail = f"{len(state.draft)} characters, {'as written together' if passed else 'not what was written'}"
    return Check("draft", passed, detail)


def _versions(script: Script, checkpoints: list[Checkpoint]) -> Check:
    versions = [made.version for made in checkpoints]
    expected = Counter((agent, step) for agent in TEAM for step in script.steps_of(agent))
    passed = versions == list(range(1, len(versions) + 1))
    passed = passed and Counter((made.agent, made.step) for made in checkpoints) == expected
    return Check("versions", passed, f"1 to {len(versions)} without gaps, each of {expected.total()} steps once")


def _chain(checkpoints: list[Checkpoint]) -> Check:
    parents = [GENESIS_HASH, *(made.hash for made in checkpoints)]
    linked = all(made.parent_hash == parent for made, parent in zip(checkpoints, parents, strict=False))
    ordered = all(first.seq < second.seq for first, second in itertools.pairwise(checkpoints))
    passed = bool(checkpoints) and linked and ordered and all(is_intact(made) for made in checkpoints)
    return Check("hash chain", passed, f"head {checkpoints[-1].hash[:16]}" if checkpoints else "no checkpoints")


def _replicas(record: Record, audit: Audit) -> Check:
    sums = {name: agent.finished.checksum if agent.finished else "" for name, agent in record.agents.items()}
    sums |= {"the file": checksum(audit.state), "the last version": checksum(audit.state_at_last)}
    reference = sums["the file"]
    odd = [name for name, value in sums.items() if value != reference]
    detail = f"{len(record.agents)} agents, the file and its last version: {reference[:16]}"
    return Check("replicas equal", not odd, f"{', '.join(odd)} differ from the file" if odd else detail)


def _server(incidents: Incidents) -> Check:
    killed = incidents.server_kills
    passed = killed == [-9] and incidents.server_restarts == 1 and incidents.server_exit_code == 0
    detail = f"{len(killed)} kill -9, {incidents.server_restarts} restart on the same port"
    return Check("server restarts", passed, f"{detail}, stopped with code {incidents.server_exit_code}")


def _agent(record: Record, incidents: Incidents) -> Check:
    killed = incidents.agent_kills
    resumed = [record.agents[name].starts[-1] for name in incidents.agent_restarts]
    passed = len(killed) == 1 and killed == incidents.agent_restarts and all(start.steps_done for start in resumed)
    after = ", ".join(
        f"{name} went on after “{start.steps_done[-1]}”, {_resumption(record.agents[name])}"
        for name, start in zip(incidents.agent_restarts, resumed, strict=True)
        if start.steps_done
    )
    return Check("agent restarts", passed, f"{len(killed)} kill -9: {after or 'nobody went on'}")


def _resumption(agent: AgentRecord) -> str:
    again = sum(count - 1 for count in agent.edits.values())
    return f"{len(agent.found)} edits of its broken step were on the board, {again} had not been sent"
