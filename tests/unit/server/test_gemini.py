"""Gemini over HTTP: what the path and the query decide."""

from typing import Any

import msgspec
import pytest

from treadle.providers.fakes.scripted_model import ScriptTurn
from treadle.server.app import App
from unit.server.conftest import OpenApp, scripted
from unit.server.visit import JSON_TYPE, LOCAL, Visit

CONTENTS: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "x" * 40}]}]
BODY = msgspec.json.encode({"contents": CONTENTS})


def _ask(app: App, path: str, body: bytes = BODY) -> Visit:
    return Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=body)


@pytest.mark.parametrize("root", ["/v1beta", "/v1", ""])
@pytest.mark.parametrize(
    ("resource", "model"),
    [
        ("models/demo", "demo"),
        ("models/vendor/name", "vendor/name"),
        ("models/llama3:8b", "llama3:8b"),
        ("models/models/demo", "demo"),
        ("tunedModels/mine", "tunedModels/mine"),
    ],
)
async def test_the_path_names_the_model_and_the_action(open_app: OpenApp, root: str, resource: str, model: str) -> None:
    """Names may have slashes, colons and the prefix that the API gives them."""
    player = scripted(ScriptTurn(text="Hello."))
    async with open_app(player) as app:
        visit = await _ask(app, f"{root}/{resource}:generateContent").run()
    assert (visit.status, player.player.plans[0].model) == (200, model)
    assert visit.json()["candidates"][0]["content"]["parts"][0]["text"] == "Hello."


@pytest.mark.parametrize(
    ("query", "content_type"),
    [
        ("?alt=sse", "text/event-stream; charset=utf-8"),
        ("?key=k&%24alt=sse", "text/event-stream; charset=utf-8"),
        ("?alt=json", "application/json"),
        ("", "application/json"),
    ],
)
async def test_the_query_decides_how_it_is_streamed(open_app: OpenApp, query: str, content_type: str) -> None:
    """Frames only for those who ask for them."""
    async with open_app(scripted(ScriptTurn(text="Hello."))) as app:
        visit = await _ask(app, f"/v1beta/models/demo:streamGenerateContent{query}").run()
    assert (visit.status, visit.headers["content-type"]) == (200, content_type)
    is_array = content_type == "application/json"
    assert visit.body.startswith(b"[" if is_array else b"data: ")
    assert not is_array or isinstance(visit.json(), list)


async def test_tokens_are_counted_beside_or_inside(app: App) -> None:
    """Some clients put the whole request into a field, in either spelling."""
    plain = await _ask(app, "/v1beta/models/demo:countTokens").run()
    assert (plain.status, plain.headers["x-treadle-estimate"], plain.json()) == (200, "true", {"totalTokens": 14})
    for name in ("generateContentRequest", "generate_content_request"):
        body = msgspec.json.encode({name: {"model": "models/demo", "contents": CONTENTS}})
        assert (await _ask(app, "/v1beta/models/demo:countTokens", body).run()).json() == {"totalTokens": 14}


async def test_a_field_that_is_wrong_is_named(app: App) -> None:
    """In Gemini's envelope, as an invalid argument."""
    visit = await _ask(app, "/v1beta/models/demo:generateContent", b'{"contents":7}').run()
    error = visit.json()["error"]
    assert (visit.status, error["status"]) == (400, "INVALID_ARGUMENT")
    assert "contents" in error["message"]
