"""Deciding: it needs a credential also on loopback, where a command that a model runs can send a request too."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from treadle.config.settings import WorkspaceSection
from treadle.server.app import App
from treadle.server.http_exchange import SAFE_METHODS
from treadle.server.route_table import TABLE
from unit.server.api.test_login_routes import PAGE, _login  # pyright: ignore[reportPrivateUsage]
from unit.server.conftest import OpenApp
from unit.server.person import person_header
from unit.server.visit import JSON_TYPE, LOCAL, Visit

CHANGES = {
    (method, route.pattern): route.access
    for route in TABLE
    for method in route.methods.split()
    if route.pattern.startswith("/treadle/v1/") and method not in SAFE_METHODS
}
UNDECIDED = frozenset(
    {
        ("POST", "/treadle/v1/runs"),
        ("POST", "/treadle/v1/runs/{run_id}/fork"),
        ("POST", "/treadle/v1/runs/{run_id}/replay"),
        ("POST", "/treadle/v1/guests/{name}/runs"),
        ("POST", "/treadle/v1/sessions"),
        ("PATCH", "/treadle/v1/sessions/{session_id}"),
        ("POST", "/treadle/v1/sessions/{session_id}/fork"),
        ("POST", "/treadle/v1/sessions/{session_id}/turns"),
        ("POST", "/treadle/v1/sessions/{session_id}/branch"),
        ("POST", "/treadle/v1/workspaces"),
        ("PATCH", "/treadle/v1/workspaces/{workspace}/draft"),
        ("PATCH", "/treadle/v1/workspaces/{workspace}/ui"),
        ("POST", "/treadle/v1/workspaces/{workspace}/proposals"),
        ("POST", "/treadle/v1/logout"),
    }
)
"""Changes that ask a model, or prepare or propose something; every other one decides."""


@pytest.fixture
async def space(open_app: OpenApp) -> AsyncIterator[App]:
    """An application with workspaces, on loopback and without keys."""
    async with open_app(workspace=WorkspaceSection(enabled=True)) as app:
        yield app


async def _send(app: App, method: str, path: str, body: Any, *headers: tuple[str, str]) -> Visit:
    data = msgspec.json.encode(body)
    return await Visit(app, method, path, headers=[LOCAL, JSON_TYPE, *headers], body=data, is_person=False).run()


def _refusal(visit: Visit) -> tuple[int, str]:
    return visit.status, visit.json()["error"]["code"]


@pytest.mark.parametrize(("method", "pattern"), CHANGES)
async def test_a_change_without_a_credential_is_refused_unless_it_only_asks_or_proposes(
    space: App, method: str, pattern: str
) -> None:
    """A new route is refused until somebody says that it decides nothing."""
    path = "/".join("x" if part.startswith("{") else part for part in pattern.split("/"))
    visit = await _send(space, method, path, {})
    is_refused = visit.status == 401 and visit.json()["error"]["code"] == "person_needed"
    assert is_refused is ((method, pattern) not in UNDECIDED) is CHANGES[method, pattern].decides


def test_what_decides_nothing_is_a_route() -> None:
    """No row is left of a route that is gone."""
    assert CHANGES.keys() >= UNDECIDED


async def test_a_model_cannot_confirm_its_own_proposal(space: App) -> None:
    """A request from loopback proposes; a person's key confirms, and the record names the person."""
    person = person_header(space)
    made = await _send(space, "POST", "/treadle/v1/workspaces", {"name": "desk", "facts": {"a": 1}}, person)
    assert made.status == 201, made.body
    change = {"changes": [{"path": "/facts/a", "value": 2}]}
    proposed = await _send(space, "POST", "/treadle/v1/workspaces/desk/proposals", change)
    path = f"/treadle/v1/workspaces/desk/proposals/{proposed.json()['id']}/confirm"
    version = (await Visit(space, "GET", "/treadle/v1/workspaces/desk").run()).json()["facts_version"]
    body = {"version": version, "by": "mallory"}
    assert _refusal(await _send(space, "POST", path, body)) == (401, "person_needed")
    confirmed = await _send(space, "POST", path, body, person)
    assert confirmed.status == 200, confirmed.body
    record = confirmed.json()["change"]
    assert (record["actor"], record["who"]) == ("person", "ada")


async def test_facts_are_a_persons_word_from_the_first(space: App) -> None:
    """A workspace without facts can be prepared by any program, and its record says that."""
    with_facts = await _send(space, "POST", "/treadle/v1/workspaces", {"name": "a", "facts": {"owner": "me"}})
    assert _refusal(with_facts) == (401, "person_needed")
    without = await _send(space, "POST", "/treadle/v1/workspaces", {"name": "a", "draft": {"owner": "me"}})
    assert without.status == 201
    history = await Visit(space, "GET", "/treadle/v1/workspaces/a/history").run()
    assert {change["actor"] for change in history.json()["changes"]} == {"program"}


async def test_an_answer_in_the_responses_api_needs_a_credential(app: App) -> None:
    """Also a refusal, and under whatever name it is sent."""
    answer = {"type": "mcp_approval_response", "approval_request_id": "apr_1", "approve": True}
    for path in ("/v1/responses", "/responses"):
        visit = await _send(app, "POST", path, {"model": "demo", "input": [answer]})
        assert visit.status == 401
        assert visit.json()["error"]["code"] == "person_needed"
    known = await _send(app, "POST", "/v1/responses", {"model": "demo", "input": [answer]}, person_header(app))
    assert known.status == 400, "the question does not exist, and the person may be told so"


async def test_tools_are_run_again_by_people(app: App) -> None:
    """A replay that only compares needs nobody."""
    run = await _send(app, "POST", "/treadle/v1/runs?wait=true", {"input": "hello", "model": "demo"})
    path = f"/treadle/v1/runs/{run.json()['id']}/replay"
    assert _refusal(await _send(app, "POST", path, {"live_tools": True})) == (401, "person_needed")


async def test_a_model_request_needs_no_credential(app: App) -> None:
    """As before, for whatever a client sends as its key."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
    for key in ((), (("authorization", "Bearer unused"),)):
        assert (await _send(app, "POST", "/v1/chat/completions", body, *key)).status == 200
    assert (await _send(app, "POST", "/treadle/v1/runs", {"input": "hello", "model": "demo"})).status < 300


async def test_a_login_decides(app: App) -> None:
    """The link that the server prints becomes a cookie; a change by it needs the header of the page."""
    cookie = await _login(app)
    made = await _send(app, "POST", "/treadle/v1/keys", {"name": "one"}, cookie, PAGE)
    assert made.status == 201, made.body
    assert _refusal(await _send(app, "POST", "/treadle/v1/keys", {"name": "two"}, cookie)) == (
        403,
        "page_header_missing",
    )


async def test_a_login_decides_what_its_scope_allows(app: App) -> None:
    """A viewer looks; an operator makes no keys."""
    for scope, path, body in (
        ("viewer", "/treadle/v1/approvals/apr_1", {"approve": True}),
        ("operator", "/treadle/v1/keys", {"name": "one"}),
    ):
        refused = await _send(app, "POST", path, body, person_header(app, scope=scope))
        assert _refusal(refused) == (403, "scope_missing")


async def test_an_ended_login_decides_nothing(app: App) -> None:
    """Who logged out is any program again, also where nobody need log in."""
    cookie = await _login(app)
    assert (await _send(app, "POST", "/treadle/v1/logout", {}, cookie, PAGE)).status == 204
    assert _refusal(await _send(app, "POST", "/treadle/v1/keys", {"name": "one"}, cookie, PAGE)) == (
        401,
        "person_needed",
    )


@pytest.mark.parametrize("text", ["tr_person_", "tr_person_x", "tr_person_x.y", "tr_person_" + "a" * 5_000])
async def test_a_persons_key_that_is_none_is_refused_everywhere(app: App, text: str) -> None:
    """Like every other key that looks like one of Treadle's."""
    headers = ("authorization", f"Bearer {text}")
    body = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
    assert (await _send(app, "POST", "/v1/chat/completions", body, headers)).status == 401
    assert _refusal(await _send(app, "POST", "/treadle/v1/keys", {"name": "one"}, headers)) == (401, "invalid_api_key")


async def test_neither_a_link_nor_a_cookie_is_a_persons_key(app: App) -> None:
    """What is signed for one purpose is worth nothing for another."""
    link = app.service.first_link().partition("#")[2]
    cookie = (await _login(app))[1].partition("=")[2]
    for ticket in (link, cookie):
        refused = await _send(
            app, "POST", "/treadle/v1/keys", {"name": "one"}, ("authorization", f"Bearer tr_person_{ticket}")
        )
        assert _refusal(refused) == (401, "invalid_api_key")


async def test_without_a_credential_only_own_things_are_changed(app: App) -> None:
    """A session of a key's is not gone on with by any program on this machine."""
    made = await _send(app, "POST", "/treadle/v1/keys", {"name": "one"}, person_header(app))
    key = ("authorization", f"Bearer {made.json()['key']}")
    assert (await _send(app, "POST", "/treadle/v1/sessions", {"name": "notes"}, key)).status == 201
    turn = await _send(app, "PATCH", "/treadle/v1/sessions/notes", {"name": "mine"})
    assert turn.status == 404
