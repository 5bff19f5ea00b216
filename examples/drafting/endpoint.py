"""A model behind any endpoint that speaks OpenAI's chat completions, streamed: the hosted ones, or one of your own.

``OPENAI_MODEL`` names the model, ``OPENAI_BASE_URL`` the endpoint, ``OPENAI_API_KEY`` the key, where it needs one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Annotated, TypeVar

import httpx
from pydantic import Field, TypeAdapter, ValidationError

from .model import ModelFailed, Outline, Remark, Verdict

_OPENAI = "https://api.openai.com/v1"
_TOLD_CHARS_MAX = 300
_TRIES = 2
_ANSWER_CHARS_MAX = 100_000

_Plan = Annotated[list[Outline], Field(min_length=1)]
_Answer = TypeVar("_Answer")


class Endpoint:
    """``timeout`` is how long it may be silent, in seconds. Raises ModelFailed when it cannot work as configured."""

    def __init__(self, model: str, *, base_url: str = _OPENAI, api_key: str = "", timeout: float = 60.0) -> None:
        try:
            base = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise ModelFailed(f"OPENAI_BASE_URL is no URL: {error}") from None
        if base.scheme not in ("http", "https") or not base.host:
            raise ModelFailed("OPENAI_BASE_URL must be like https://host/v1")
        if not (api_key.isascii() and api_key.isprintable()):
            raise ModelFailed("OPENAI_API_KEY holds characters that no key has")
        self._model = model
        self._url = base.copy_with(path=f"{base.path.rstrip('/')}/chat/completions")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout

    @classmethod
    def configured(cls, environment: Mapping[str, str]) -> Endpoint | None:
        """What the environment names; None when it names no model. Raises ModelFailed."""
        name = environment.get("OPENAI_MODEL", "").strip()
        key = environment.get("OPENAI_API_KEY", "").strip()
        base_url = environment.get("OPENAI_BASE_URL", "").strip() or _OPENAI
        if not name:
            return None
        if base_url == _OPENAI and not key:
            raise ModelFailed(f"OPENAI_MODEL is {name}: set OPENAI_API_KEY too, or OPENAI_BASE_URL to your endpoint")
        return cls(name, base_url=base_url, api_key=key)

    def __str__(self) -> str:
        return f"{self._model} at {self._url.copy_with(userinfo=b'', query=None)}"

    async def plan(self, topic: str, sections: int) -> list[Outline]:
        return await self._values(
            _Plan,
            f"Plan a short article on: {topic}\nGive exactly {sections} sections with different titles, as a JSON "
            'array of objects {"title": ..., "brief": ...}; the brief tells a writer what belongs there.',
        )

    def write(self, topic: str, title: str, brief: str) -> AsyncGenerator[str, None]:
        return self._tokens(
            f"Write the section {title!r} of a short article on: {topic}\nWhat belongs there: {brief}\n"
            "One paragraph of up to 120 words, plain text, without a heading."
        )

    async def check(self, title: str, body: str) -> list[Remark]:
        return await self._values(
            list[Remark],
            f"Check the facts in this section {title!r} of an article:\n\n{body}\n\nFor at most three sentences that "
            'are wrong or doubtful give a JSON array of objects {"quote": ..., "comment": ...}; the quote is the '
            "whole sentence, copied exactly. Give [] if there are none.",
        )

    async def propose(self, quote: str, comment: str) -> str:
        text = await self._text(
            f"An article says:\n\n{quote}\n\nA fact checker remarks:\n\n{comment}\n\n"
            "Give a sentence to replace it, and nothing else."
        )
        return " ".join(text.split())

    async def judge(self, old: str, new: str, comment: str) -> Verdict:
        return await self._values(
            Verdict,
            f"You wrote:\n\n{old}\n\nA fact checker remarked:\n\n{comment}\n\nAn editor proposes instead:\n\n{new}\n\n"
            'Is the proposal better? Answer with a JSON object {"accepted": true or false, "reason": ...}.',
        )

    async def _values(self, kind: type[_Answer], prompt: str) -> _Answer:
        """What the JSON in the answer says; asked again when there is none."""
        problem = ""
        for _ in range(_TRIES):
            text = await self._text(prompt)
            try:
                return TypeAdapter(kind).validate_json(_json_in(text))
            except ValidationError as error:
                problem = str(error.errors(include_url=False)[0]["msg"])
        raise ModelFailed(f"{self} did not answer with the JSON that it was asked for: {problem}")

    async def _text(self, prompt: str) -> str:
        return "".join([token async for token in self._tokens(prompt)])

    async def _tokens(self, prompt: str) -> AsyncGenerator[str, None]:
        chars = 0
        request = {"model": self._model, "stream": True, "messages": [{"role": "user", "content": prompt}]}
        try:
            async with (
                httpx.AsyncClient(timeout=self._timeout, headers=self._headers) as client,
                client.stream("POST", self._url, json=request) as answer,
                aclosing(_data_of(answer)) as events,
            ):
                if not answer.is_success:
                    await answer.aread()
                    raise ModelFailed(f"{self} answered {answer.status_code}: {_told(answer.text)}")
                async for data in events:
                    if data == "[DONE]":
                        return
                    event = json.loads(data)
                    if event.get("error"):
                        raise ModelFailed(f"{self} failed: {_told(data)}")
                    for choice in event.get("choices", ()):
                        if text := (choice.get("delta") or {}).get("content"):
                            chars += len(text)
                            if chars > _ANSWER_CHARS_MAX:
                                raise ModelFailed(f"{self} does not come to an end")
                            yield text
                        if choice.get("finish_reason"):
                            return
        except httpx.TimeoutException:
            raise ModelFailed(f"{self} was silent for {self._timeout:g} s") from None
        except httpx.HTTPError as error:
            raise ModelFailed(f"{self} cannot be reached: {str(error) or type(error).__name__}") from None
        except (ValueError, AttributeError, TypeError) as error:
            raise ModelFailed(f"{self} does not stream chat completions: {error}") from None
        raise ModelFailed(f"{self} stopped in the middle of an answer")


async def _data_of(answer: httpx.Response) -> AsyncGenerator[str, None]:
    """What the events of a stream hold."""
    async for line in answer.aiter_lines():
        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
            yield data


def _told(text: str) -> str:
    """What an error says of itself, in one short line."""
    with suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["error"]["message"]
    return " ".join(str(text).split())[:_TOLD_CHARS_MAX]


def _json_in(text: str) -> str:
    """The JSON value in an answer that may have words or fences around it."""
    starts = [index for index in map(text.find, "[{") if index >= 0]
    return text[min(starts, default=0) : max(map(text.rfind, "]}")) + 1]
