"""Chat Completions over HTTP."""

import asyncio
from typing import Any

import msgspec
import pytest

from treadle.config import ServerSection, ToolsSection
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.server.app import App
from treadle.server.server_state import MODEL_CHARS_MAX
from unit.server.conftest import OpenApp, scripted
from unit.server.held import HeldModel
from unit.server.visit import BOUND_S, JSON_TYPE, LOCAL, Visit

PATH = "/v1/chat/completions"
WEATHER = ScriptTurn(calls=(ReplyCall(name="get_weather", args={"city": "Paris"}),))


def _ask(app: App, path: str = PATH, **fields: Any) -> Visit:
    body = {"model": "demo", "messages": [{"role": "user", "content": "What is the weather in Paris?"}], **fields}
    return Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


def _data(visit: Visit) -> list[Any]:
    frames = [line.removeprefix("data: ") for line in visit.body.decode().split("\n\n") if line]
    assert frames[-1] == "[DONE]"
    return [msgspec.json.decode(frame) for frame in frames[:-1]]


@pytest.mark.parametrize("path", [PATH, "/chat/completions"])
async def test_a_server_tool_runs_within_one_answer(app: App, path: str) -> None:
    """The client sees the answer, the tool stays on the server; the /v1 may be left out."""
    visit = await _ask(app, path).run()
    answer = visit.json()
    assert (visit.status, visit.headers["x-treadle-run"][:4]) == (200, "run_")
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert "Paris" in answer["choices"][0]["message"]["content"]


async def test_a_stream_ends_with_done_and_says_the_same(app: App) -> None:
    """The pieces of the stream are the whole answer."""
    whole = (await _ask(app).run()).json()["choices"][0]["message"]["content"]
    visit = await _ask(app, stream=True).run()
    assert visit.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in _data(visit)) == whole


async def test_the_name_of_a_model_has_a_bound(app: App) -> None:
    """Nothing is kept under a name that long; the error names the field."""
    visit = await _ask(app, model="m" * (MODEL_CHARS_MAX + 1)).run()
    assert (visit.status, visit.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize("stream", [True, False])
async def test_an_upstream_that_refuses_is_an_http_error(open_app: OpenApp, stream: bool) -> None:
    """The status, the message and the time to come back are the upstream's."""
    refusal = ScriptTurn(faults=Faults(status=429, message="Slow down", retry_after_s=7))
    async with open_app(scripted(refusal)) as app:
        visit = await _ask(app, stream=stream).run()
    assert (visit.status, visit.headers["retry-after"]) == (429, "7")
    assert "x-should-retry" not in visit.headers
    assert visit.json()["error"]["type"] == "rate_limit_error"


async def test_our_own_wrong_key_does_not_look_like_the_clients(open_app: OpenApp) -> None:
    """A 401 of the upstream is a 502 here, and not worth a retry."""
    async with open_app(scripted(ScriptTurn(faults=Faults(status=401)))) as app:
        visit = await _ask(app, stream=True).run()
    assert (visit.status, visit.headers["x-should-retry"]) == (502, "false")


async def test_a_failure_after_a_tool_must_not_be_retried(open_app: OpenApp) -> None:
    """The tool has run: the same request again would run it twice."""
    model = scripted(WEATHER, ScriptTurn(faults=Faults(status=503)))
    async with open_app(model, tools=ToolsSection(load=("treadle.tools.demo_tools",))) as app:
        visit = await _ask(app, stream=True).run()
    assert (visit.status, visit.headers["x-should-retry"]) == (503, "false")


async def test_an_upstream_that_breaks_off_is_told_in_the_stream(open_app: OpenApp) -> None:
    """What was said stands, then an error chunk, then the end."""
    broken = ScriptTurn(text="A long answer that will be cut in the middle.", faults=Faults(disconnect_after=400))
    async with open_app(scripted(broken)) as app:
        chunks = _data(await _ask(app, stream=True).run())
    assert "error" in chunks[-1]
    assert not any(choice["finish_reason"] for chunk in chunks[:-1] for choice in chunk["choices"])


async def test_a_limit_is_named_in_a_header(open_app: OpenApp) -> None:
    """The run still ends with an answer; the header says which limit it met."""
    rounds = [
        msgspec.structs.replace(WEATHER, calls=(ReplyCall(name="get_weather", args={"city": f"City {number}"}),))
        for number in range(8)
    ]
    last = ScriptTurn(text="That is all I could find.", usage=Usage(input_tokens=1, output_tokens=1))
    async with open_app(scripted(*rounds, last)) as app:
        visit = await _ask(app).run()
    assert (visit.status, visit.headers["x-treadle-limit"]) == (200, "max_iterations")
    assert visit.json()["choices"][0]["message"]["content"] == "That is all I could find."


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_stops_the_upstream(open_app: OpenApp, stream: bool) -> None:
    """The model's stream is closed and the run ends as cancelled."""
    model = HeldModel()
    async with open_app(model) as app:
        visit = _ask(app, stream=stream).begin()
        async with asyncio.timeout(BOUND_S):
            await model.asked.wait()
            visit.leave()
            await model.closed.wait()
        await visit.done()
        (run,) = (await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"]
    assert run["status"] == "cancelled"


async def test_a_run_cancelled_elsewhere_is_not_a_success(open_app: OpenApp) -> None:
    """Without a stream the answer is an error, since half a completion has no form of its own."""
    model = HeldModel()
    async with open_app(model) as app:
        visit = _ask(app).begin()
        async with asyncio.timeout(BOUND_S):
            await model.asked.wait()
        (run,) = (await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"]
        await Visit(app, "POST", f"/treadle/v1/runs/{run['id']}/cancel").run()
        await visit.done()
    assert (visit.status, visit.json()["error"]["code"]) == (499, "cancelled")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"null", 400),
        (b"\xff\xfe{}", 400),
        (b"[" * 100_000, 400),
        (b'{"model":"demo"}', 400),
        (b'{"model":"demo","messages":"x"}', 400),
        (b'{"model":"demo","messages":[{"role":"user","content":"x"}]} trailing', 400),
    ],
    ids=["empty", "open", "array", "null", "utf16", "deep", "no messages", "wrong type", "trailing"],
)
async def test_a_bad_body_is_a_clear_error(app: App, body: bytes, status: int) -> None:
    """No body, however broken, is anything but a 400 in the API's envelope."""
    visit = await Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, visit.json()["error"]["type"]) == (status, "invalid_request_error")


async def test_a_body_over_the_bound_is_refused(open_app: OpenApp) -> None:
    """The bound comes from the settings."""
    async with open_app(server=ServerSection(body_bytes_max=1024)) as app:
        visit = await Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE], body=[b"x" * 1000, b"x" * 1000]).run()
    assert (visit.status, visit.json()["error"]["code"]) == (413, "request_too_large")


async def test_a_large_body_is_answered(app: App) -> None:
    """A history over a megabyte takes the way through a thread and comes out the same."""
    text = "word " * 300_000
    messages = [{"role": "user", "content": text}, {"role": "user", "content": "What is the weather in Paris?"}]
    assert (await _ask(app, messages=messages).run()).status == 200


@pytest.mark.parametrize(("tool_status", "is_told"), [("text", True), ("off", False)])
async def test_server_tools_are_announced_where_that_is_configured(
    open_app: OpenApp, tool_status: Any, is_told: bool
) -> None:
    """As content, since Chat has no form for a call that the server runs."""
    async with open_app(tools=ToolsSection(tool_status=tool_status)) as app:
        content = (await _ask(app).run()).json()["choices"][0]["message"]["content"]
    assert ("Calling get_weather" in content) == is_told
