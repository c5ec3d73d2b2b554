"""The approvals of Treadle's own API: list, read, decide once, and the rules; every refusal names its field."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from store.sample import run_row
from treadle.journal.approvals_interface import ApprovalQuestion, ApprovalRow
from treadle.journal.journal_interface import Store
from treadle.runs.approvals.decisions import REASON_CHARS_MAX
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PATH = "/treadle/v1/approvals"
LATER = 4_000_000_000.0


@pytest.fixture
async def app(open_app: OpenApp) -> AsyncIterator[App]:
    """An application whose store has three calls of two runs that wait, and one whose time is over."""
    async with open_app() as opened:
        store = opened.service.runtime.store
        for run in ("1", "2"):
            await store.start_run(run_row(run, key_id=""), [], owner="me", lease_s=60)
        await ask(store, "apr_1", "run_1", "a")
        await ask(store, "apr_2", "run_1", "b")
        await ask(store, "apr_3", "run_2", "a")
        await ask(store, "apr_4", "run_2", "late", expires_at=2.0)
        yield opened


async def ask(store: Store, approval_id: str, run_id: str, call_id: str, expires_at: float = LATER) -> None:
    """Put a question."""
    question = ApprovalQuestion(
        tool="wipe", source="python", arguments='{"path":"x"}', digest="d", reasons=("it wipes",)
    )
    await store.approvals.file(
        ApprovalRow(
            id=approval_id, run_id=run_id, call_id=call_id, created_at=1.0, expires_at=expires_at, question=question
        )
    )


async def call(app: App, method: str, path: str = "", body: Any = None) -> Visit:
    """Make a request; a body is sent as JSON."""
    if body is None:
        return await Visit(app, method, PATH + path).run()
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return await Visit(app, method, PATH + path, headers=(LOCAL, JSON_TYPE), body=data).run()


async def ids(app: App, query: str) -> list[str]:
    """Return the ids in a list."""
    listed = await call(app, "GET", query)
    assert listed.status == 200, listed.body
    return [each["id"] for each in listed.json()["approvals"]]


async def test_approvals_are_listed_newest_first_and_narrowed(app: App) -> None:
    """By status, by run, in pages; what is past its time does not wait any more."""
    assert await ids(app, "") == ["apr_4", "apr_3", "apr_2", "apr_1"]
    assert await ids(app, "?status=pending") == ["apr_3", "apr_2", "apr_1"]
    assert await ids(app, "?run=run_1") == ["apr_2", "apr_1"]
    page = (await call(app, "GET", "?limit=3")).json()
    assert (page["has_more"], page["last_id"]) == (True, "apr_2")
    rest = (await call(app, "GET", "?limit=3&before=apr_2")).json()
    assert ([each["id"] for each in rest["approvals"]], rest["has_more"]) == (["apr_1"], False)


async def test_an_approval_is_shown_with_all_that_a_person_needs(app: App) -> None:
    """The call, why it is asked about, and what a decision is bound to."""
    shown = (await call(app, "GET", "/apr_1")).json()
    assert {name: shown[name] for name in ("tool", "source", "arguments", "digest", "reasons", "status")} == {
        "tool": "wipe",
        "source": "python",
        "arguments": '{"path":"x"}',
        "digest": "d",
        "reasons": ["it wipes"],
        "status": "pending",
    }
    assert (shown["run_id"], shown["call_id"], shown["expires_at"], shown["decision"]) == ("run_1", "a", LATER, None)


@pytest.mark.parametrize("path", ["/apr_1", "/apr_1/decide"])
async def test_a_decision_stands_once(app: App, path: str) -> None:
    """The first is kept with whose key it was and why; the second is a conflict that shows it."""
    first = await call(app, "POST", path, {"approve": False, "reason": "no", "by": "ann", "digest": "d"})
    assert (first.status, first.json()["status"]) == (200, "denied")
    assert (first.json()["decision"]["by"], first.json()["decision"]["reason"]) == ("ada", "no")
    second = await call(app, "POST", path, {"approve": True})
    assert (second.status, second.headers["x-should-retry"]) == (409, "false")
    assert second.json()["error"]["code"] == "approval_decided"
    assert second.json()["approval"] == first.json()


async def test_many_deciders_at_once_have_one_winner(app: App) -> None:
    """All others are told the same."""
    visits = await asyncio.gather(*(call(app, "POST", "/apr_2", {"approve": n % 2 == 0}) for n in range(8)))
    assert sorted(each.status for each in visits) == [200, *[409] * 7]
    [won] = [each.json() for each in visits if each.status == 200]
    assert all(each.json()["approval"] == won for each in visits if each.status == 409)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 400, "approve"),
        ({"approve": "yes"}, 400, "approve"),
        ({"approve": True, "aprove": 1}, 400, "aprove"),
        ({"approve": True, "arguments": 1}, 400, "arguments"),
        ({"approve": True, "arguments": "[1]"}, 400, "arguments"),
        ({"approve": True, "arguments": "{"}, 400, "arguments"),
        ({"approve": False, "arguments": {}}, 400, "arguments"),
        ({"approve": False, "remember": {"kind": "tool"}}, 400, "remember"),
        ({"approve": True, "remember": {"kind": "all"}}, 400, "remember.kind"),
        ({"approve": True, "remember": {"kind": "tool", "scope": "session"}}, 400, "remember.scope"),
        ({"approve": True, "remember": {"kind": "pattern", "scope": "project"}}, 400, "remember.patterns"),
        ({"approve": True, "digest": "other"}, 409, "digest"),
        ({"approve": True, "by": "x" * 201}, 400, "by"),
        (b"no", 400, None),
        (b"[" * 100_000, 400, None),
    ],
)
async def test_a_decision_that_can_not_be_names_its_field(app: App, body: Any, status: int, field: str | None) -> None:
    """And leaves the question open."""
    refused = await call(app, "POST", "/apr_1", body)
    assert (refused.status, refused.json()["error"]["param"]) == (status, field), refused.body
    assert (await call(app, "GET", "/apr_1")).json()["status"] == "pending"


async def test_a_body_has_a_bound(open_app: OpenApp) -> None:
    """As everywhere."""
    from treadle.config import ServerSection

    async with open_app(server=ServerSection(body_bytes_max=1024)) as app:
        assert (await call(app, "POST", "/apr_1", {"approve": True, "reason": "x" * 2000})).status == 413


async def test_a_long_reason_is_cut(app: App) -> None:
    """It is kept as far as anybody reads."""
    done = await call(app, "POST", "/apr_1", {"approve": True, "reason": "x" * 10_000})
    assert len(done.json()["decision"]["reason"]) == REASON_CHARS_MAX


@pytest.mark.parametrize(
    ("method", "path", "status", "field"),
    [
        ("GET", "/apr_none", 404, None),
        ("POST", "/apr_none", 404, None),
        ("GET", "?status=maybe", 400, "status"),
        ("GET", "?limit=0", 400, "limit"),
        ("GET", "?before=apr_none", 404, "approval"),
        ("DELETE", "/rules/rule_none", 404, None),
        ("DELETE", "/apr_1", 405, None),
    ],
)
async def test_what_is_not_there_is_said_to_be_missing(
    app: App, method: str, path: str, status: int, field: str | None
) -> None:
    """In Treadle's own envelope."""
    body = {"approve": True} if method == "POST" else None
    refused = await call(app, method, path, body)
    assert (refused.status, refused.json()["error"]["param"]) == (status, field)


async def test_what_is_late_is_a_conflict_that_says_so(app: App) -> None:
    """Expired, and denied by nobody."""
    late = await call(app, "POST", "/apr_4", {"approve": True})
    assert (late.status, late.json()["approval"]["status"]) == (409, "expired")
    assert await ids(app, "?status=expired") == ["apr_4"]


async def test_rules_are_listed_and_forgotten(app: App) -> None:
    """What was remembered with a decision; `rules` is no approval's id."""
    remember = {"kind": "pattern", "scope": "project", "patterns": {"path": "x*"}}
    assert (await call(app, "POST", "/apr_1", {"approve": True, "remember": remember})).status == 200
    [rule] = (await call(app, "GET", "/rules")).json()["rules"]
    assert (rule["rule"]["kind"], rule["rule"]["patterns"]) == ("pattern", {"path": "x*"})
    assert (await call(app, "DELETE", f"/rules/{rule['id']}")).json() == {"id": rule["id"], "deleted": True}
    assert (await call(app, "GET", "/rules")).json() == {"rules": []}
