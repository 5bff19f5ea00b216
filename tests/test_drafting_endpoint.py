"""The model client of the drafting example, against an endpoint on a real socket."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from examples.drafting.endpoint import Endpoint
from examples.drafting.model import ModelFailed, Outline, Remark, Verdict
from support.fake_endpoint import STREAM, Behaviour, event, fake_endpoint, raw, streaming

KEY = "sk-secret-1234"


async def written(behaviour: Behaviour, *, timeout: float = 10.0) -> str:
    async with fake_endpoint(behaviour) as fake:
        model = Endpoint("small", base_url=fake.base_url, api_key=KEY, timeout=timeout)
        return "".join([token async for token in model.write("SQLite", "Origins", "Who made it.")])


async def test_a_request_names_the_model_and_carries_the_key_and_the_prompt() -> None:
    """The endpoint gets a streamed chat completion to make, with the key in its header."""
    async with fake_endpoint(streaming("It ", "began.")) as fake:
        model = Endpoint("small", base_url=fake.base_url + "/", api_key=KEY)
        assert [token async for token in model.write("SQLite", "Origins", "Who made it.")] == ["It ", "began."]
    (first, headers, body), *more = fake.requests
    assert not more
    assert first == "POST /v1/chat/completions HTTP/1.1"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["stream"]) == ("small", True)
    assert all(part in body["messages"][0]["content"] for part in ("SQLite", "Origins", "Who made it."))


async def test_no_key_no_header() -> None:
    """An endpoint without keys gets no header for one."""
    async with fake_endpoint(streaming("yes")) as fake:
        assert await Endpoint("small", base_url=fake.base_url).propose("old", "why") == "yes"
    assert "authorization" not in fake.requests[0][1]


async def test_an_answer_may_be_cut_anywhere_on_its_way() -> None:
    """Tokens are the same however the bytes are cut into packets, also within a character and within a line."""
    content = STREAM + b": a comment\n\n" + event("Grüße, 世界 ") + event() + event("🎉") + b"data: [DONE]\n\n"
    assert await written(raw(*(content[index : index + 1] for index in range(len(content))))) == "Grüße, 世界 🎉"


@pytest.mark.parametrize("end", [event(finish="stop"), b"data: [DONE]\n\n"], ids=["finish_reason", "done"])
async def test_either_mark_ends_an_answer(end: bytes) -> None:
    """A stream is whole with a finish_reason, and with [DONE]."""
    assert await written(raw(STREAM + event("all") + end)) == "all"


async def hang(_prompt: str, writer: asyncio.StreamWriter) -> None:
    writer.write(STREAM + event("It "))
    await writer.drain()
    await asyncio.Event().wait()


_401 = json.dumps({"error": {"message": "Incorrect API key", "type": "auth"}}).encode()
FAILURES: dict[str, tuple[Behaviour, str]] = {
    "refused key": (
        raw(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: %d\r\n\r\n" % len(_401), _401),
        r"answered 401: Incorrect API key",
    ),
    "no JSON": (
        raw(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 12\r\n\r\n<h1>\nBad</h1"),
        r"answered 502: <h1> Bad</h1",
    ),
    "cut off": (raw(STREAM + event("It ")), r"stopped in the middle of an answer"),
    "no answer": (raw(b""), r"cannot be reached: Server disconnected"),
    "another stream": (raw(STREAM + b"data: hello\n\n"), r"does not stream chat completions"),
    "another JSON": (raw(STREAM + b"data: [1]\n\n"), r"does not stream chat completions"),
    "an error on the way": (
        raw(STREAM + event("It ") + b'data: {"error": {"message": "overloaded"}}\n\n'),
        r"failed: overloaded",
    ),
    "no end": (raw(STREAM + event("word " * 10_000) * 3 + event(finish="stop")), r"does not come to an end"),
}


@pytest.mark.parametrize(("behaviour", "told"), FAILURES.values(), ids=FAILURES)
async def test_what_goes_wrong_is_told_in_one_line(behaviour: Behaviour, told: str) -> None:
    """Each failure raises ModelFailed, which names the model and the endpoint, and never the key."""
    with pytest.raises(ModelFailed, match=told) as failed:
        await written(behaviour)
    assert "small at http://127.0.0.1:" in str(failed.value)
    assert "\n" not in str(failed.value)
    assert KEY not in str(failed.value)


async def test_silence_ends_in_a_timeout() -> None:
    """An endpoint that says nothing for the timeout is given up, and the message says how long."""
    with pytest.raises(ModelFailed, match=r"was silent for 0\.2 s"):
        await written(hang, timeout=0.2)


async def test_an_endpoint_that_is_not_there() -> None:
    """A closed port is named in the error."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ModelFailed, match=rf"127\.0\.0\.1:{port}/v1/chat/completions cannot be reached"):
        await Endpoint("small", base_url=f"http://127.0.0.1:{port}/v1").propose("old", "why")


async def test_values_are_found_in_prose_and_fences() -> None:
    """Models put words around the JSON that they were asked for."""
    fenced = 'Here you are:\n```json\n[{"title": "A", "brief": "b"}]\n```\nAnything else?'
    async with fake_endpoint(streaming(fenced)) as fake:
        model = Endpoint("small", base_url=fake.base_url)
        assert await model.plan("SQLite", 1) == [Outline(title="A", brief="b")]
        fake.behaviour = streaming('[{"quote": "It is [sic] 5.", "comment": "6"}]')
        assert await model.check("A", "It is [sic] 5.") == [Remark(quote="It is [sic] 5.", comment="6")]
        fake.behaviour = streaming('Yes. {"accepted": true, ', '"reason": "better"}')
        assert await model.judge("5", "6", "why") == Verdict(accepted=True, reason="better")


async def test_an_answer_without_values_is_asked_for_once_more() -> None:
    """A model that forgot the JSON is asked again; when it forgets it twice, that is told."""
    answers = iter(["I cannot say.", "[]"])

    async def answer(prompt: str, writer: asyncio.StreamWriter) -> None:
        await streaming(next(answers, "No."))(prompt, writer)

    async with fake_endpoint(answer) as fake:
        model = Endpoint("small", base_url=fake.base_url)
        assert await model.check("A", "text") == []
        with pytest.raises(ModelFailed, match="did not answer with the JSON"):
            await model.check("A", "text")
    assert len(fake.requests) == 4


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"OPENAI_MODEL": "m"}, "set OPENAI_API_KEY"),
        ({"OPENAI_MODEL": "m", "OPENAI_BASE_URL": "localhost:8000/v1"}, "must be like https://host/v1"),
        ({"OPENAI_MODEL": "m", "OPENAI_BASE_URL": "http://"}, "must be like https://host/v1"),
        ({"OPENAI_MODEL": "m", "OPENAI_BASE_URL": "http://h:x/v1"}, "is no URL"),
        ({"OPENAI_MODEL": "m", "OPENAI_API_KEY": "sk\nsecret"}, "OPENAI_API_KEY holds"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(environment: dict[str, str], told: str) -> None:
    """What is missing or malformed is named before anything is asked, without the key."""
    with pytest.raises(ModelFailed, match=told) as failed:
        Endpoint.configured(environment)
    assert "secret" not in str(failed.value)


def test_without_a_model_nothing_is_configured() -> None:
    """A key alone, which many have in their environment, does not have a model asked."""
    assert Endpoint.configured({"OPENAI_API_KEY": KEY}) is None


def test_a_password_in_the_url_is_not_shown() -> None:
    """What the URL holds besides the place is left out of messages."""
    model = Endpoint.configured({"OPENAI_MODEL": "m", "OPENAI_BASE_URL": "https://me:pass@host/v1?key=k"})
    assert str(model) == "m at https://host/v1/chat/completions"
