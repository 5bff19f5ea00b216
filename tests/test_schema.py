"""What a model may declare, and what becomes of it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    create_model,
    field_validator,
)

from crdt_board.errors import ModelError
from crdt_board.policies import Candidates, Max, Min, Strict
from crdt_board.schema import BoardModel, Counter, Text, fields_of


class Status(Enum):
    OPEN = "open"
    DONE = "done"


class Source(BaseModel):
    model_config = ConfigDict(frozen=True)

    url: str
    seen: tuple[datetime, ...] = ()


class Loose(BaseModel):
    url: str


@dataclasses.dataclass
class LooseData:
    url: str


class Judged(BaseModel):
    model_config = ConfigDict(frozen=True)

    score: Annotated[int, Max()] = 0


class Ranked(BoardModel):
    score: Annotated[int, Max()] = 0


class Record(BoardModel):
    title: str = ""


class Migration(BoardModel):
    target_service: str = ""
    status: Literal["PENDING", "ANALYSED", "DONE"] = "PENDING"
    dependencies: set[str] = set()
    findings: dict[str, Source] = {}
    plan: list[str]
    draft: Text
    tokens_spent: Counter
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.0
    owner: UUID | None = None
    state: Status = Status.OPEN
    price: Decimal
    notes: dict[str, JsonValue] = Field(default_factory=dict, description="anything")


def test_fields_are_resolved_in_order() -> None:
    """Each annotation chooses its merge policy; the layout lists them in order, with what is required."""
    layout = Migration.board_layout()
    assert [(field.name, field.kind) for field in layout.fields] == [
        ("target_service", "scalar"),
        ("status", "scalar"),
        ("dependencies", "set"),
        ("findings", "dict"),
        ("plan", "list"),
        ("draft", "text"),
        ("tokens_spent", "counter"),
        ("confidence", "scalar"),
        ("owner", "scalar"),
        ("state", "scalar"),
        ("price", "scalar"),
        ("notes", "dict"),
    ]
    assert [field.name for field in layout.fields if field.required] == ["price"]
    assert Migration.board_layout() is layout


def test_policies_choose_the_kind() -> None:
    """A policy beside the type decides; bounds stay, and Max and Min say in the layout how they compare."""

    class Job(BoardModel):
        best: Annotated[float, Field(ge=0, lt=1), Max()] = 0.0
        price: Annotated[Decimal, Min(), Field(gt=Decimal("0.5"))]
        name: Annotated[str, Max()] = Field(default="", max_length=8)
        verdict: Annotated[tuple[str, ...], Candidates()] = ()
        status: Annotated[Literal["OPEN", "DONE"], Strict()] = "OPEN"

    layout = Job.board_layout()
    assert [field.kind for field in layout.fields] == ["max", "min", "max", "candidates", "strict"]
    assert [field.order and field.order.model_dump(exclude_defaults=True) for field in layout.fields] == [
        {"type": "number", "ge": 0, "lt": 1},
        {"type": "decimal", "gt": "0.5"},
        {"type": "text", "max_length": 8},
        None,
        None,
    ]
    assert Job(price=Decimal(3)).status == "OPEN"
    with pytest.raises(ValidationError):
        Job(price=Decimal("0.5"))


def test_times_are_compared_in_one_form() -> None:
    """A model that writes times as numbers cannot have them compared."""
    config = ConfigDict(ser_json_timedelta="float")
    base = type("Base", (BoardModel,), {"model_config": config, "__module__": __name__})
    with pytest.raises(ModelError, match="ISO 8601"):
        create_model("Wrong", __base__=base, longest=(Annotated[timedelta, Max()], ...))


def test_containers_start_empty() -> None:
    """Containers, Text and Counter need no default."""
    made = Migration(price=Decimal(1))
    assert (made.plan, made.draft, made.tokens_spent, made.dependencies) == ([], "", 0, set())
    assert isinstance(made.draft, Text)
    assert isinstance(made.tokens_spent, Counter)


def test_snapshots_are_frozen_and_closed() -> None:
    """A model instance cannot be assigned to, and takes no unknown fields."""
    made = Migration(price=Decimal(1))
    with pytest.raises(ValidationError):
        made.status = "DONE"
    with pytest.raises(ValidationError):
        Migration.model_validate({"price": 1, "colour": "red"})


def test_a_model_may_name_classes_that_follow_it() -> None:
    """A forward reference is resolved when the model is first used."""

    class Early(BoardModel):
        item: Later

    class Later(BaseModel):
        model_config = ConfigDict(frozen=True)

        number: int = 0

    Early.model_rebuild(_types_namespace={"Later": Later})
    assert fields_of(Early)["item"].kind == "scalar"


def test_a_subclass_has_the_fields_of_its_base() -> None:
    """Fields are inherited."""

    class More(Migration):
        extra: set[int]

    assert [*fields_of(Migration), "extra"] == list(fields_of(More))


WRONG: list[tuple[Any, Any, str]] = [
    (list, ..., "bare list"),
    (dict, {}, "bare dict"),
    (set, ..., "bare set"),
    (list[str], ["a"], "starts empty"),
    (Text, "draft", "starts empty"),
    (Counter, 1, "starts empty"),
    (set[int], {1}, "starts empty"),
    (Optional[list[str]], None, "union"),  # noqa: UP045
    (set[str] | None, None, "union"),
    (dict[str, int] | None, None, "union"),
    (Text | None, None, "union"),
    (Counter | None, None, "union"),
    (list[list[int]], ..., "would not reach the board"),
    (dict[str, dict[str, int]], ..., "would not reach the board"),
    (dict[int, str], ..., "keys of a dict must be str"),
    (set[tuple[list[int], ...]], ..., "has no hash"),
    (set[JsonValue], ..., "has no hash"),
    (list[tuple[Record, ...]], ..., "records .* only as the values of a dict or the items of a list"),
    (list[Record | None], ..., "records"),
    (list[Record], [Record()], "starts empty"),
    (list[Ranked], ..., "Ranked.score is a max, which only a board itself can have"),
    (Record, ..., "records"),
    (Record | None, None, "records"),
    (dict[str, Record | None], ..., "records"),
    (dict[str, Annotated[Record, Field(title="x")]], ..., "records"),
    (set[Record], ..., "records"),
    (tuple[Record, ...], (), "records"),
    (dict[str, tuple[Record, ...]], ..., "records"),
    (dict[int, Record], ..., "keys of a dict must be str"),
    (dict[str, Record], {"a": Record()}, "starts empty"),
    (Annotated[dict[str, Record], AfterValidator(dict)], ..., "only its size"),
    (list[Text], ..., "field of its own"),
    (tuple[Counter, ...], (), "field of its own"),
    (dict[str, Loose], ..., "frozen=True"),
    (LooseData, ..., "frozen=True"),
    (tuple[Loose, ...], (), "frozen=True"),
    (Annotated[list[str], AfterValidator(sorted)], ..., "only its size"),
    (Annotated[Text, Field(pattern="a+")], ..., "only its size"),
    (Sequence[str], (), "how writes combine|tuple"),
    (collections.OrderedDict[str, int], ..., "come back as a dict"),
    (collections.Counter[str], ..., "come back as a dict"),
    (UUID, Field(default_factory=uuid4), "another one in each replica"),
    (int, "5", "the default"),
    (float, float("nan"), "the default"),
    (Annotated[int, Field(ge=0)], -1, "the default"),
    (str, Field(default="", alias="other"), "alias"),
    (Annotated[int, Max], 0, "without its parentheses"),
    (Annotated[int, Max(), Min()], 0, "Max and Min cannot both decide"),
    (Annotated[int, Max()] | None, None, "inside the type"),
    (list[Annotated[int, Max()]], ..., "inside the type"),
    (dict[str, Annotated[str, Candidates()]], ..., "inside the type"),
    (tuple[Annotated[str, Strict()], ...], (), "inside the type"),
    (Judged, ..., "inside the type"),
    (dict[str, Ranked], ..., "Ranked.score is a max, which only a board itself can have"),
    (Annotated[list[int], Strict()], ..., "Strict replaces a value whole"),
    (Annotated[set[int], Candidates()], ..., "Candidates replaces a value whole"),
    (Annotated[dict[str, int], Max()], ..., "always the greater"),
    (Annotated[Text, Strict()], ..., "Text merges by itself"),
    (Annotated[Counter, Max()], ..., "Counter merges by itself"),
    (Annotated[Status, Max()], Status.OPEN, "always the greater"),
    (Annotated[Literal["LOW", "HIGH"], Max()], "LOW", "always the greater"),
    (Annotated[float | None, Min()], None, "always the greater"),
    (Annotated[bytes, Min()], b"", "always the greater"),
    (Annotated[UUID, Max()], ..., "always the greater"),
    (Annotated[str, Field(pattern="a+"), Max()], "a", "without the model"),
    (Annotated[int, AfterValidator(abs), Max()], 1, "without the model"),
    (Annotated[datetime, Field(ge=datetime(2024, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo"))), Max()], ..., "the bound ge"),
    (Annotated[int, Field(ge=5), Max()], 1, "the default"),
    (Annotated[int, Max()], "5", "the default"),
    (Annotated[UUID, Strict()], Field(default_factory=uuid4), "another one in each replica"),
    (Annotated[Loose, Candidates()], ..., "frozen=True"),
]


@pytest.mark.parametrize(("annotation", "default", "reason"), WRONG, ids=lambda each: str(each)[:50])
def test_wrong_declarations_fail_at_class_definition(annotation: Any, default: Any, reason: str) -> None:
    """What cannot be merged raises ModelError with class, field, reason and what to write instead."""
    with pytest.raises(ModelError, match=reason) as caught:
        create_model("Wrong", __base__=BoardModel, thing=(annotation, default))
    assert str(caught.value).startswith("Wrong.thing: ")
    assert caught.value.field == "thing"
    assert caught.value.instead.startswith("write")


def test_records_are_resolved_with_their_fields() -> None:
    """A dict of BoardModels is a field of records; its layout holds the fields of each, to any depth."""

    class Inner(BoardModel):
        name: str
        log: Text

    class Outer(BoardModel):
        title: str = ""
        parts: dict[str, Inner]

    class Board(BoardModel):
        outers: dict[str, Outer] = {}

    (outers,) = Board.board_layout().fields
    assert (outers.kind, [field.name for field in outers.fields]) == ("records", ["title", "parts"])
    parts = outers.by_name["parts"]
    assert [(field.name, field.kind, field.required) for field in parts.fields] == [
        ("name", "scalar", True),
        ("log", "text", False),
    ]
    assert Board().outers == {}


def test_records_that_hold_themselves_are_refused() -> None:
    """A record cannot hold records of its own class, not by way of another class either."""
    with pytest.raises(ModelError, match="without end"):

        class Node(BoardModel):
            children: dict[str, Node]

    class Left(BoardModel):
        rights: dict[str, Right]

    with pytest.raises(ModelError, match="Left names Right, which is not defined yet"):

        class Right(BoardModel):
            lefts: dict[str, Left]


def test_records_are_nested_as_deep_as_updates_may_be() -> None:
    """A model whose records are nested deeper than an update may be is refused, the deepest that fits is not."""
    made: type[BoardModel] = Record
    for _ in range(31):
        made = create_model("Level", __base__=BoardModel, inside=(dict[str, made], ...))  # type: ignore[valid-type]
    with pytest.raises(ModelError, match="levels deep"):
        create_model("Level", __base__=BoardModel, inside=(dict[str, made], ...))  # type: ignore[valid-type]


@pytest.mark.filterwarnings("ignore:Field name .* shadows")
def test_names_that_the_board_uses_are_refused() -> None:
    """A container called state, a field called board_layout, and names that start with $ collide with the board."""
    for name, annotation in (("state", list[str]), ("$x", int), ("board_layout", int)):
        with pytest.raises(ModelError, match="name"):
            create_model("Wrong", __base__=BoardModel, **{name: (annotation, ...)})


def test_validators_of_fields_are_refused() -> None:
    """A field validator sees whole values, which edits do not have; the error says where to write it."""
    with pytest.raises(ModelError, match="AfterValidator"):

        class Wrong(BoardModel):
            name: str = ""

            @field_validator("name")
            @classmethod
            def check(cls, value: str) -> str:
                return value


def test_read_values_refuse_live_methods() -> None:
    """Text and Counter that were read are str and int; their live methods say where they work."""
    text, counter = Text("ab"), Counter(3)
    for call in (
        lambda: text.insert(0, "x"),
        lambda: text.append("x"),
        lambda: text.delete(0, 1),
        lambda: text.replace("a", "b"),
        lambda: text.apply("x"),
    ):
        with pytest.raises(TypeError, match=r"board\.state"):
            call()
    text += "c"
    counter += 2
    counter -= 1
    assert (text, type(text), counter, type(counter)) == ("abc", Text, 4, Counter)
    assert text.splitlines() == ["abc"]


def test_equal_models_have_equal_fingerprints() -> None:
    """The fingerprint of a layout depends on the fields, not on the class's name or their order."""
    one = create_model("One", __base__=BoardModel, a=(int, 0), b=(list[str], []))
    two = create_model("Two", __base__=BoardModel, b=(list[str], ...), a=(int, 0))
    other = create_model("One", __base__=BoardModel, a=(str, ""), b=(list[str], []))
    assert one.board_layout().fingerprint == two.board_layout().fingerprint != other.board_layout().fingerprint
