"""What the routes of effects and steps take and answer with."""

from __future__ import annotations

from pydantic import BaseModel, Field, JsonValue

from crdt_board.coordination.effects import EffectName, EffectRecord, EffectState
from crdt_board.coordination.records import Name
from crdt_board.coordination.steps import StepRecord, StepState
from crdt_board_server.api.answers import AgentName, Body


class BoardEffect(BaseModel):
    """Something that is done outside at most once; in doubt when nobody knows whether it took place."""

    effect: str
    key: str
    state: EffectState
    agent: str = Field(description="Who ran it.")
    since_ms: int
    reason: str = Field(description="Why it is in doubt.")
    result: JsonValue
    done_ms: int
    resolved_by: str | None = Field(description="Who said that it took place, when its agent did not.")

    @classmethod
    def of(cls, record: EffectRecord) -> BoardEffect:
        shown = record.model_dump(include=set(cls.model_fields))
        return cls(effect=record.effect, key=record.effect_key, **shown)


class EffectPage(BaseModel):
    """The effects of a board, in the order of their names."""

    effects: list[BoardEffect]


class ResolutionRequest(Body):
    """What somebody has found who looked outside: the effect took place, with this result, or it did not."""

    effect: EffectName = Field(examples=["open-ticket"])
    key: Name = Field(examples=["order-7"])
    took_place: bool
    result: JsonValue = None
    agent: AgentName = "api"


class Resolution(BaseModel):
    """The effect as it is from now on; null when it did not take place, and may run again."""

    effect: BoardEffect | None


class BoardStep(BaseModel):
    """A function that runs once on a board; open when it has begun, and nobody runs it."""

    step: str
    state: StepState
    agent: str = Field(description="Who runs it, or ran it last.")
    begun_at: int = Field(description="The newest version when it was begun first.")
    begun_ms: int
    runs: int
    version: int = Field(description="The version that it made; 0 when it is not done.")
    output: JsonValue

    @classmethod
    def of(cls, record: StepRecord) -> BoardStep:
        return cls(step=record.name, **record.model_dump(include=set(cls.model_fields)))


class StepPage(BaseModel):
    """The steps of a board, in the order in which they were begun."""

    steps: list[BoardStep]
