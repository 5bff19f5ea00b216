"""`BoardModel`: what a user declares, and how each declared field is resolved to a merge policy.

A declaration that cannot be merged fails when its class is defined. Knows nothing of documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict, JsonValue, PrivateAttr

from crdt_board.annotations import origin_of
from crdt_board.errors import ModelError
from crdt_board.fields import CONTAINERS, FieldSpec, resolve_field
from crdt_board.layout import FieldLayout, Layout
from crdt_board.merge_types import Counter, Text
from crdt_board.migrations import migrations_of

__all__ = ["BoardModel", "Counter", "FieldSpec", "Text", "WireBase", "fields_of"]

# Given at run time only: for type checkers the class is not frozen, because the same class also describes
# ``board.state``, whose attributes are assigned to.
_FROZEN: ConfigDict = {"frozen": True}


class WireBase:
    """Where a model comes from: ``state`` is what a snapshot was made from, ``item`` the id of an item of a list.

    Equal to any other, so that it does not take part in ``==``.
    """

    __slots__ = ("item", "state")

    def __init__(self, state: dict[str, JsonValue] | None = None, item: str | None = None) -> None:
        self.state = state
        self.item = item

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WireBase)

    __hash__ = None  # type: ignore[assignment]  # as for any type with __eq__ and without a hash of its own


class BoardModel(BaseModel):
    """Base of what a board holds. Instances are frozen snapshots; ``board.state`` is the live counterpart.

    Values are validated by pydantic's rules for Python values (``"5"`` becomes 5 in an int field) unless
    ``model_config`` says ``strict``. Containers, `Text` and `Counter` need no default: they start empty.
    """

    model_config = ConfigDict(extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", **_FROZEN)

    _board_base: WireBase = PrivateAttr(default_factory=WireBase)

    if TYPE_CHECKING:
        __board_fields__: ClassVar[dict[str, FieldSpec]]
        __board_layout__: ClassVar[Layout]
        __board_migrations__: ClassVar[dict[int, str]]

    @classmethod
    def board_layout(cls) -> Layout:
        """The layout that crosses the wire and is stored with the board."""
        fields_of(cls)
        return cls.__board_layout__

    @classmethod
    def board_migrations(cls) -> tuple[int, ...]:
        """The numbers of the schemas that this model has migrations from, ascending."""
        fields_of(cls)
        return tuple(cls.__board_migrations__)

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        missing = [
            info
            for info in cls.model_fields.values()
            if info.is_required() and origin_of(info.annotation) in CONTAINERS
        ]
        for info in missing:
            info.default_factory = origin_of(info.annotation)
        if missing:
            cls.model_rebuild(force=True)
        cls._refuse_hooks()
        cls.__board_migrations__ = migrations_of(cls)
        cls.__board_fields__ = {name: resolve_field(cls, name, info) for name, info in cls.model_fields.items()}
        cls.__board_layout__ = Layout(
            title=cls.__name__,
            fields=tuple(_layout_of(field) for field in cls.__board_fields__.values()),
        )

    @classmethod
    def _refuse_hooks(cls) -> None:
        decorators = cls.__pydantic_decorators__
        for name in {**decorators.validators, **decorators.field_validators, **decorators.field_serializers}:
            reason = "validators and serializers of fields see whole values, and edits are checked piece by piece"
            instead = "write them into the annotation, as in Annotated[str, AfterValidator(check)]"
            raise ModelError(f"{cls.__name__}.{name}: {reason}; {instead}", field=name, reason=reason, instead=instead)
        for name, validator in decorators.model_validators.items():
            if validator.info.mode != "after":
                reason = (
                    f"mode={validator.info.mode!r} sees input before it is checked, and edits are made piece by piece"
                )
                instead = 'write mode="after", which is checked on what the edits of all agents have merged to'
                raise ModelError(
                    f"{cls.__name__}.{name}: {reason}; {instead}", field=name, reason=reason, instead=instead
                )


def _layout_of(field: FieldSpec) -> FieldLayout:
    return FieldLayout(
        name=field.name,
        kind=field.kind,
        required=field.required,
        json_schema=field.json_schema(),
        fields=tuple(_layout_of(inner) for inner in field.inside.values()) if field.record else (),
        order=field.order,
        ttl_ms=field.ttl_ms,
    )


def fields_of(model: type[BoardModel]) -> dict[str, FieldSpec]:
    """The resolved fields of a model, in order of declaration.

    Raises:
        ModelError: the model is declared in a way that cannot be merged.
    """
    if "__board_fields__" not in model.__dict__:
        model.model_rebuild()  # it names classes that were defined after it
    assert "__board_fields__" in model.__dict__
    return model.__board_fields__
