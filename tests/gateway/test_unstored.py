"""`store: false` over HTTP: nothing of the content can be read once the run has ended, by whatever way."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.gateway import Gateway
from gateway.test_replicas import store_of
from person import person_headers
from treadle import tool
from treadle.config.settings import CacheSection
from treadle.core.items import ResultItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall
from treadle.server.route_table import TABLE
from warm import start

BOUND_S = 30.0
SECRET = "zebra-7731"
ASKED = f"Tell {SECRET} nobody."
TOOLS = [{"type": "function", "name": "theirs", "parameters": {"type": "object", "properties": {}}}]
KEPT_S = 3_600.0
COUNT = """
import sqlite3, sys
journal = sqlite3.connect(sys.argv[1])
print(*(journal.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("events", "messages")))
"""
FIND = """
import pathlib, sys
secret, *paths = sys.argv[1:]
print(*(path for path in paths if secret.encode() in pathlib.Path(path).read_bytes()))
"""


@tool(effect="read")
def ours(word: str) -> str:
    """Say a word again."""
    return f"said {word}"


@tool(effect="destructive")
def wipe(path: str) -> str:
    """Wipe something."""
    return f"wiped {path}"


def _say(plan: Plan) -> Reply:
    """Call the server's tool and the client's in one turn where the client has one; answer all else with the secret."""
    last = plan.items[-1]
    if any(spec.name == "wipe" for spec in plan.tools) and not isinstance(last, ResultItem):
        return Reply(calls=(ReplyCall(name="wipe", args={"path": SECRET}),))
    if isinstance(last, ResultItem) or not any(spec.name == "theirs" for spec in plan.tools):
        if "fail" in str(last):
            return Reply(text="", faults=Faults(status=500))
        return Reply(text=f"It is {SECRET}.")
    return Reply(calls=(ReplyCall(name="ours", args={"word": SECRET}), ReplyCall(name="theirs", args={})))


class Asker:
    """A gateway, and a client of it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.client = httpx2.Client(base_url=gateway.origin, headers=person_headers(), timeout=BOUND_S)

    def ask(self, **body: Any) -> Any:
        """Ask for a response that is not stored."""
        asked = {"model": "script", "input": ASKED, "instructions": f"Hide {SECRET}.", "store": False, **body}
        return self.client.post("/v1/responses", json=asked)

    def open_turn(self) -> tuple[str, list[Any]]:
        """Leave a turn open; return its run and the items of its answer."""
        made = self.ask(tools=TOOLS)
        assert sorted(item["type"] for item in made.json()["output"]) == ["function_call", "mcp_call"], made.text
        return made.headers["x-treadle-run"], made.json()["output"]

    def settle(self, output: list[Any], result: str = "seven") -> Any:
        """Send the whole turn back with the result of the client's call."""
        call = next(item for item in output if item["type"] == "function_call")
        done = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
        return self.ask(input=[{"role": "user", "content": ASKED}, call, done], tools=TOOLS)

    def kept(self, run_id: str) -> int:
        """Return how many entries are kept for the run that comes next."""
        return len(self.gateway.ask(self.gateway.runtime.store.entries(run_id, for_next=True)))


@pytest.fixture(params=["sqlite", "postgresql"])
def asker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Asker]:
    """One on each store."""
    with Gateway(_say, tmp_path, tools=(ours,), store=store_of(request.param, tmp_path)) as gateway:
        made = Asker(gateway)
        yield made
        made.client.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_not_stored_is_unusable_with_its_last_byte(asker: Asker, stream: bool) -> None:
    """Asked at once, and again and again: its id was never there to go on from."""
    for _ in range(25):
        made = asker.ask(stream=stream)
        run_id = made.headers["x-treadle-run"]
        response_id = asker.client.get(f"/treadle/v1/runs/{run_id}").json()["response_id"]
        after = asker.ask(previous_response_id=response_id)
        assert (after.status_code, after.json()["error"]["code"]) == (404, "previous_response_not_found")
        assert asker.kept(run_id) == 0


def _places(run_id: str, response_id: str) -> list[str]:
    """Return every path of the server that is about runs, for this one."""
    names = {"{run_id}": run_id, "{response_id}": response_id, "{round}": "1", "{view*}": f"runs/{run_id}"}
    paths: list[str] = []
    for route in TABLE:
        if "GET" in route.methods and "/mcp" not in route.pattern and not route.pattern.endswith("/live"):
            path = route.pattern
            for name, value in names.items():
                path = path.replace(name, value)
            if "{" not in path:
                paths.append(path)
    queries = [f"/treadle/v1/runs?text={SECRET}", "/treadle/v1/runs?tool=ours", f"/treadle/v1/sessions?search={SECRET}"]
    forms = [f"/treadle/v1/runs/{run_id}/export?format={form}" for form in ("jsonl", "cassette", "scenario")]
    return [*paths, *queries, *forms, f"/v1/responses/{response_id}?stream=true"]


@pytest.mark.parametrize("leaves_open", [False, True])
def test_no_way_to_read_a_run_shows_what_is_not_stored(asker: Asker, leaves_open: bool) -> None:
    """Every route that takes a run, every search, every export, what would run it again, and a reference to an item."""
    run_id, output = asker.open_turn()
    if not leaves_open:
        asker.settle(output)
    response_id = asker.client.get(f"/treadle/v1/runs/{run_id}").json()["response_id"]
    places = _places(run_id, response_id)
    assert len([path for path in places if run_id in path]) >= 8
    for path in places:
        assert SECRET not in asker.client.get(path).text, path
    for deed, body in (("replay", {}), ("replay", {"live_tools": True}), ("fork", {})):
        refused = asker.client.post(f"/treadle/v1/runs/{run_id}/{deed}", json=body)
        assert (refused.status_code, SECRET in refused.text) == (400, False)
    found = asker.client.get(f"/treadle/v1/runs?text={SECRET}").json()["runs"]
    by_tool = asker.client.get("/treadle/v1/runs?tool=ours").json()["runs"]
    assert (found, by_tool) == ([], [])
    for item in output:
        named = asker.ask(input=[{"type": "item_reference", "id": item["id"]}])
        assert (named.status_code, named.json()["error"]["code"]) == (404, "item_not_found")


def test_an_open_turn_says_until_when_it_is_kept_and_goes_with_its_results(asker: Asker) -> None:
    """The API shows the time; the model reads both results; then nothing is left."""
    run_id, output = asker.open_turn()
    shown = asker.client.get(f"/treadle/v1/runs/{run_id}").json()
    assert (shown["entries"], shown["kept_until"]) == ([], shown["created_at"] + KEPT_S)
    assert asker.kept(run_id) > 0
    done = asker.settle(output)
    assert (done.status_code, done.json()["status"]) == (200, "completed")
    sent = json.dumps(asker.gateway.upstream.received[-1].body.decode())
    assert (f"said {SECRET}" in sent, "seven" in sent) == (True, True)
    shown = asker.client.get(f"/treadle/v1/runs/{run_id}").json()
    assert (shown["kept_until"], asker.kept(run_id)) == (None, 0)
    assert asker.kept(done.headers["x-treadle-run"]) == 0


CHAIN = 3
"""How many open turns follow one another."""


def _say_on(plan: Plan) -> Reply:
    """Call both tools again and again, as often as the chain is long, then answer with the secret."""
    done = sum(isinstance(item, ResultItem) and item.name == "theirs" for item in plan.items)
    if done == CHAIN:
        return Reply(text=f"It is {SECRET}.")
    return Reply(calls=(ReplyCall(name="ours", args={"word": f"{SECRET} {done}"}), ReplyCall(name="theirs", args={})))


@pytest.mark.parametrize("way", ["by its id", "by the client"])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_of_a_chain_of_open_turns_nothing_is_left_at_its_end(tmp_path: Path, store: str, way: str) -> None:
    """However its turns are gone on with: the model reads all of them, each time, and the last end takes them all."""
    with Gateway(_say_on, tmp_path, tools=(ours,), store=store_of(store, tmp_path)) as gateway, ExitStack() as closing:
        asker, runs, carried = Asker(gateway), list[str](), [{"role": "user", "content": ASKED}]
        closing.callback(asker.client.close)
        made = asker.ask(tools=TOOLS)
        for turn in range(CHAIN):
            runs.append(made.headers["x-treadle-run"])
            assert [asker.kept(run_id) > 0 for run_id in runs] == [True] * len(runs)
            shown = [asker.client.get(f"/treadle/v1/runs/{run_id}").json() for run_id in runs]
            assert [each["entries"] for each in shown] == [[]] * len(runs)
            assert [each["kept_until"] for each in shown] == [each["created_at"] + KEPT_S for each in shown]
            call = next(item for item in made.json()["output"] if item["type"] == "function_call")
            done = {"type": "function_call_output", "call_id": call["call_id"], "output": f"theirs {turn}"}
            carried += [call, done]
            if way == "by its id":
                made = asker.ask(input=[done], previous_response_id=made.json()["id"], tools=TOOLS)
            else:
                made = asker.ask(input=carried, tools=TOOLS)
            sent = gateway.upstream.received[-1].body.decode()
            assert [sent.count(f"said {SECRET} {n}") for n in range(turn + 1)] == [1] * (turn + 1)
        assert made.json()["output"][-1]["content"][0]["text"] == f"It is {SECRET}."
        runs.append(made.headers["x-treadle-run"])
        assert [asker.kept(run_id) for run_id in runs] == [0] * len(runs)
        shown = [asker.client.get(f"/treadle/v1/runs/{run_id}").json() for run_id in runs]
        assert [(each["entries"], each["kept_until"]) for each in shown] == [([], None)] * len(runs)


def test_a_chain_of_open_turns_that_is_never_answered_expires(asker: Asker) -> None:
    """Each at the time that was shown for it, which is that of its own beginning."""
    run_id, output = asker.open_turn()
    call = next(item for item in output if item["type"] == "function_call")
    asker.gateway.upstream._source = _say_on
    done = {"type": "function_call_output", "call_id": call["call_id"], "output": "seven"}
    second = asker.ask(input=[{"role": "user", "content": ASKED}, call, done], tools=TOOLS)
    assert second.json()["output"][-1]["type"] == "function_call"
    runs = [run_id, second.headers["x-treadle-run"]]
    times = [asker.client.get(f"/treadle/v1/runs/{each}").json()["kept_until"] for each in runs]
    for gone, until in enumerate(times, 1):
        assert asker.gateway.ask(asker.gateway.runtime.store.expire(until)) == 1
        found = [asker.client.get(f"/treadle/v1/runs/{each}").status_code for each in runs]
        assert found == [404] * gone + [200] * (len(runs) - gone)
        assert [asker.kept(each) > 0 for each in runs[gone:]] == [True] * (len(runs) - gone)


def test_an_open_turn_outlives_an_answer_that_fails(asker: Asker) -> None:
    """The client asks again, and what the server did must not be forgotten, or it would be done twice."""
    run_id, output = asker.open_turn()
    assert asker.settle(output, "fail").status_code >= 500
    assert asker.kept(run_id) > 0
    assert asker.settle(output).status_code == 200
    assert asker.kept(run_id) == 0


def test_an_open_turn_that_is_never_answered_expires(asker: Asker) -> None:
    """At the time that was shown."""
    run_id, output = asker.open_turn()
    shown = asker.client.get(f"/treadle/v1/runs/{run_id}").json()
    assert asker.gateway.ask(asker.gateway.runtime.store.expire(shown["kept_until"])) == 1
    assert asker.client.get(f"/treadle/v1/runs/{run_id}").status_code == 404
    answered = asker.settle(output)
    assert answered.status_code == 200
    assert f"said {SECRET}" not in asker.gateway.upstream.received[-1].body.decode()


def test_a_question_can_be_read_until_it_is_answered(tmp_path: Path) -> None:
    """Who decides must see what about; with the end of the run that carries the call on it is gone."""
    with Gateway(_say, tmp_path, tools=(wipe,)) as gateway:
        asker = Asker(gateway)
        made = asker.ask(input="wipe")
        (question,) = made.json()["output"]
        assert (question["type"], question["name"]) == ("mcp_approval_request", "wipe")
        run_id = made.headers["x-treadle-run"]
        (shown,) = asker.client.get("/treadle/v1/approvals").json()["approvals"]
        assert (shown["id"], SECRET in json.dumps(shown)) == (question["id"], True)
        assert SECRET not in asker.client.get(f"/treadle/v1/runs/{run_id}").text
        verdict = {"type": "mcp_approval_response", "approval_request_id": question["id"], "approve": True}
        done = asker.ask(input=[{"role": "user", "content": "wipe"}, question, verdict])
        assert (done.status_code, done.json()["output"][0]["output"]) == (200, f"wiped {SECRET}")
        assert asker.client.get("/treadle/v1/approvals").json()["approvals"] == []
        assert asker.kept(run_id) == 0
        asker.client.close()


def test_the_files_hold_nothing_of_it(tmp_path: Path) -> None:
    """Neither the database nor its write-ahead log, once that is emptied; whole answers never come there at all."""
    with Gateway(_say, tmp_path, tools=(ours,)) as gateway:
        asker = Asker(gateway)
        asker.ask()
        assert not _holding(tmp_path)
        run_id, output = asker.open_turn()
        assert asker.kept(run_id) > 0
        asker.settle(output)
        asker.ask(stream=True)
        gateway.ask(gateway.runtime.store.expire(0.0))
        assert not _holding(tmp_path)
        counted = start.run([sys.executable, "-c", COUNT, str(tmp_path / "treadle.db")])
        assert (counted.stdout, counted.stderr) == ("0 0\n", "")
        asker.client.close()


def _holding(folder: Path) -> list[str]:
    """Return the files that hold it, as another process finds them: in this one only SQLite may open them."""
    found = start.run([sys.executable, "-c", FIND, SECRET, *map(str, folder.glob("treadle.db*"))])
    assert found.stderr == ""
    return found.stdout.split()


def test_an_answer_that_is_not_stored_is_not_given_again(tmp_path: Path) -> None:
    """Not from the cache of answers, and under its key only as long as the process remembers it."""
    with Gateway(_say, tmp_path, tools=(ours,), cache=CacheSection(enabled=True)) as gateway:
        asker = Asker(gateway)
        first, second = asker.ask(), asker.ask()
        assert (first.status_code, second.status_code, len(gateway.upstream.received)) == (200, 200, 2)
        keyed = {"idempotency-key": "one"}
        body = {"model": "script", "input": ASKED, "store": False}
        told = asker.client.post("/v1/responses", json=body, headers=keyed)
        gateway.runtime.runs._remembered.clear()
        gone = asker.client.post("/v1/responses", json=body, headers=keyed)
        assert (told.status_code, gone.status_code) == (200, 409)
        assert gone.json()["error"]["code"] == "idempotency_result_gone"
        asker.client.close()
