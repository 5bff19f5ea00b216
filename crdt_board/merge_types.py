"""`Text` and `Counter`: field types whose concurrent edits are all kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

if TYPE_CHECKING:
    from crdt_board.live.anchors import Anchor
    from crdt_board.live.streams import EditStream


def _not_live(what: str) -> NoReturn:
    raise TypeError(
        f"{what} works on board.state only: this is a value that was read. Convert it with str() for str's own methods."
    )


class Text(str):
    """A text that several agents edit at once; every character of every agent is kept.

    A value that was read (from a snapshot) is a ``str``. The editing methods below are those of ``board.state.<field>``
    and raise TypeError elsewhere. Positions are code points and may be negative as in slices.
    """

    __slots__ = ()

    def insert(self, index: int, text: str) -> None:
        """Insert ``text`` before ``index``; beyond either end it goes to that end."""
        _not_live("insert()")

    def append(self, text: str) -> None:
        """Insert ``text`` at the end."""
        _not_live("append()")

    def delete(self, start: int, stop: int) -> None:
        """Remove the slice ``[start:stop]``."""
        _not_live("delete()")

    # The live method edits in place and returns nothing, where str returns a changed copy.
    def replace(self, old: str, new: str, count: int | None = None) -> None:  # type: ignore[override]
        """Replace the quoted ``old`` by ``new``: its only occurrence, or the first ``count`` ones.

        Raises:
            InvalidValue: ``old`` is not there (``nearest`` holds the most similar passage), is there more than once
                and no ``count`` is given, or less often than ``count``.
        """
        _not_live("replace()")

    def apply(self, new_text: str) -> None:
        """Make the text equal to ``new_text`` with the smallest edit, so that others' edits elsewhere survive."""
        _not_live("apply()")

    def anchor(self, at: int | str, stop: int | None = None, *, side: Literal["after", "before"] = "after") -> Anchor:
        """A mark that follows its text: the quoted stretch ``at``, the slice ``[at:stop]``, or the place ``at``.

        ``side`` says beside which character a place stays: the one after it, or the one before it.

        Raises:
            InvalidValue: the quote is not there once (as `replace`), or the slice is empty.
        """
        _not_live("anchor()")

    def anchor_from(self, written: str) -> Anchor:
        """The anchor that ``str(anchor)`` wrote, here or on another replica.

        Raises:
            InvalidValue: it is none, is in another text, or at characters that have not arrived here.
        """
        _not_live("anchor_from()")

    def edit_stream(self, index: int | None = None) -> EditStream:
        """Write piece by piece, at ``index`` or at the end, while others edit.

        ``async with board.state.draft.edit_stream() as stream: stream.write(token)``. What was written when the block
        ends stays, also when it ends by an exception or is cancelled.
        """
        _not_live("edit_stream()")

    def __iadd__(self, text: str) -> Text:
        return Text(str(self) + text)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())


class Counter(int):
    """A number that several agents add to at once; no increment is lost.

    A value that was read (from a snapshot) is an ``int``. ``board.state.<field> += 5`` and ``-= 5`` are the only
    ways to change a counter: assigning a number raises TypeError, because it would take back what others added.
    """

    __slots__ = ()

    def __iadd__(self, amount: int) -> Counter:
        return Counter(int(self) + amount)

    def __isub__(self, amount: int) -> Counter:
        return Counter(int(self) - amount)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(cls, core_schema.int_schema())
