"""The sessions of Treadle's own API: list, search, create, read, change, fork, export, forget."""

from typing import Any

import msgspec
import pytest

from treadle.journal.audit_verification import audit_export
from treadle.journal.jsonl_export import read_runs
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PATH = "/treadle/v1/sessions"


async def call(app: App, method: str, path: str, body: Any = None) -> Visit:
    """Make a request; a body is sent as JSON."""
    if body is None:
        return await Visit(app, method, path).run()
    return await Visit(app, method, path, headers=(LOCAL, JSON_TYPE), body=msgspec.json.encode(body)).run()


async def say(app: App, session: str, *texts: str) -> list[str]:
    """Run these prompts in a session and return the ids of the runs."""
    ids: list[str] = []
    for text in texts:
        new = await call(app, "POST", "/treadle/v1/runs", {"input": text, "session": session})
        ids.append(new.json()["id"])
        handle = app.service.runtime.runs.find_live(ids[-1])
        if handle is not None:
            await handle.wait()
    return ids


async def names(app: App, query: str = "") -> list[str]:
    """Return the names in a list of sessions."""
    listed = await call(app, "GET", PATH + query)
    assert listed.status == 200, listed.body
    return [row["name"] for row in listed.json()["sessions"]]


async def test_a_session_is_made_and_found_by_id_and_name(app: App) -> None:
    """201 with its place; empty until something is said in it."""
    made = await call(app, "POST", PATH, {"name": "Trip", "metadata": {"colour": "red"}})
    assert (made.status, made.headers["location"]) == (201, f"{PATH}/{made.json()['id']}")
    for name in (made.json()["id"], "Trip"):
        found = (await call(app, "GET", f"{PATH}/{name}")).json()
        assert (found["name"], found["metadata"], found["head_run_id"]) == ("Trip", {"colour": "red"}, None)
        assert (found["messages"], found["has_more"]) == ([], False)


async def test_what_was_said_comes_with_it_page_by_page(app: App) -> None:
    """Oldest first; `after` is how many were read."""
    ids = await say(app, "s", "add 2 and 3", "hello")
    whole = (await call(app, "GET", f"{PATH}/s")).json()
    kinds = [message["kind"] for message in whole["messages"]]
    assert kinds == ["user", "tool_call", "tool_result", "assistant", "user", "assistant"]
    assert whole["head_run_id"] == ids[-1]
    page = (await call(app, "GET", f"{PATH}/s?after=1&limit=2")).json()
    assert (page["messages"], page["has_more"]) == (whole["messages"][1:3], True)
    last = (await call(app, "GET", f"{PATH}/s?after=4&limit=2")).json()
    assert (last["messages"], last["has_more"]) == (whole["messages"][4:], False)


async def test_they_are_listed_and_searched_page_by_page(app: App) -> None:
    """The one used last first; a search looks at names and at what was said."""
    for name in ("one", "two", "three"):
        await say(app, name, f"hello from {name}")
    assert await names(app) == ["three", "two", "one"]
    first = (await call(app, "GET", f"{PATH}?limit=2")).json()
    assert (first["has_more"], len(first["sessions"])) == (True, 2)
    assert await names(app, f"?limit=2&before={first['sessions'][-1]['id']}") == ["one"]
    assert await names(app, "?search=FROM%20TWO") == ["two"]
    assert await names(app, "?search=thr") == ["three"]
    assert await names(app, "?search=nothing") == []


async def test_a_name_and_metadata_can_be_changed(app: App) -> None:
    """What is left out stays."""
    await call(app, "POST", PATH, {"name": "a", "metadata": {"n": 1}})
    renamed = await call(app, "PATCH", f"{PATH}/a", {"name": "b"})
    assert (renamed.status, renamed.json()["name"], renamed.json()["metadata"]) == (200, "b", {"n": 1})
    changed = await call(app, "PATCH", f"{PATH}/b", {"metadata": {"n": 2}})
    assert (changed.json()["name"], changed.json()["metadata"]) == ("b", {"n": 2})


async def test_a_fork_goes_on_by_itself(app: App) -> None:
    """From the end of its source, or from an earlier run; the source does not see what it adds."""
    first, second = await say(app, "s", "hello", "add 2 and 3")
    whole = await call(app, "POST", f"{PATH}/s/fork")
    assert (whole.status, whole.json()["name"], whole.json()["head_run_id"]) == (201, "s (fork)", second)
    early = await call(app, "POST", f"{PATH}/s/fork", {"at": first, "name": "t"})
    assert early.json()["head_run_id"] == first
    await say(app, "t", "add 7 and 8")
    texts = [message["content"] for message in (await call(app, "GET", f"{PATH}/t")).json()["messages"]]
    assert ("add 7 and 8" in texts, "add 2 and 3" in texts) == (True, False)
    source = [message["content"] for message in (await call(app, "GET", f"{PATH}/s")).json()["messages"]]
    assert "add 7 and 8" not in source


async def test_an_export_is_exact_or_for_people(app: App) -> None:
    """JSON Lines that an audit accepts, or Markdown; both are named for saving."""
    ids = await say(app, "Reise nach Köln", "hello", "add 2 and 3")
    session = (await call(app, "GET", PATH)).json()["sessions"][0]["id"]
    exact = await call(app, "GET", f"{PATH}/{session}/export")
    runs = list(read_runs(exact.body.splitlines(keepends=True)))
    assert [run.row.id for run in runs] == ids
    assert all(audit_export(run).is_sound for run in runs)
    assert exact.headers["content-type"] == "application/x-ndjson"
    assert exact.headers["content-disposition"] == (
        "attachment; filename=\"Reise nach K_ln.jsonl\"; filename*=UTF-8''Reise%20nach%20K%C3%B6ln.jsonl"
    )
    readable = await call(app, "GET", f"{PATH}/{session}/export?format=md")
    assert readable.headers["content-type"] == "text/markdown; charset=utf-8"
    assert readable.body.decode().startswith("# Reise nach Köln\n\n## User\n\nhello")


async def test_forgetting_one_keeps_its_runs_unless_told(app: App) -> None:
    """204, and then it is not there; with `runs=true` neither are they."""
    (kept,) = await say(app, "a", "hello")
    (gone,) = await say(app, "b", "hello")
    assert (await call(app, "DELETE", f"{PATH}/a")).status == 204
    assert (await call(app, "DELETE", f"{PATH}/b?runs=true")).status == 204
    assert (await call(app, "GET", f"{PATH}/a")).status == 404
    assert (await call(app, "GET", f"/treadle/v1/runs/{kept}")).status == 200
    assert (await call(app, "GET", f"/treadle/v1/runs/{gone}")).status == 404


async def test_what_a_fork_stands_on_is_not_forgotten(app: App) -> None:
    """409 that names the fork, and nothing is lost; when the fork is gone it can be forgotten."""
    (run_id,) = await say(app, "s", "hello")
    await say(app, "apart", "hello")
    await call(app, "POST", f"{PATH}/s/fork", {"name": "heir"})
    refused = await call(app, "DELETE", f"{PATH}/s?runs=true")
    assert (refused.status, refused.json()["error"]["code"]) == (409, "session_forked")
    assert "heir" in refused.json()["error"]["message"]
    assert len((await call(app, "GET", f"{PATH}/heir")).json()["messages"]) == 2
    assert (await call(app, "DELETE", f"{PATH}/heir?runs=true")).status == 204
    assert (await call(app, "GET", f"/treadle/v1/runs/{run_id}")).status == 200
    assert (await call(app, "DELETE", f"{PATH}/s?runs=true")).status == 204


async def test_one_that_is_in_use_is_not_forgotten(open_app: OpenApp) -> None:
    """A run of it is going on: 409, and it stays."""
    model = HeldModel()
    async with open_app(model) as app:
        await call(app, "POST", "/treadle/v1/runs", {"input": "hi", "session": "s"})
        refused = await call(app, "DELETE", f"{PATH}/s?runs=true")
        assert refused.status == 409
        model.released.set()
        assert await names(app) == ["s"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("GET", "/nobody", None, 404, "session"),
        ("PATCH", "/nobody", {"name": "x"}, 404, "session"),
        ("POST", "/nobody/fork", {}, 404, "session"),
        ("GET", "/nobody/export", None, 404, "session"),
        ("DELETE", "/nobody", None, 404, "session"),
        ("POST", "", {"name": "taken"}, 409, None),
        ("POST", "", {"name": "  "}, 400, "name"),
        ("POST", "", {"name": "x" * 201}, 400, "name"),
        ("POST", "", {"nam": "x"}, 400, None),
        ("POST", "", {"name": 7}, 400, "name"),
        ("POST", "", {"name": "n", "metadata": [1]}, 400, "metadata"),
        ("POST", "", {"name": "n", "metadata": {"a": "x" * 70_000}}, 400, "metadata"),
        ("PATCH", "/taken", {}, 400, "name"),
        ("PATCH", "/taken", {"name": ""}, 400, "name"),
        ("POST", "/taken/fork", {"at": "run_x"}, 400, "at"),
        ("POST", "/taken/fork", {"name": "taken"}, 409, None),
        ("GET", "/taken/export?format=pdf", None, 400, "format"),
        ("GET", "/taken?after=x", None, 400, "after"),
        ("GET", "/taken?limit=0", None, 400, "limit"),
        ("GET", "?limit=201", None, 400, "limit"),
        ("GET", "?before=sess_x", None, 404, None),
        ("GET", f"?search={'x' * 501}", None, 400, "search"),
        ("DELETE", "/taken?runs=maybe", None, 400, "runs"),
        ("PUT", "/taken", None, 405, None),
    ],
)
async def test_what_can_not_be_is_refused_by_name(
    app: App, method: str, path: str, body: Any, status: int, param: str | None
) -> None:
    """The envelope of Treadle's own API, and the field that is wrong."""
    await call(app, "POST", PATH, {"name": "taken"})
    refused = await call(app, method, PATH + path, body)
    error = refused.json()["error"]
    assert (refused.status, error["message"] != "") == (status, True), refused.body
    if param is not None:
        assert error["param"] == param


async def test_a_body_that_is_no_json_is_refused(app: App) -> None:
    """By its content, and by its type."""
    broken = await Visit(app, "POST", PATH, headers=(LOCAL, JSON_TYPE), body=b"{").run()
    assert (broken.status, "JSON" in broken.json()["error"]["message"]) == (400, True)
    form = await Visit(app, "PATCH", f"{PATH}/x", headers=(LOCAL, ("content-type", "text/plain")), body=b"{}").run()
    assert form.status == 415
