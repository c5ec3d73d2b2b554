"""Chat, Messages and Gemini wait while a person decides, judged by the vendors' own SDKs; the desk is over HTTP."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.apis import APIS, QUESTION, read_frames, text_of
from gateway.approvals.desk import (
    BOUND_S,
    LOOK,
    WIPE_B,
    WIPE_C,
    Meanwhile,
    Ran,
    decide,
    desk,
    listed,
    on_postgres,
    pending,
)
from gateway.gateway import Gateway
from gateway.judges import JUDGES, close_clients
from person import person_headers
from treadle.config import ServerSection
from treadle.config.settings import ApprovalsSection, PolicySection
from treadle.core.items import CallItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall

WAITING = ("chat", "messages", "gemini")
QUICK = ServerSection(keep_alive_s=0.05)
FETCH = ReplyCall(name="fetch", args={"url": "https://example.org"})
PUT = ReplyCall(name="put", args={"path": "x"})


@pytest.fixture
def ran() -> Ran:
    """What the tools ran with."""
    return Ran()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_clients()


def asked(gateway: Gateway, api: str, streams: bool) -> Meanwhile:
    """Let an SDK ask, beside the test."""
    return Meanwhile(lambda: JUDGES[api](gateway, "script", streams))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("api", WAITING)
def test_an_sdk_gets_its_answer_once_somebody_has_decided(tmp_path: Path, ran: Ran, api: str, streams: bool) -> None:
    """Two calls of one turn: one approved with other arguments, one denied; the stream is kept alive meanwhile."""
    store = {"store": on_postgres()} if streams else {}
    with desk(tmp_path, ran, LOOK, WIPE_B, WIPE_C, server=QUICK, **store) as gateway:
        asking = asked(gateway, api, streams)
        wipe_b, wipe_c = pending(gateway.origin, 2)
        assert decide(gateway.origin, wipe_b["id"], approve=True, arguments={"path": "z"}).status_code == 200
        assert decide(gateway.origin, wipe_c["id"], approve=False, reason="too dear").status_code == 200
        seen = asking.result()
        [row] = gateway.ask(gateway.runtime.store.list_runs())
        assert gateway.ask(gateway.runtime.runs.verify_replay(row)).is_same
    assert not seen.failed
    assert seen.text.startswith("seen | wiped z")
    assert "arguments_changed" in seen.text
    assert "a person denied this call: too dear" in seen.text
    assert ran.calls == [("look", "a"), ("wipe", "z")]


@pytest.mark.parametrize("api", WAITING)
def test_the_stream_is_kept_alive_with_empty_events_of_its_protocol(tmp_path: Path, ran: Ran, api: str) -> None:
    """No comments, nothing that a client could take for an answer, and then the answer."""
    with desk(tmp_path, ran, server=QUICK) as gateway:
        url, body = APIS[api].url(gateway, stream=True), APIS[api].content(stream=True)
        got = b""
        with httpx2.stream("POST", url, json=body, timeout=BOUND_S) as answer:
            assert answer.status_code == 200
            pieces = answer.iter_bytes()
            for piece in pieces:
                got += piece
                if len(read_frames(got)) >= 4:
                    break
            before = read_frames(got)
            [waiting] = listed(gateway.origin, status="pending")
            decide(gateway.origin, waiting["id"], approve=True)
            got += b"".join(pieces)
    assert b"\n:" not in got
    assert not got.startswith(b":")
    assert all("wiped" not in frame.data for frame in before)
    assert text_of(api, got) == "seen | wiped b"
    assert ran.calls == [("look", "a"), ("wipe", "b")]


@pytest.mark.parametrize("api", WAITING)
def test_what_nobody_decides_expires_and_was_not_denied(tmp_path: Path, ran: Ran, api: str) -> None:
    """The model reads which of the two it was, and the row keeps it."""
    with desk(tmp_path, ran, approvals=ApprovalsSection(wait_s=0.0)) as gateway:
        seen = asked(gateway, api, True).result()
        [kept] = listed(gateway.origin)
        late = decide(gateway.origin, kept["id"], approve=True)
    assert '"code":"expired"' in seen.text
    assert "No person denied it" in seen.text
    assert (kept["status"], late.status_code, late.json()["approval"]["status"]) == ("expired", 409, "expired")
    assert ran.calls == [("look", "a")]


@pytest.mark.parametrize("api", WAITING)
def test_a_client_that_leaves_takes_its_question_along(tmp_path: Path, ran: Ran, api: str) -> None:
    """The run is cancelled, the row says so, and nobody can approve it afterwards."""
    with desk(tmp_path, ran, server=QUICK) as gateway:
        url, body = APIS[api].url(gateway, stream=True), APIS[api].content(stream=True)
        with httpx2.stream("POST", url, json=body, timeout=BOUND_S) as answer:
            pieces = answer.iter_bytes()
            assert next(pieces)
            [waiting] = pending(gateway.origin)
        deadline = time.monotonic() + BOUND_S
        while (kept := listed(gateway.origin))[0]["status"] == "pending":
            assert time.monotonic() < deadline
        late = decide(gateway.origin, waiting["id"], approve=True)
        [row] = gateway.ask(gateway.runtime.store.list_runs())
    assert (kept[0]["status"], late.status_code, row.status) == ("cancelled", 409, "cancelled")
    assert ran.calls == [("look", "a")]


def test_of_two_deciders_one_wins_and_the_other_is_told(tmp_path: Path, ran: Ran) -> None:
    """Raced over HTTP: one 200, the others 409 with what stands; the call runs as the winner said."""
    with desk(tmp_path, ran) as gateway:
        asking = asked(gateway, "chat", True)
        [waiting] = pending(gateway.origin)
        racing = [
            Meanwhile(lambda by=by: decide(gateway.origin, waiting["id"], approve=by % 2 == 0, by=f"p{by}"))
            for by in range(6)
        ]
        answers = [each.result() for each in racing]
        seen = asking.result()
    [won] = [each.json() for each in answers if each.status_code == 200]
    lost = [each.json() for each in answers if each.status_code == 409]
    assert len(lost) == 5
    assert all(each["error"]["code"] == "approval_decided" for each in lost)
    assert all(each["approval"]["decision"] == won["decision"] for each in lost)
    is_approved = won["status"] == "approved"
    assert ran.calls == [("look", "a"), *([("wipe", "b")] if is_approved else [])]
    assert ("wiped b" in seen.text) is is_approved


def test_changed_arguments_must_fit_before_they_stand(tmp_path: Path, ran: Ran) -> None:
    """A missing field, an unknown one, a wrong type, no object: 400 to whoever decides, and the row stays pending."""
    with desk(tmp_path, ran) as gateway:
        asking = asked(gateway, "chat", False)
        [waiting] = pending(gateway.origin)
        for wrong in ({}, {"path": 1}, {"path": "b", "force": True}, "[]", "{"):
            refused = decide(gateway.origin, waiting["id"], approve=True, arguments=wrong)
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "arguments"), refused.text
        assert pending(gateway.origin) == [waiting]
        assert decide(gateway.origin, waiting["id"], approve=True, arguments='{"path": "ok"}').status_code == 200
        asking.result()
    assert ran.calls == [("look", "a"), ("wipe", "ok")]


def test_a_remembered_rule_answers_the_next_time(tmp_path: Path, ran: Ran) -> None:
    """For exactly this call, everywhere in this project: the same call runs unasked, until the rule is forgotten."""
    with desk(tmp_path, ran) as gateway:
        rules = f"{gateway.origin}/treadle/v1/approvals/rules"
        asking = asked(gateway, "chat", False)
        [waiting] = pending(gateway.origin)
        remember = {"kind": "call", "scope": "project"}
        decide(gateway.origin, waiting["id"], approve=True, remember=remember)
        asking.result()
        assert not asked(gateway, "messages", True).result().failed
        [rule] = httpx2.get(rules, timeout=BOUND_S).json()["rules"]
        assert (rule["rule"]["kind"], rule["rule"]["tool"], rule["session_id"]) == ("call", "wipe", None)
        assert httpx2.delete(f"{rules}/{rule['id']}", headers=person_headers(), timeout=BOUND_S).json() == {
            "id": rule["id"],
            "deleted": True,
        }
        assert httpx2.delete(f"{rules}/{rule['id']}", headers=person_headers(), timeout=BOUND_S).status_code == 404
        asking = asked(gateway, "chat", False)
        [again] = pending(gateway.origin)
        decide(gateway.origin, again["id"], approve=False)
        asking.result()
    assert ran.calls.count(("wipe", "b")) == 2


@pytest.mark.parametrize(("taint", "count"), [("ask", 1), ("off", 0)])
def test_after_untrusted_output_a_write_needs_approval(tmp_path: Path, ran: Ran, taint: Any, count: int) -> None:
    """In the next round; the desk says whose output was read. `policy.taint = "off"` asks nobody."""

    def answer(plan: Plan) -> Reply:
        made = sum(isinstance(item, CallItem) for item in plan.items)
        return (Reply(calls=(FETCH,)), Reply(calls=(PUT,)), Reply(text="done"))[made]

    with Gateway(answer, tmp_path, tools=ran.tools, policy=PolicySection(taint=taint)) as gateway:
        asking = asked(gateway, "chat", True)
        for waiting in pending(gateway.origin, count):
            assert waiting["is_tainted"]
            assert waiting["reasons"] == ["untrusted output of fetch was read before"]
            decide(gateway.origin, waiting["id"], approve=True)
        asking.result()
    assert [name for name, _ in ran.calls] == ["fetch", "put"]


def test_a_chat_answer_of_several_choices_asks_for_each(tmp_path: Path, ran: Ran) -> None:
    """Each choice is a run of its own; what only one of them may do is not offered at all."""
    with desk(tmp_path, ran) as gateway:
        body = {"model": "script", "n": 2, "messages": [{"role": "user", "content": QUESTION}]}
        got = httpx2.post(f"{gateway.url}/chat/completions", json=body, timeout=BOUND_S).json()
        assert listed(gateway.origin) == []
    assert len(got["choices"]) == 2
    assert ("wipe", "b") not in ran.calls


def test_a_person_at_a_terminal_decides_for_a_server_that_waits(tmp_path: Path, ran: Ran) -> None:
    """`treadle approvals` in another process, on the same store: the run hears it."""
    with desk(tmp_path, ran) as gateway:
        asking = asked(gateway, "chat", True)
        [waiting] = pending(gateway.origin)
        command = [sys.executable, "-m", "treadle.cli.main", "approvals", "approve", waiting["id"], "--json"]
        store = ["--store", f"sqlite:///{tmp_path / 'treadle.db'}"]
        done = subprocess.run([*command, *store], capture_output=True, text=True, timeout=BOUND_S, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        seen = asking.result()
    assert json.loads(done.stdout)["status"] == "approved"
    assert (seen.text, ran.calls) == ("seen | wiped b", [("look", "a"), ("wipe", "b")])
