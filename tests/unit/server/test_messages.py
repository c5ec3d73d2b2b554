"""Anthropic Messages over HTTP."""

from typing import Any

import msgspec
import pytest

from treadle.core.items import MessageItem, text_of
from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults
from treadle.server.app import App
from unit.server.conftest import OpenApp, scripted
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PATH = "/v1/messages"
TOOL: dict[str, Any] = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
LOST = {"error_code": "thread_not_found"}


def _ask(app: App, path: str = PATH, **fields: Any) -> Visit:
    body = {"model": "demo", "max_tokens": 100, "messages": [{"role": "user", "content": "What colour?"}], **fields}
    return Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=msgspec.json.encode(body))


@pytest.mark.parametrize("path", [PATH, "/messages", f"{PATH}?beta=true"])
async def test_a_message_is_answered(open_app: OpenApp, path: str) -> None:
    """With and without /v1 and with the betas' query; the id is one of Anthropic's kind."""
    async with open_app(scripted(ScriptTurn(text="Blue."))) as app:
        visit = await _ask(app, path).run()
    answer = visit.json()
    assert (visit.status, answer["type"], answer["role"], answer["stop_reason"]) == (
        200,
        "message",
        "assistant",
        "end_turn",
    )
    assert answer["content"] == [{"type": "text", "text": "Blue."}]
    assert answer["id"].startswith("msg_")
    assert visit.headers["request-id"] == visit.headers["x-request-id"]


async def test_a_stream_names_its_events_and_has_no_done_marker(open_app: OpenApp) -> None:
    """The SDKs drop frames without a name."""
    async with open_app(scripted(ScriptTurn(text="Blue."))) as app:
        visit = await _ask(app, stream=True).run()
    frames = [frame for frame in visit.body.decode().split("\n\n") if frame]
    names = [frame.partition("\n")[0].removeprefix("event: ") for frame in frames]
    assert (names[0], names[-1]) == ("message_start", "message_stop")
    assert b"[DONE]" not in visit.body


async def test_an_upstream_that_breaks_off_is_an_error_event(open_app: OpenApp) -> None:
    """The stream does not end as if it were whole."""
    cut = ScriptTurn(text="Blue as the sea.", faults=Faults(disconnect_after=400))
    async with open_app(scripted(cut)) as app:
        visit = await _ask(app, stream=True).run()
    assert visit.status == 200
    assert b"event: error" in visit.body
    assert b"message_stop" not in visit.body


async def test_a_thread_goes_on_with_what_it_began_with(open_app: OpenApp) -> None:
    """The second request says only what is new: system, tools and history are those of the first."""
    model = scripted(ScriptTurn(text="Blue."), ScriptTurn(text="As I said, blue."))
    async with open_app(model) as app:
        first = await _ask(app, thread={"type": "create"}, system="Be brief.", tools=[TOOL]).run()
        thread = {"type": "continue", "previous_message_id": first.json()["id"]}
        second = await _ask(app, thread=thread, messages=[{"role": "user", "content": "Again?"}]).run()
    assert second.json()["content"] == [{"type": "text", "text": "As I said, blue."}]
    plan = model.player.plans[1]
    said = [text_of(item.content) for item in plan.items if isinstance(item, MessageItem)]
    assert said == ["Be brief.", "What colour?", "Blue.", "Again?"]
    assert [tool.name for tool in plan.tools] == ["look"]


@pytest.mark.parametrize("path", [PATH, f"{PATH}/count_tokens"])
async def test_a_lost_thread_has_the_code_that_the_sdk_knows(app: App, path: str) -> None:
    """On it the SDK sends the whole conversation again; no other 404 looks like it."""
    visit = await _ask(app, path, thread={"type": "continue", "previous_message_id": "msg_none"}).run()
    assert (visit.status, visit.json()["error"]["type"], visit.json()["error"]["details"]) == (
        404,
        "not_found_error",
        LOST,
    )


async def test_tokens_are_counted_without_asking_the_model(app: App) -> None:
    """What only a request to generate must have may be left out; a thread is counted with its history."""
    body = msgspec.json.encode({"model": "demo", "messages": [{"role": "user", "content": "x" * 40}]})
    visit = await Visit(app, "POST", f"{PATH}/count_tokens", headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, visit.headers["x-treadle-estimate"], visit.json()) == (200, "true", {"input_tokens": 14})
    first = await _ask(app, thread={"type": "create"}, system="y" * 400).run()
    thread = {"type": "continue", "previous_message_id": first.json()["id"]}
    counted = await _ask(app, f"{PATH}/count_tokens", thread=thread).run()
    assert counted.json()["input_tokens"] > 100


async def test_the_probe_of_claude_code_is_answered(app: App) -> None:
    """It looks before it asks."""
    visit = await Visit(app, "HEAD", "/api/hello").run()
    assert (visit.status, visit.body) == (200, b"")


async def _options_for(open_app: OpenApp, *headers: tuple[str, str]) -> Any:
    """Return the options that the model is asked with."""
    model = scripted(ScriptTurn(text="Blue."))
    body = msgspec.json.encode({"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
    async with open_app(model) as app:
        visit = await Visit(app, "POST", PATH, headers=[LOCAL, JSON_TYPE, *headers], body=body).run()
    assert visit.status == 200
    return model.player.plans[0].options


async def test_version_and_betas_of_the_client_go_along(open_app: OpenApp) -> None:
    """They say beside the body how it is to be read."""
    headers = (("anthropic-version", "2023-06-01"), ("anthropic-beta", "a-1, b-2"))
    options = await _options_for(open_app, *headers)
    assert (options.api_version, options.betas) == ("2023-06-01", ("a-1", "b-2"))
    bare = await _options_for(open_app)
    assert (bare.api_version, bare.betas) == ("", ())


@pytest.mark.parametrize("version", ["2023 06 01", "x" * 65, "a,b", "\xff", "-1"])
async def test_a_version_that_is_none_is_refused(app: App, version: str) -> None:
    """The header is named."""
    body = msgspec.json.encode({"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})
    headers = [LOCAL, JSON_TYPE, ("anthropic-version", version)]
    visit = await Visit(app, "POST", PATH, headers=headers, body=body).run()
    assert (visit.status, visit.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "anthropic-version" in visit.json()["error"]["message"]
