"""What a board looks like to an agent: through its model, or without one as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from pydantic import JsonValue

from crdt_board.board_link import StoredState
from crdt_board.checkpoints import Clear, PatchOp
from crdt_board.errors import BadRequest, InvalidValue, SchemaMismatch
from crdt_board.joining import migrated
from crdt_board.live import LiveState, Snapshots, snapshot_from_wire
from crdt_board.live.editor import Editor
from crdt_board.live.plain import PlainState, plain_snapshot, plain_state
from crdt_board.patching import build_patch, build_plain_patch
from crdt_board.paths import escape_path
from crdt_board.replica import Replica
from crdt_board.schema import BoardModel, fields_of
from crdt_board.wire_values import check_text, child_path, invalid_value

PlainModel = dict[str, Any]
"""What a board without a model holds, as far as type checkers are concerned."""

ModelT = TypeVar("ModelT", bound=BoardModel)
Patch = Mapping[str, Any] | BoardModel
Operations = tuple[list[PatchOp], dict[str, JsonValue]]


class View(Protocol):
    """How one agent reads and writes a replica."""

    def live(self, editor: Editor) -> Any:
        """What ``board.state`` is."""
        ...

    def snapshot(self) -> Any: ...

    def stored(self, stored: StoredState) -> Any:
        """What the state of a checkpoint is to this agent."""
        ...

    def patch(self, patch: Patch) -> Operations:
        """The operations that bring the replica to what ``patch`` says, and ``patch`` in wire form."""
        ...

    def restoration(self, past: Any) -> Operations:
        """The same for a whole state that `stored` gave."""
        ...

    def field(self, name: object) -> str:
        """The name of a field as it stands in touched paths.

        Raises:
            BadRequest: there is none of this name.
        """
        ...


class ModelView(Generic[ModelT]):
    """Through a model."""

    def __init__(self, model: type[ModelT], replica: Replica) -> None:
        self._model = model
        self._replica = replica
        self._snapshots = Snapshots(model)

    def live(self, editor: Editor) -> LiveState:
        return LiveState(self._model, editor)

    def snapshot(self) -> ModelT:
        return self._snapshots.of(self._replica.document)

    def stored(self, stored: StoredState) -> ModelT:
        model, newest, state = self._model, self._replica.schema_version, stored.state
        schema_version = stored.checkpoint.schema_version
        starts = [n for n in model.board_migrations() if schema_version <= n <= stored.schema_version]
        if starts and schema_version:
            state = migrated(state, starts[0], model, beside=state.keys())
        elif not schema_version:
            state = {name: self._as_stored(name, value) for name, value in state.items()}
        try:
            return snapshot_from_wire(state, model)
        except InvalidValue as error:
            if schema_version == newest:
                raise
            raise SchemaMismatch(
                f"this version was made under schema {schema_version} of the board, and {model.__name__} uses schema "
                f"{newest}: {error}",
                fields=[str(error)],
                board_schema=schema_version,
                model_schema=newest,
            ) from error

    def _as_stored(self, name: str, value: JsonValue) -> JsonValue:
        """A value that was written without any model, as the wire form of its field."""
        spec = fields_of(self._model).get(name)
        return [{"value": value, "agent": "", "when_ms": 0}] if spec and spec.kind == "candidates" else value

    def patch(self, patch: Patch) -> Operations:
        return build_patch(self._replica.document, self._model, patch)

    def restoration(self, past: ModelT) -> Operations:
        return self.patch({name: getattr(past, name) for name in fields_of(self._model)})

    def field(self, name: object) -> str:
        known = self._replica.document.kinds
        if not isinstance(name, str) or name not in known:
            raise BadRequest(f"{self._model.__name__} has no field {name!r}; it has {', '.join(sorted(known))}")
        return name


class PlainView:
    """Without a model: every key is a field."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def live(self, editor: Editor) -> PlainState:
        return PlainState(editor)

    def snapshot(self) -> dict[str, JsonValue]:
        return plain_snapshot(self._replica.document)

    def stored(self, stored: StoredState) -> dict[str, JsonValue]:
        if not stored.checkpoint.schema_version:
            return stored.state
        return plain_state(stored.state, self._replica.document)

    def patch(self, patch: Patch) -> Operations:
        if isinstance(patch, BoardModel):
            raise invalid_value("patch", "maps keys to values on a board that was opened without a model")
        return build_plain_patch(self._replica.document, patch)

    def restoration(self, past: dict[str, JsonValue]) -> Operations:
        operations, wire = self.patch(past)
        gone = [Clear(field=child_path("", name)) for name in self.snapshot() if name not in past]
        return [*operations, *gone], wire

    def field(self, name: object) -> str:
        return escape_path(check_text(name, "reads"))
