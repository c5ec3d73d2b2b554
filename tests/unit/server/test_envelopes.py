"""Every refusal in the envelope of the API that was called, whatever refused it."""

import logging
from typing import Any

import pytest

from treadle.config import ServerSection
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/demo:generateContent",
    "gemini v1": "/v1/models/demo:generateContent",
}
CASES = pytest.mark.parametrize("api", PATHS)


def _kind(api: str, visit: Visit) -> str:
    """Return the type of the error, after checking that the whole envelope is the API's."""
    body: dict[str, Any] = visit.json()
    error = body["error"]
    if api == "messages":
        assert body == {"type": "error", "error": error, "request_id": visit.headers["request-id"]}
        assert set(error) == {"type", "message"}
        return error["type"]
    assert body == {"error": error}
    if api.startswith("gemini"):
        assert (set(error), error["code"]) == ({"code", "message", "status", "details"}, visit.status)
        return error["status"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["type"]


@CASES
async def test_a_body_that_is_too_large(open_app: OpenApp, api: str) -> None:
    """413 before it is read to its end."""
    async with open_app(server=ServerSection(body_bytes_max=1024)) as app:
        visit = await Visit(app, "POST", PATHS[api], headers=[LOCAL, JSON_TYPE], body=b"x" * 2_000).run()
    kinds = {"messages": "request_too_large", "gemini": "INVALID_ARGUMENT", "gemini v1": "INVALID_ARGUMENT"}
    assert (visit.status, _kind(api, visit)) == (413, kinds.get(api, "invalid_request_error"))


@CASES
async def test_a_body_of_another_type(app: App, api: str) -> None:
    """415 with what to send instead."""
    visit = await Visit(app, "POST", PATHS[api], headers=[LOCAL, ("content-type", "text/plain")], body=b"{}").run()
    kind = "INVALID_ARGUMENT" if api.startswith("gemini") else "invalid_request_error"
    assert (visit.status, _kind(api, visit)) == (415, kind)


@CASES
async def test_a_body_that_is_no_json(app: App, api: str) -> None:
    """400, never a traceback."""
    for body in (b"", b"{", b"[]", b'"x"', b"\xff"):
        visit = await Visit(app, "POST", PATHS[api], headers=[LOCAL, JSON_TYPE], body=body).run()
        kind = "INVALID_ARGUMENT" if api.startswith("gemini") else "invalid_request_error"
        assert (visit.status, _kind(api, visit)) == (400, kind), body


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
async def test_a_method_that_the_path_does_not_take(app: App, api: str) -> None:
    """405 with those that it does take."""
    visit = await Visit(app, "PUT", PATHS[api], headers=[LOCAL, JSON_TYPE]).run()
    assert (visit.status, "POST" in visit.headers["allow"]) == (405, True)
    _kind(api, visit)


@pytest.mark.parametrize(
    ("api", "path"),
    [
        ("chat", "/v1/chat/nothing"),
        ("responses", "/v1/responses/a/b/c"),
        ("messages", "/v1/messages/nothing"),
        ("gemini", "/v1beta/nothing"),
        ("gemini", "/v1beta/models/demo:embedContent"),
        ("gemini", "/v1beta/models/demo"),
        ("gemini", "/v1beta/models/:generateContent"),
        ("gemini", "/v1/models/demo:predict"),
    ],
)
async def test_a_path_that_leads_nowhere(app: App, api: str, path: str) -> None:
    """404, also for something that a model cannot be asked to do."""
    visit = await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=b"{}").run()
    assert visit.status in (404, 405)
    assert _kind(api, visit) in ("not_found_error", "NOT_FOUND", "INVALID_ARGUMENT")


@CASES
async def test_whoever_is_kept_out(app: App, api: str) -> None:
    """403 from the guard."""
    visit = await Visit(app, "POST", PATHS[api], headers=[("host", "evil.example"), JSON_TYPE], body=b"{}").run()
    kind = "PERMISSION_DENIED" if api.startswith("gemini") else "permission_error"
    assert (visit.status, _kind(api, visit)) == (403, kind)


@CASES
async def test_a_server_that_leaves_says_when_to_come_back(app: App, api: str) -> None:
    """503 always carries retry-after."""
    await app.service.drain(0.0)
    body = b'{"model":"demo","max_tokens":5,"input":"hi","messages":[{"role":"user","content":"hi"}],'
    body += b'"contents":[{"parts":[{"text":"hi"}]}]}'
    visit = await Visit(app, "POST", PATHS[api], headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, visit.headers["retry-after"]) == (503, "1")
    _kind(api, visit)


async def test_a_key_in_the_query_is_never_logged_nor_shown(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with a refusal, not with a bug, not in the metrics."""

    def broken() -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.DEBUG):
        visits = [
            await Visit(app, "GET", "/v1beta/models?key=sk-secret").run(),
            await Visit(app, "GET", "/v1beta/nothing?key=sk-secret").run(),
            await Visit(app, "POST", "/v1/messages?key=sk-secret", headers=[LOCAL, JSON_TYPE], body=b"{").run(),
        ]
        monkeypatch.setattr(app.service.runtime.router, "models", broken)
        visits.append(await Visit(app, "GET", "/v1beta/models?key=sk-secret").run())
        visits.append(await Visit(app, "GET", "/metrics").run())
    assert [visit.status for visit in visits] == [200, 404, 400, 500, 200]
    assert not any(b"sk-secret" in visit.body for visit in visits)
    assert "sk-secret" not in caplog.text + "".join(str(vars(record)) for record in caplog.records)
