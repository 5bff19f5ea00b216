"""`Text` and `Counter`: field types whose concurrent edits are all kept."""

from __future__ import annotations

from typing import Any, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


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
