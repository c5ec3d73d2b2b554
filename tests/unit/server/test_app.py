"""The table of routes, and the edge where errors become answers."""

import logging
from typing import Any

import pytest

from treadle.core.errors import StoreError
from treadle.core.events import ItemDone, RunEvent
from treadle.http.asgi import AsgiMessage, Scope
from treadle.protocols import chat
from treadle.server.app import App
from treadle.server.http_exchange import Exchange
from treadle.server.route_table import TABLE, Routes
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.visit import JSON_TYPE, LOCAL, Visit


def _exchange(method: str, path: str) -> Exchange:
    async def receive() -> AsgiMessage:
        raise AssertionError("routing reads nothing")

    async def send(message: AsgiMessage) -> None:
        raise AssertionError("routing sends nothing")

    scope: Scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": []}
    return Exchange(scope, receive, send, "req_1")


@pytest.mark.parametrize("route", TABLE, ids=lambda route: f"{route.methods} {route.pattern}")
def test_every_route_is_found_by_its_own_path(route: Any) -> None:
    """No row of the table hides another, with and without /v1 where a client API has it."""
    path = route.pattern.replace("{file*}", "a/b").replace("{model*}", "a/b").replace("{", "").replace("}", "")
    spellings = [path, path.removeprefix("/v1")] if path.startswith("/v1/") else [path]
    for spelling in spellings:
        for method in route.methods.split():
            assert Routes().find(_exchange(method, spelling)) is route


def test_parameters_are_taken_from_the_path() -> None:
    """One segment for an id, the rest for a model's name, which may have slashes."""
    run, model = _exchange("GET", "/treadle/v1/runs/run_1/events"), _exchange("GET", "/v1/models/vendor/name")
    Routes().find(run)
    Routes().find(model)
    assert (run.params, model.params) == ({"run_id": "run_1"}, {"model": "vendor/name"})


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (
            "/v1/nothing",
            {
                "message": "There is nothing at GET /v1/nothing. The page is at /.",
                "type": "not_found_error",
                "param": None,
                "code": "not_found",
            },
        ),
        (
            "/treadle/v1/nothing",
            {
                "code": "not_found",
                "message": "There is nothing at GET /treadle/v1/nothing.",
                "hint": "The page is at /.",
                "param": None,
            },
        ),
    ],
)
async def test_an_unknown_path_is_a_404_in_the_apis_envelope(app: App, path: str, error: dict[str, Any]) -> None:
    """The client of each API can read the refusal."""
    visit = await Visit(app, "GET", path).run()
    assert (visit.status, visit.json()) == (404, {"error": error})


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "text/plain"])
async def test_an_unknown_path_is_a_404_whatever_is_sent_there(app: App, kind: str) -> None:
    """Another content type would not help; where there is something, it is what is wrong."""
    headers = [LOCAL, ("content-type", kind)]
    assert (await Visit(app, "POST", "/v1/audio/transcriptions", body=b"x", headers=headers).run()).status == 404
    assert (await Visit(app, "POST", "/v1/models", body=b"x", headers=headers).run()).status == 405
    assert (await Visit(app, "POST", "/v1/responses", body=b"x", headers=headers).run()).status == 415


@pytest.mark.parametrize("path", ["/v1/models/", "/treadle/v1/runs//events", "/treadle/v1/runs/" + "x" * 300])
async def test_empty_and_endless_segments_match_nothing(app: App, path: str) -> None:
    """A parameter has at least one character and at most a few hundred."""
    assert (await Visit(app, "GET", path).run()).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/responses/resp_1", "GET, HEAD, DELETE"),
        ("POST", "/", "GET, HEAD"),
        ("OPTIONS", "/v1/models", "GET, HEAD"),
        ("GET", "/v1/responses", "POST"),
    ],
)
async def test_a_wrong_method_is_a_405_that_names_the_right_ones(app: App, method: str, path: str, allow: str) -> None:
    """Allow lists what the path takes."""
    visit = await Visit(app, method, path, headers=[LOCAL, JSON_TYPE]).run()
    assert (visit.status, visit.headers["allow"], visit.json()["error"]["code"]) == (405, allow, "method_not_allowed")


async def test_a_websocket_probe_gets_426(app: App) -> None:
    """Clients that try a WebSocket first fall back to POST at once on exactly this status."""
    headers = [LOCAL, ("upgrade", "websocket"), ("connection", "Upgrade")]
    visit = await Visit(app, "GET", "/v1/responses", headers=headers).run()
    assert (visit.status, visit.json()["error"]["code"]) == (426, "upgrade_required")


async def test_the_probe_of_codex_is_no_line_of_error(app: App, caplog: pytest.LogCaptureFixture) -> None:
    """It comes with every start of that client, and is answered as it wants it."""
    with caplog.at_level(logging.INFO, logger="treadle"):
        await Visit(app, "GET", "/v1/responses", headers=[LOCAL, ("upgrade", "websocket")]).run()
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == []


async def test_a_refusal_of_the_guard_has_the_apis_envelope(app: App) -> None:
    """Whoever is kept out still gets an answer it can parse, with its request id."""
    headers = [("host", "evil.example"), ("x-request-id", "mine-1")]
    visit = await Visit(app, "POST", "/v1/chat/completions", headers=headers).run()
    assert (visit.status, visit.headers["x-request-id"]) == (403, "mine-1")
    assert visit.json()["error"] == {
        "message": "This server does not answer to the name in the Host header. "
        "Use localhost, or add the name to server.allowed_hosts in the configuration.",
        "type": "permission_error",
        "param": None,
        "code": "host_not_allowed",
    }


async def test_a_request_id_is_made_where_none_or_a_bad_one_is_given(app: App) -> None:
    """Every answer can be quoted by an id."""
    visit = await Visit(app, "GET", "/healthz", headers=[LOCAL, ("x-request-id", "a b")]).run()
    assert visit.headers["x-request-id"].startswith("req_")


async def test_a_bug_is_a_500_that_shows_nothing_of_the_inside(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets an id to quote; the log gets the traceback."""

    def broken() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(app.service.runtime.router, "models", broken)
    with caplog.at_level(logging.ERROR):
        visit = await Visit(app, "GET", "/v1/models", headers=[LOCAL, ("x-request-id", "mine-1")]).run()
    assert (visit.status, visit.json()) == (
        500,
        {
            "error": {
                "message": "Something went wrong inside Treadle; request id mine-1.",
                "type": "server_error",
                "param": None,
                "code": "internal_error",
            }
        },
    )
    assert "secret detail" in caplog.text


async def test_a_bug_in_an_open_stream_cuts_it(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that was ended cleanly would pass for a success, so it is left open for the server to cut."""
    feed = chat.Encoder.feed

    def broken(self: chat.Encoder, event: RunEvent) -> list[bytes]:
        if isinstance(event, ItemDone):
            raise ZeroDivisionError
        return feed(self, event)

    monkeypatch.setattr(chat.Encoder, "feed", broken)
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    model = HeldModel()
    async with open_app(model) as app:
        visit = Visit(app, "POST", "/v1/chat/completions", headers=[LOCAL, JSON_TYPE], body=body).begin()
        await visit.until(b"Hello")
        model.released.set()
        await visit.done()
    assert (visit.status, visit.is_complete) == (200, False)
    assert b"[DONE]" not in visit.body


async def test_requests_are_counted_by_route_and_status(app: App) -> None:
    """Labels are patterns of the table, never what a client made up."""
    await Visit(app, "GET", "/healthz").run()
    await Visit(app, "GET", "/v1/models/made-up-name").run()
    await Visit(app, "GET", "/made-up/path").run()
    metrics = (await Visit(app, "GET", "/metrics").run()).body.decode()
    assert 'treadle_http_requests_total{route="/healthz",status="200"} 1.0' in metrics
    assert 'treadle_http_requests_total{route="/v1/models/{model*}",status="404"} 1.0' in metrics
    assert 'treadle_http_requests_total{route="none",status="404"} 1.0' in metrics
    assert "made-up" not in metrics


async def test_the_four_tool_metrics_are_there_from_the_start(app: App) -> None:
    """A dashboard finds the series before the first call."""
    visit = await Visit(app, "GET", "/metrics").run()
    assert visit.headers["content-type"].startswith("text/plain")
    names = ("tool_call_iterations_total", "tool_calls_total", "tool_call_failures_total", "tool_output_bytes_total")
    assert [name for name in names if f"# TYPE {name}" in visit.body.decode()] == list(names)


async def test_health_and_readiness(app: App) -> None:
    """Alive is not yet ready: readiness asks the store, and ends with the drain."""
    assert (await Visit(app, "GET", "/healthz").run()).json() == {"status": "ok"}
    assert (await Visit(app, "GET", "/readyz").run()).json() == {"status": "ready"}
    await app.service.drain(0.0)
    visit = await Visit(app, "GET", "/readyz").run()
    assert (visit.status, visit.json()) == (503, {"status": "unavailable", "reason": "shutting down"})
    assert (await Visit(app, "GET", "/healthz").run()).status == 200


async def test_a_broken_store_is_not_ready(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is named, so that an operator knows where to look."""

    async def probe() -> None:
        raise StoreError("the store /srv/secret/treadle.db: its disk is full", code="store_full")

    runtime = app.service.runtime
    monkeypatch.setattr(runtime.store, "probe", probe)
    await runtime.health.check()
    visit = await Visit(app, "GET", "/readyz").run()
    assert (visit.status, visit.json()["reason"]) == (503, "store: The disk of the journal is full.")
    assert (visit.headers["retry-after"], "treadle.db" in str(visit.body)) == ("1", False)
    monkeypatch.undo()
    await runtime.health.check()
    assert (await Visit(app, "GET", "/readyz").run()).status == 200


async def test_a_leaving_server_takes_no_new_run(app: App) -> None:
    """The refusal is retryable: another replica, or this one soon, will take it."""
    await app.service.drain(0.0)
    body = b'{"model":"demo","messages":[{"role":"user","content":"hi"}]}'
    visit = await Visit(app, "POST", "/v1/chat/completions", headers=[LOCAL, JSON_TYPE], body=body).run()
    assert (visit.status, visit.headers["retry-after"], visit.json()["error"]["code"]) == (503, "1", "shutting_down")


async def test_only_http_is_spoken(app: App) -> None:
    """Another kind of ASGI scope is refused as the specification says."""
    scope: Any = {"type": "websocket", "path": "/", "headers": []}
    with pytest.raises(NotImplementedError):
        await app(scope, None, None)  # pyright: ignore[reportArgumentType]
