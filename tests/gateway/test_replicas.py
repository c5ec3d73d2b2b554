"""Two Treadles on one journal: whatever is asked of one about a run that the other drives is answered as by its own."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.gateway import Gateway
from person import person_headers
from postgres import postgres_server
from treadle import tool
from treadle.config import ServerSection, StoreSection
from treadle.core.items import ResultItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.tools import Tool

BOUND_S = 20.0
RUNS = "/treadle/v1/runs"
SESSIONS = "/treadle/v1/sessions"
PAGE = {"x-treadle-page": "1"}


class Gate:
    """A tool that runs until it is let go, and one that needs approval; `began` tells that the first one runs."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.go = threading.Event()
        self.wiped: list[str] = []

    @property
    def tools(self) -> tuple[Tool, ...]:
        """Return both."""

        @tool(effect="write", timeout_s=BOUND_S)
        def work() -> str:
            """Work."""
            self.began.set()
            self.go.wait(BOUND_S)
            return "worked"

        @tool(effect="destructive")
        def wipe(path: str) -> str:
            """Wipe something."""
            self.wiped.append(path)
            return "wiped"

        return work, wipe


def answer(plan: Plan) -> Reply:
    """Call the tool that was asked for by name; then say that it is done."""
    if isinstance(plan.items[-1], ResultItem):
        return Reply(text="done")
    text = str(plan.items[-1])
    call = ReplyCall(name="wipe", args={"path": "x"}) if "wipe" in text else ReplyCall(name="work", args={})
    return Reply(calls=(call,))


class Pair:
    """Two gateways on one journal."""

    def __init__(self, left: Gateway, right: Gateway, gate: Gate) -> None:
        self.left = httpx2.Client(base_url=left.origin, timeout=BOUND_S)
        self.right = httpx2.Client(base_url=right.origin, timeout=BOUND_S)
        self.gate = gate

    def begin(self, text: str = "work", **more: Any) -> str:
        """Begin a run at the left one and return its id when its tool runs."""
        body = {"model": "script", "input": text, "background": True, **more}
        made = self.left.post("/v1/responses", json=body)
        assert made.status_code == 200, made.text
        if text == "work":
            assert self.gate.began.wait(BOUND_S)
        return made.json()["id"]

    def own(self, text: str, **more: Any) -> str:
        """Begin a run of Treadle's own API at the left one and return its id."""
        return self.left.post(RUNS, json={"input": text, **more}).json()["id"]


def store_of(kind: str, folder: Path) -> StoreSection:
    """Return a fresh journal that both share."""
    return StoreSection(url=f"sqlite:///{folder}/shared.db" if kind == "sqlite" else postgres_server().url())


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """Two gateways."""
    gate = Gate()
    with ExitStack() as stack:
        store = store_of(request.param, tmp_path)
        both = [
            stack.enter_context(Gateway(answer, tmp_path, tools=gate.tools, store=store)) for _ in ("left", "right")
        ]
        found = Pair(both[0], both[1], gate)
        stack.callback(gate.go.set)
        yield found
        gate.go.set()
        found.left.close()
        found.right.close()


def events(client: httpx2.Client, run_id: str) -> list[dict[str, Any]]:
    """Return all events of a run, to its end."""
    told = client.get(f"{RUNS}/{run_id}/events").text
    return [json.loads(line.removeprefix("data:")) for line in told.splitlines() if line.startswith("data:")]


def test_both_tell_the_same_events_of_a_run(pair: Pair) -> None:
    """One reads from memory, the other from the journal: number by number the same."""
    run_id = pair.begin()
    told: list[list[dict[str, Any]]] = []
    reader = threading.Thread(target=lambda: told.append(events(pair.right, run_id)))
    reader.start()
    pair.gate.go.set()
    own = events(pair.left, run_id)
    reader.join(BOUND_S)
    assert told == [own]
    assert own[-1]["status"] == "completed"


def test_either_cancels_and_the_driver_ends_it(pair: Pair) -> None:
    """The call gets its result, the run one end, and both show it."""
    run_id = pair.begin()
    assert pair.right.post(f"/v1/responses/{run_id}/cancel").json()["status"] == "cancelled"
    assert pair.left.get(f"/v1/responses/{run_id}").json()["status"] == "cancelled"
    assert [each["type"] for each in events(pair.right, run_id)][-2:] == ["tool.finished", "run.ended"]


def test_either_decides_what_the_other_waits_for(pair: Pair) -> None:
    """The question is there at once, the answer is heard by whoever drives, and the call runs once."""
    run_id = pair.own("wipe")
    asked: list[dict[str, Any]] = []
    while not asked:
        asked = pair.right.get("/treadle/v1/approvals?status=pending").json()["approvals"]
    decided = pair.right.post(
        f"/treadle/v1/approvals/{asked[0]['id']}", json={"approve": True}, headers=person_headers()
    )
    assert decided.status_code == 200, decided.text
    assert events(pair.left, run_id)[-1]["status"] == "completed"
    assert pair.gate.wiped == ["x"]


def test_the_same_key_at_both_is_one_run(pair: Pair) -> None:
    """Whoever asks again elsewhere is given the run that goes on."""
    again: list[str] = []
    headers = {"idempotency-key": "k1"}
    body = {"model": "script", "input": "work"}

    def ask(client: httpx2.Client) -> None:
        again.append(client.post("/v1/responses", json=body, headers=headers).json()["id"])

    first = threading.Thread(target=ask, args=(pair.left,))
    first.start()
    assert pair.gate.began.wait(BOUND_S)
    second = threading.Thread(target=ask, args=(pair.right,))
    second.start()
    pair.gate.go.set()
    first.join(BOUND_S)
    second.join(BOUND_S)
    assert len(again) == 2
    assert len(set(again)) == 1


def test_a_session_is_carried_on_by_one_run_at_a_time(pair: Pair) -> None:
    """The other refuses while it goes on, and carries on from its end."""
    session = pair.left.post(SESSIONS, json={"name": "shared"}).json()["id"]
    first = pair.own("work", session=session)
    assert pair.gate.began.wait(BOUND_S)
    refused = pair.right.post(RUNS, json={"input": "work", "session": session})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "session_busy")
    pair.gate.go.set()
    assert events(pair.right, first)[-1]["status"] == "completed"
    second = pair.right.post(RUNS, json={"input": "work", "session": session})
    assert second.status_code == 201, second.text
    found = pair.left.get(f"{SESSIONS}/{session}/turns").json()["turns"]
    assert [each["run_id"] for each in found] == [first, second.json()["id"]]


def test_a_conversation_goes_on_at_the_other(pair: Pair) -> None:
    """What was said here is history there."""
    pair.gate.go.set()
    first = pair.left.post("/v1/responses", json={"model": "script", "input": "work"}).json()
    body = {"model": "script", "input": "work", "previous_response_id": first["id"]}
    assert pair.right.post("/v1/responses", json=body).json()["status"] == "completed"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_link_logs_in_once_and_a_logout_holds_everywhere(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two that know the same secret the second refuses a used link, and hears of a logout within seconds."""
    monkeypatch.setenv("TREADLE_SECRET", "s" * 40)
    monkeypatch.setattr("treadle.server.auth.login_state.REFRESH_S", 0.0)
    store, server = store_of(kind, tmp_path), ServerSection(login="always")
    with ExitStack() as stack:
        both = [stack.enter_context(Gateway(answer, tmp_path, store=store, server=server)) for _ in range(2)]
        left, right = (stack.enter_context(httpx2.Client(base_url=each.origin, timeout=BOUND_S)) for each in both)
        ticket = _link(both[0])
        made = left.post("/login", json={"ticket": ticket})
        assert made.status_code == 200
        assert right.post("/login", json={"ticket": ticket}).status_code == 401
        # A browser would send it to either behind one name; the name of the cookie has the port.
        value = made.headers["set-cookie"].split(";")[0].split("=", 1)[1]
        known = {"cookie": f"treadle_{right.base_url.port}={value}"}
        assert right.get("/treadle/v1/me", headers=known).status_code == 200
        own = {"cookie": f"treadle_{left.base_url.port}={value}", **PAGE}
        assert left.post("/treadle/v1/logout", headers=own).status_code == 204
        assert right.get("/treadle/v1/me", headers=known).status_code == 401


def _link(gateway: Gateway) -> str:
    """Return the ticket of a link as the command line makes one, which any process of the secret takes."""
    from treadle.server.auth.page_access import make_gate

    now = gateway.runtime.clock.now()
    return make_gate(gateway.runtime.settings, now).link_path("ada", "admin", now).partition("#")[2]
