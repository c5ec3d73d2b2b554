"""Answers that arrive damaged, through a whole Treadle: no call of one runs, and nobody is told that one is whole."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.gateway import Gateway
from hostile.upstream import DONE, Line, call, chunk, hostile_upstream, say
from treadle import tool
from treadle.config import Upstream
from treadle.config.settings import UpstreamsSection

SENT: list[str] = []
BEGUN, ENDED = '{"email":"a', '@evil"}'
CUT = call(BEGUN, name="send_mail")
REST = call(ENDED, name=None, call_id=None) + chunk(finish="tool_calls") + DONE
DAMAGES = {
    "half_a_frame": b'data: {"id":"c1","choices":[{"index":0,"delta":{"tool_ca\n\n',
    "error_in_words": b"event: error\ndata: upstream overloaded\n\n",
    "words": b"upstream overloaded\n\n",
    "detail": b'data: {"detail":"overloaded"}\n\n',
    "calls_in_words": chunk({"tool_calls": "oops"}),
    "no_choices": b'data: {"id":"c1","object":"chat.completion.chunk","chokces":[]}\n\n',
    "list": b"data: [1,2]\n\n",
    "not_utf8": b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n',
    "two_in_a_line": b'data: {"choices":[]}{"choices":[]}\n\n',
}


@tool
def send_mail(email: str) -> str:
    """Send a mail."""
    SENT.append(email)
    return "sent"


@contextmanager
def answered(folder: Path, *replies: bytes, retries: int = 0) -> Iterator[tuple[Gateway, list[dict[str, Any]]]]:
    """Run a gateway whose upstream gives these answers one after the other, the last one again and again."""
    SENT.clear()
    left = [*replies]

    def reply(line: Line) -> None:
        line.open()
        line.send(left.pop(0) if len(left) > 1 else left[0])

    quick = UpstreamsSection(retries=retries, backoff_s=0.0)
    with hostile_upstream({"script": reply}) as (url, asked):
        upstream = Upstream(name="bad", base_url=url, models=("*",))
        with Gateway([], folder, tools=(send_mail,), upstream=(upstream,), upstreams=quick) as gateway:
            yield gateway, asked


def post(gateway: Gateway, path: str = "chat/completions", **fields: Any) -> httpx2.Response:
    """Ask for an answer."""
    asked = {"input": "hi"} if path == "responses" else {"messages": [{"role": "user", "content": "hi"}]}
    return httpx2.post(f"{gateway.url}/{path}", json={"model": "script", **asked, **fields}, timeout=30)


def events(response: httpx2.Response) -> list[dict[str, Any]]:
    """Return the data of a stream."""
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object"}}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_call_with_a_hole_in_its_arguments_never_runs(name: str, tmp_path: Path) -> None:
    """What was lost, nobody knows: the answer is broken, whole and streamed."""
    with answered(tmp_path, CUT + DAMAGES[name] + REST) as (gateway, _):
        whole = post(gateway, enable_tools=["send_mail"])
        streamed = post(gateway, enable_tools=["send_mail"], stream=True)
    assert SENT == []
    # Nothing had been shown of it, so that the status can still say so.
    assert (whole.status_code, streamed.status_code) == (502, 502)


def test_an_answer_that_broke_unseen_is_asked_for_again(tmp_path: Path) -> None:
    """A client that waits sees nothing of it: the call runs once, as it was meant."""
    good = call('{"email":"a@good"}', name="send_mail") + chunk(finish="tool_calls") + DONE
    replies = (chunk({"content": "Let me"}) + CUT, good, say("Sent."))
    with answered(tmp_path, *replies, retries=2) as (gateway, asked):
        response = post(gateway, enable_tools=["send_mail"])
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "Sent."
    assert SENT == ["a@good"]
    assert len(asked) == 3


def test_an_answer_that_breaks_again_and_again_is_the_clients_to_ask_for_again(tmp_path: Path) -> None:
    """Nothing ran: Treadle asks as often as it may, and does not forbid the client to."""
    with answered(tmp_path, CUT, retries=2) as (gateway, asked):
        response = post(gateway, enable_tools=["send_mail"])
    assert (response.status_code, len(asked), SENT) == (502, 3, [])
    assert response.headers.get("x-should-retry") != "false"


def test_what_a_client_has_seen_is_not_asked_for_again(tmp_path: Path) -> None:
    """A stream that has begun ends as it is; one of which nothing was said yet is made again."""
    with answered(tmp_path, chunk({"content": "Let me"}), say("No."), retries=2) as (gateway, asked):
        seen = events(post(gateway, stream=True))
        assert ("error" in seen[-1], len(asked)) == (True, 1)
    with answered(tmp_path, chunk({"role": "assistant"}), say("Yes."), retries=2) as (gateway, asked):
        unseen = events(post(gateway, stream=True))
        assert "".join(choice["delta"].get("content") or "" for each in unseen for choice in each["choices"]) == "Yes."
        assert len(asked) == 2


def test_a_failure_after_a_tool_ran_is_not_the_clients_to_ask_for_again(tmp_path: Path) -> None:
    """It would run it a second time; the broken call alone is made again."""
    good = call('{"email":"a@good"}', name="send_mail") + chunk(finish="tool_calls") + DONE
    with answered(tmp_path, good, chunk({"content": "Se"}), retries=1) as (gateway, asked):
        response = post(gateway, enable_tools=["send_mail"])
    assert (response.status_code, len(asked), SENT) == (502, 3, ["a@good"])
    assert response.headers["x-should-retry"] == "false"


ENDS: dict[str, bytes] = {"failed": b"", "incomplete": chunk(finish="length") + DONE}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["function", "custom"])
def test_clients_of_responses_are_never_told_that_a_cut_call_is_done(end: str, kind: str, tmp_path: Path) -> None:
    """Some run whatever is said to be done, whatever its status: neither a done event nor the output has it."""
    offered = FUNCTION if kind == "function" else {"type": "custom", "name": "look"}
    body = call('{"input":"rm -rf /tmp', name="look") + ENDS[end]
    with answered(tmp_path, body) as (gateway, _):
        seen = events(post(gateway, "responses", tools=[offered], stream=True))
        kept = httpx2.get(f"{gateway.url}/responses/{seen[0]['response']['id']}", timeout=30).json()
    kinds = [event["type"] for event in seen]
    assert kinds[-1] == f"response.{end}"
    assert "response.output_item.added" in kinds
    assert [each for each in kinds if each.endswith(".done")] == []
    assert (seen[-1]["response"]["output"], kept["output"]) == ([], [])


def _followed(gateway: Gateway, first: dict[str, Any]) -> httpx2.Response:
    return post(gateway, "responses", previous_response_id=first["id"], tools=[FUNCTION])


def _replayed(gateway: Gateway, first: dict[str, Any]) -> httpx2.Response:
    cut = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"', "status": "incomplete"}
    told = [{"role": "user", "content": "hi"}, cut, {"role": "user", "content": "go on"}]
    return post(gateway, "responses", input=told, tools=[FUNCTION])


@pytest.mark.parametrize("again", [_followed, _replayed])
def test_a_conversation_goes_on_behind_a_call_that_was_cut(
    again: Callable[[Gateway, dict[str, Any]], httpx2.Response], tmp_path: Path
) -> None:
    """Whether Treadle remembers it or the client sends it back: no upstream is sent arguments that are no object."""
    cut = call('{"', name="look") + chunk(finish="length") + DONE
    with answered(tmp_path, cut, say("Well.")) as (gateway, asked):
        first = post(gateway, "responses", tools=[FUNCTION]).json()
        assert (first["status"], first["output"]) == ("incomplete", [])
        assert again(gateway, first).status_code == 200
    sent = asked[-1]["messages"]
    calls = [each["function"]["arguments"] for message in sent for each in message.get("tool_calls") or ()]
    assert [arguments for arguments in calls if not isinstance(json.loads(arguments), dict)] == []
    assert not any(message["role"] == "tool" for message in sent) or calls
