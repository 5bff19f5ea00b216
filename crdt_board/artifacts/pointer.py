"""`Artifact`: the pointer that a board keeps of content which is stored outside of it. Pure; knows no store."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from crdt_board.errors import BadRequest

SCHEME = "artifact:sha256:"
OCTETS = "application/octet-stream"
MEDIA_TYPE_CHARS_MAX = 200

_TOKEN = r"[A-Za-z0-9!#$&^_.+-]+"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(; ?{_TOKEN}={_TOKEN})*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Artifact(BaseModel):
    """Content outside the document: its name, which is its hash, its size in bytes and its media type.

    A field may be one (``report: Artifact | None = None``), and so may what a list, set or dict holds. Made by
    ``board.artifacts.put``; ``str()`` of it is the pointer alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pointer: Annotated[str, Field(pattern=r"^artifact:sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0, le=2**53 - 1)]
    media_type: Annotated[str, Field(max_length=MEDIA_TYPE_CHARS_MAX, pattern=rf"^{_MEDIA_TYPE.pattern}$")] = OCTETS

    def __str__(self) -> str:
        return self.pointer

    @property
    def sha256(self) -> str:
        """The hash of the content, in 64 lower-case hex digits."""
        return self.pointer.removeprefix(SCHEME)

    @model_validator(mode="before")
    @classmethod
    def _is_no_content(cls, given: Any) -> Any:
        if isinstance(given, str | bytes | bytearray | memoryview):
            raise PydanticCustomError(
                "artifact_content",
                "is a pointer with size and type: store the content first, and write what "
                "`await board.artifacts.put(content)` returns",
            )
        return given


def pointer_of(digest: str) -> str:
    return f"{SCHEME}{digest}"


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def check_digest(digest: object) -> str:
    """Return ``digest`` when it is the name of an artifact.

    Raises:
        BadRequest: it is not 64 lower-case hex digits.
    """
    if isinstance(digest, str) and is_digest(digest):
        return digest
    raise BadRequest(f"{str(digest)[:80]!r} is not the name of an artifact: that is 64 of the digits 0-9 a-f")


def digest_of(ref: object) -> str:
    """The hash that a pointer names, given as `Artifact` or as text.

    Raises:
        BadRequest: ``ref`` is neither.
    """
    text = ref.pointer if isinstance(ref, Artifact) else ref
    if isinstance(text, str) and text.startswith(SCHEME) and _DIGEST.fullmatch(text, len(SCHEME)):
        return text.removeprefix(SCHEME)
    raise BadRequest(f"{str(ref)[:120]!r} points to no artifact: pointers are {SCHEME} and 64 of the digits 0-9 a-f")


def check_media_type(media_type: object) -> str:
    """Return ``media_type`` when it is one, like ``text/plain; charset=utf-8``.

    Raises:
        BadRequest: it is not, or it is too long.
    """
    if isinstance(media_type, str) and len(media_type) <= MEDIA_TYPE_CHARS_MAX and _MEDIA_TYPE.fullmatch(media_type):
        return media_type
    raise BadRequest(f"{str(media_type)[:80]!r} is no media type: write it like text/plain or image/png")
