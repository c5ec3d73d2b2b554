"""Plans over HTTP: what each model call sent, what changed since the one before, and who sent the same."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.gateway import Gateway
from person import person_headers
from treadle.config.settings import CacheSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.tools import tool

PARIS = ScriptTurn(calls=(ReplyCall(name="get_weather", args={"city": "Paris"}, id="call_paris"),))
NOBODY = "0" * 64


@tool(name="get_weather", effect="read")
def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"17 °C in {city}"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway whose model calls a tool and then answers, again and again."""
    script = Script(turns=(PARIS, ScriptTurn(text="It is 17 °C.")) * 3)
    with Gateway(script, tmp_path, tools=[get_weather]) as gateway:
        yield gateway


def ask(gateway: Gateway, text: str = "How is the weather?", **more: Any) -> str:
    """Run a request to its end and return the run's id."""
    body = {"input": text, "stream": True, **more}
    answer = httpx2.post(f"{gateway.origin}/treadle/v1/runs", json=body, timeout=20)
    assert "run.ended" in answer.text
    return answer.headers["x-treadle-run"]


def get(gateway: Gateway, path: str) -> httpx2.Response:
    """Read from Treadle's own API."""
    return httpx2.get(f"{gateway.origin}/treadle/v1{path}", timeout=20)


def test_the_plans_of_a_run_are_listed_with_their_fingerprints(gateway: Gateway) -> None:
    """One for each model call, with the same tools, and the trace names the same fingerprints."""
    run_id = ask(gateway)
    listed = get(gateway, f"/runs/{run_id}/plans").json()
    assert listed["run_id"] == run_id
    first, second = listed["plans"]
    assert [(each["round"], each["items"], each["tools"]) for each in (first, second)] == [(1, 1, 1), (2, 3, 1)]
    assert first["tools_sha256"] == second["tools_sha256"]
    assert (first["model"], first["is_final"], first["cached_from"]) == ("script", False, None)
    events = get(gateway, f"/runs/{run_id}/events").text
    assert all(each["fingerprint"] in events for each in (first, second))


def test_a_plan_is_whole_and_its_fingerprint_is_its_hash(gateway: Gateway) -> None:
    """What is shown is what was hashed, and the difference is what the first round added."""
    run_id = ask(gateway)
    answer = get(gateway, f"/runs/{run_id}/plans/2")
    shown, sent = answer.json(), msgspec.json.decode(answer.content, type=dict[str, msgspec.Raw])["plan"]
    assert hashlib.sha256(bytes(sent)).hexdigest() == shown["fingerprint"]
    assert [item["type"] for item in shown["plan"]["items"]] == ["message", "call", "result"]
    diff = shown["diff"]
    assert [item["type"] for item in diff["items_added"]] == ["call", "result"]
    nothing = ("items_removed", "tools_added", "tools_removed", "tools_changed", "options")
    assert [diff[name] for name in nothing] == [[]] * len(nothing)
    assert get(gateway, f"/runs/{run_id}/plans/1").json()["diff"] is None


def test_equal_plans_of_other_runs_are_found(gateway: Gateway) -> None:
    """By the fingerprint, newest first and page by page; a plan that only looks alike is not among them."""
    one, two, other = ask(gateway), ask(gateway), ask(gateway, "And in Rome?")
    plan = get(gateway, f"/runs/{one}/plans/2").json()
    assert [(each["run_id"], each["round"]) for each in plan["equal"]] == [(two, 2)]
    found = get(gateway, f"/plans/{plan['fingerprint']}").json()
    assert [(each["run_id"], each["round"], each["status"]) for each in found["calls"]] == [
        (two, 2, "completed"),
        (one, 2, "completed"),
    ]
    assert (found["has_more"], found["next_before"]) == (False, None)
    page = get(gateway, f"/plans/{plan['fingerprint']}?limit=1").json()
    assert ([each["run_id"] for each in page["calls"]], page["has_more"]) == ([two], True)
    rest = get(gateway, f"/plans/{plan['fingerprint']}?limit=1&before={page['next_before']}").json()
    assert ([each["run_id"] for each in rest["calls"]], rest["has_more"]) == ([one], False)
    assert other not in str(found)


def test_an_answer_from_the_cache_is_named_with_its_origin(tmp_path: Path) -> None:
    """The plan of the second run says whose answer it got."""
    script = Script(turns=(ScriptTurn(text="Sunny."),))
    with Gateway(script, tmp_path, cache=CacheSection(enabled=True)) as gateway:
        one, two = ask(gateway), ask(gateway)
        [line] = get(gateway, f"/runs/{two}/plans").json()["plans"]
        assert line["cached_from"] == one


def test_a_deleted_run_is_not_found_by_its_plan(gateway: Gateway) -> None:
    """Nor can its plans be read."""
    one = ask(gateway)
    plan = get(gateway, f"/runs/{one}/plans").json()["plans"][0]
    gateway.ask(gateway.runtime.store.delete_run(one))
    for path in (f"/runs/{one}/plans", f"/runs/{one}/plans/1", f"/plans/{plan['fingerprint']}"):
        assert get(gateway, path).status_code == 404


def test_a_purged_run_has_no_plans_any_more(gateway: Gateway) -> None:
    """Its numbers are kept, its content is gone."""
    one = ask(gateway)
    gateway.ask(gateway.runtime.store.purge_run(one))
    assert get(gateway, f"/runs/{one}/plans").json()["plans"] == []
    assert get(gateway, f"/runs/{one}/plans/1").status_code == 404


def test_runs_of_other_keys_are_not_shown(gateway: Gateway) -> None:
    """Neither by their id nor by an equal plan; who is at this machine, where no key is needed, sees all."""
    one = ask(gateway)
    fingerprint = get(gateway, f"/runs/{one}/plans").json()["plans"][0]["fingerprint"]
    request = gateway.ask(foreign(gateway, one))
    made = httpx2.post(f"{gateway.origin}/treadle/v1/keys", json={"name": "ada"}, headers=person_headers()).json()
    key = {"authorization": f"Bearer {made['key']}"}
    for path in (f"/runs/{one}/plans", f"/runs/{request}/plans/1", f"/plans/{fingerprint}"):
        assert httpx2.get(f"{gateway.origin}/treadle/v1{path}", headers=key).status_code == 404
    assert {each["run_id"] for each in get(gateway, f"/plans/{fingerprint}").json()["calls"]} == {one, request}


async def foreign(gateway: Gateway, run_id: str) -> str:
    """Ask the same again under another key, and return the run's id."""
    runs, store = gateway.runtime.runs, gateway.runtime.store
    row = await store.find_run(run_id)
    assert row is not None
    handle = await runs.rerun_tools(row)
    await handle.wait()
    again = await store.find_run(handle.run_id)
    assert again is not None
    other = msgspec.structs.replace(again, id="run_other", response_id="resp_other", key_id="eve", status="running")
    entries = await store.entries(again.id)
    journal = await store.start_run(other, entries, owner="test", lease_s=60)
    await journal.release()
    await store.delete_run(again.id)
    return other.id


@pytest.mark.parametrize(
    ("path", "status", "param"),
    [
        ("/runs/run_none/plans", 404, "run_id"),
        ("/runs/run_none/plans/1", 404, "run_id"),
        ("/runs/{run}/plans/0", 400, "round"),
        ("/runs/{run}/plans/-1", 400, "round"),
        ("/runs/{run}/plans/x", 400, "round"),
        ("/runs/{run}/plans/3", 404, "round"),
        ("/runs/{run}/plans/99999999999999999999", 400, "round"),
        ("/plans/abc", 400, "fingerprint"),
        (f"/plans/{NOBODY}", 404, "fingerprint"),
        (f"/plans/{NOBODY}?limit=0", 400, "limit"),
    ],
)
def test_bad_places_are_refused_by_the_name_of_the_field(gateway: Gateway, path: str, status: int, param: str) -> None:
    """And nothing else happens."""
    run_id = ask(gateway) if "{run}" in path else ""
    answer = get(gateway, path.format(run=run_id))
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
