"""Who does what in the demo, and what the board must hold when all is done. Pure: the seed decides everything."""

from __future__ import annotations

import random
from dataclasses import dataclass

from crdt_board_demo.model import PLANNER, RESEARCHERS, REVIEWER, WRITER

_SERVICES = ("billing", "checkout", "inventory", "ledger")
_SUBJECTS = ("nightly export", "retry queue", "price cache", "login hook", "report job", "webhook relay", "audit trail")
_FAULTS = (
    "casts money to float",
    "reads the old schema",
    "has no timeout",
    "ignores time zones",
    "keeps sessions in memory",
    "splits names like Ærø or 東京 by bytes",
)
_PACKAGES = (
    "postgres-15",
    "redis-7",
    "kafka-3.7",
    "openssl-3",
    "libxml2",
    "grpc-1.62",
    "zstd-1.5",
    "icu-74",
    "nginx-1.26",
)

_RESEARCH_STEPS = ("survey", "deep-dive", "verify")
_FINDINGS_PER_STEP = 5

_PLAN = ("read the code", "list what it depends on", "find what breaks", "draft the report", "review the report")
_REFINEMENTS = ("ask the data team", "rehearse the rollback", "measure the cut-over", "tell support", "name a date")

_DRAFT = (
    ("The service moves in one weekend.", None),
    ("Of the risks, TODO: name the worst.", ("TODO: name the worst", "the worst is silent rounding ⚠")),
    ("Every dependency has a newer release.", None),
    (
        "To go back, TODO: describe the rollback.",
        ("TODO: describe the rollback", "replay the journal into the old schema"),
    ),
    ("Names such as Zoë, Łódź and 北京 stay intact.", None),
    ("It is owned by TODO: ask who owns it.", ("TODO: ask who owns it", "the payments team 🧭")),
    ("Traffic is moved one tenth at a time.", None),
    ("It costs TODO: count the hours.", ("TODO: count the hours", "about 60 hours")),
)
_DRAFT_STEPS = ("draft-first-half", "draft-second-half")
_REVIEW_STEPS = ("review-first-half", "review-second-half")


@dataclass(frozen=True, slots=True)
class PlanItem:
    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Written in one transaction: the finding, its evidence, a dependency and the tokens that it took."""

    id: str
    key: str
    text: str
    dependency: str
    tokens: int

    @property
    def evidence(self) -> str:
        return f"{self.key}: {self.dependency}"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A line of the draft: typed in ``stretches`` of a few characters, then reviewed by replacing a quoted part."""

    id: str
    stretches: tuple[str, ...]
    quoted: str
    replacement: str

    @property
    def typed(self) -> str:
        return "".join(self.stretches)

    @property
    def reviewed(self) -> str:
        return self.typed.replace(self.quoted, self.replacement)

    @property
    def mark(self) -> str:
        """What only this sentence contains, before and after its review."""
        return f"[{self.id}]"

    def stretch_id(self, index: int) -> str:
        return f"{WRITER}/{self.id}/{index:02}"

    @property
    def review_id(self) -> str:
        return f"{REVIEWER}/{self.id}"


@dataclass(frozen=True, slots=True)
class Script:
    """Steps in order, for each agent: step name and what is done in it."""

    seed: int
    target_service: str
    planning: dict[str, tuple[PlanItem, ...]]
    research: dict[str, dict[str, tuple[Finding, ...]]]
    drafting: dict[str, tuple[Sentence, ...]]
    reviewing: dict[str, tuple[Sentence, ...]]

    @property
    def plan_items(self) -> list[PlanItem]:
        return [item for step in self.planning.values() for item in step]

    @property
    def findings(self) -> list[Finding]:
        return [finding for steps in self.research.values() for step in steps.values() for finding in step]

    @property
    def sentences(self) -> list[Sentence]:
        return [sentence for step in self.drafting.values() for sentence in step]

    @property
    def final_draft(self) -> str:
        return "".join(sentence.reviewed for sentence in self.sentences)

    def edits_of(self, agent: str) -> list[str]:
        """The identities of all edits that an agent makes; each is one update."""
        if agent == PLANNER:
            return [item.id for item in self.plan_items]
        if agent == WRITER:
            return [item.stretch_id(index) for item in self.sentences for index in range(len(item.stretches))]
        if agent == REVIEWER:
            return [sentence.review_id for sentence in self.sentences]
        return [finding.id for step in self.research[agent].values() for finding in step]

    def steps_of(self, agent: str) -> list[str]:
        """The steps that an agent commits, in order."""
        if agent == PLANNER:
            return [*self.planning, CONCLUSION]
        if agent == WRITER:
            return list(self.drafting)
        return list(self.reviewing if agent == REVIEWER else self.research[agent])


CONCLUSION = "conclude"
"""The planner's last step, and the last of all."""


def make_script(seed: int) -> Script:
    """The same script for the same seed."""
    chance = random.Random(f"script {seed}")
    sentences = [_sentence(number, chance) for number in range(1, len(_DRAFT) + 1)]
    half = len(sentences) // 2
    halves = (tuple(sentences[:half]), tuple(sentences[half:]))
    return Script(
        seed=seed,
        target_service=chance.choice(_SERVICES),
        planning={"plan": _plan_items(_PLAN, 1), "refine-plan": _plan_items(_REFINEMENTS, len(_PLAN) + 1)},
        research={agent: _research(agent, chance) for agent in RESEARCHERS},
        drafting=dict(zip(_DRAFT_STEPS, halves, strict=True)),
        reviewing=dict(zip(_REVIEW_STEPS, halves, strict=True)),
    )


def _plan_items(texts: tuple[str, ...], first: int) -> tuple[PlanItem, ...]:
    return tuple(PlanItem(f"{PLANNER}/{number:02}", f"{number}. {text}") for number, text in enumerate(texts, first))


def _research(agent: str, chance: random.Random) -> dict[str, tuple[Finding, ...]]:
    number = 0
    steps: dict[str, tuple[Finding, ...]] = {}
    for step in _RESEARCH_STEPS:
        found = []
        for _ in range(_FINDINGS_PER_STEP):
            number += 1
            found.append(
                Finding(
                    id=f"{agent}/{number:02}",
                    key=f"{agent[0]}{agent[-1]}-{number:02}",
                    text=f"the {chance.choice(_SUBJECTS)} {chance.choice(_FAULTS)}",
                    dependency=chance.choice(_PACKAGES),
                    tokens=chance.randint(100, 900),
                )
            )
        steps[step] = tuple(found)
    return steps


def _sentence(number: int, chance: random.Random) -> Sentence:
    text, review = _DRAFT[number - 1]
    mark = f"[s{number}]"
    quoted, replacement = review or (mark, f"{mark} ✓")
    typed, stretches = f"{text} {mark}\n", []
    while typed:
        length = chance.randint(2, 6)
        stretches.append(typed[:length])
        typed = typed[length:]
    return Sentence(id=f"s{number}", stretches=tuple(stretches), quoted=quoted, replacement=replacement)
