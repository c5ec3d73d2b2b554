"""Every way in which a run ends from outside, for each protocol, streamed or not, as the vendors' own SDKs see it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from gateway.gateway import Gateway
from gateway.test_keys import key
from treadle.config import ServerSection
from treadle.config.access_settings import KeysSection
from treadle.config.settings import ApprovalsSection, LimitsSection
from treadle.core.errors import StoreError
from treadle.core.items import ResultItem
from treadle.core.plan import Plan
from treadle.core.run_endings import ENDINGS, REVOKED, SERVER_STOPPING, Ending, failure_of, may_retry
from treadle.engine.run_state import RunState
from treadle.journal.write_futures import failed
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall
from treadle.runs.active_run import LiveRun
from treadle.tools import tool

BOUND_S = 30.0
TEXT = "It is 17 °C in Paris, and it will stay so until the evening. "
QUESTION = "What is the weather?"
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
PROTOCOLS = ("chat", "responses", "messages", "gemini")
SHARED = {"idempotency-key": "one", "x-treadle-on-disconnect": "cancel"}


NOTHING: Mapping[str, str] = MappingProxyType({})


class Read(NamedTuple):
    """A piece of an answer: its text, and the form of the answer where the piece ends it."""

    text: str
    form: str = ""


class Outcome(NamedTuple):
    """What a client saw: the form of the answer, and of an error its code, status and headers, as far as they show."""

    form: str
    code: str = ""
    status: int = 0
    headers: Any = None


class Desk:
    """A gateway with a model that falls silent half-way, and a client of it beside the test."""

    def __init__(self, folder: Path, stack: ExitStack, **sections: Any) -> None:
        calls = sections.pop("calls", "")
        tools = sections.pop("tools", ())
        keys = KeysSection(required="always")
        made = Gateway(partial(_say, calls), folder, chunk_bytes=64, tools=tools, keys=keys, **sections)
        self.gateway = stack.enter_context(made)
        stack.callback(self.release)
        self.key = key(self.gateway, folder, "ada")
        admin = {"authorization": f"Bearer {key(self.gateway, folder, 'admin', role='admin')}"}
        self.admin = stack.enter_context(httpx2.Client(base_url=self.gateway.origin, headers=admin, timeout=BOUND_S))
        self._stack = stack
        self._began = threading.Event()
        self.seen: Outcome | None = None

    def begin(self, protocol: str, *, streams: bool, headers: Mapping[str, str], background: bool) -> threading.Thread:
        """Ask, and return when the model has spoken, as far as that can be seen."""
        reads = ASK[protocol](self, streams, headers, background)
        thread = threading.Thread(target=self._read, args=(reads,))
        thread.start()
        if streams:
            assert self._began.wait(BOUND_S)
        else:
            self.gateway.ask(self._asked())
        return thread

    @property
    def run_id(self) -> str:
        """Return the id of the only run."""
        (row,) = self.gateway.ask(self.gateway.runtime.store.list_runs())
        return row.id

    def release(self) -> None:
        """Let the model go on."""
        self.gateway.loop.call_soon_threadsafe(self.gateway.upstream.release.set)

    def openai(self) -> openai.OpenAI:
        return self._stack.enter_context(openai.OpenAI(base_url=self.gateway.url, api_key=self.key, max_retries=0))

    def anthropic(self) -> anthropic.Anthropic:
        made = anthropic.Anthropic(base_url=self.gateway.origin, api_key=self.key, max_retries=0)
        return self._stack.enter_context(made)

    def google(self, headers: Mapping[str, str]) -> genai.Client:
        options = genai_types.HttpOptions(base_url=self.gateway.origin, headers=dict(headers))
        made = genai.Client(api_key=self.key, http_options=options)
        self._stack.callback(made.close)
        return made

    async def _asked(self) -> None:
        while not self.gateway.upstream.received:
            await self.gateway.runtime.clock.sleep(0.002)

    def _read(self, reads: Iterator[Read]) -> None:
        self.seen = _outcome(reads, self._began)


def _say(calls: str, plan: Plan) -> Reply:
    """Call a tool first, if one is named; then answer, slowly."""
    if calls and not isinstance(plan.items[-1], ResultItem):
        return Reply(calls=(ReplyCall(name=calls, args={}),))
    return Reply(text="Done.") if calls else Reply(text=TEXT, faults=Faults(stall_s=60.0))


def _outcome(reads: Iterator[Read], began: threading.Event) -> Outcome:
    form = "silent"
    try:
        for each in reads:
            if each.text:
                began.set()
            form = each.form or form
    except (openai.APIConnectionError, anthropic.APIConnectionError):
        return Outcome("broken")
    except openai.APIError as error:
        return Outcome("error", str(error.code), *_about(error))
    except anthropic.APIError as error:
        return Outcome("error", "", *_about(error))
    except genai_errors.APIError as error:
        return Outcome("error", "", error.code)
    return Outcome(form)


def _about(error: Any) -> tuple[int, Any]:
    response = getattr(error, "response", None)
    return (0, None) if response is None else (response.status_code, response.headers)


def _said(code: str) -> openai.APIError:
    """Return what a stream of responses reports without raising, as the error that other streams raise."""
    request: Any = httpx2.Request("POST", "http://127.0.0.1/")
    return openai.APIError(code, request, body={"code": code})


_FINISH = {"stop": "answer", "tool_calls": "answer", "length": "cut", None: ""}
_STOP = {"end_turn": "answer", "tool_use": "answer", "max_tokens": "cut", None: ""}
_REASON = {"STOP": "answer", "MAX_TOKENS": "cut"}


def _chat(desk: Desk, streams: bool, headers: Mapping[str, str], background: bool) -> Iterator[Read]:
    made: Any = desk.openai().chat.completions.create(
        model="script", messages=MESSAGES, stream=streams, extra_headers=headers
    )
    if not streams:
        yield Read(made.choices[0].message.content, _FINISH[made.choices[0].finish_reason])
        return
    with made:
        for choice in (choice for chunk in made for choice in chunk.choices):
            yield Read(choice.delta.content or "", _FINISH[choice.finish_reason])


def _responses(desk: Desk, streams: bool, headers: Mapping[str, str], background: bool) -> Iterator[Read]:
    made: Any = desk.openai().responses.create(
        model="script", input=QUESTION, stream=streams, background=background, extra_headers=headers
    )
    if not streams:
        yield Read(made.output_text, {"completed": "answer", "incomplete": "cut"}[made.status])
        return
    code = ""
    with made:
        for event in made:
            if event.type == "response.output_text.delta":
                yield Read(event.delta)
            elif event.type == "error":
                code = event.code
            elif event.type == "response.failed":
                raise _said(event.response.error.code)
            elif event.type == "response.incomplete" and event.response.status == "cancelled":
                assert [item.status for item in event.response.output] == ["incomplete"]
                assert code
                raise _said(code)
            elif event.type in ("response.completed", "response.incomplete"):
                yield Read("", {"completed": "answer", "incomplete": "cut"}[event.response.status])


def _messages(desk: Desk, streams: bool, headers: Mapping[str, str], background: bool) -> Iterator[Read]:
    made: Any = desk.anthropic().messages.create(
        model="script", max_tokens=100, messages=MESSAGES, stream=streams, extra_headers=headers
    )
    if not streams:
        yield Read(made.content[0].text, _STOP[made.stop_reason])
        return
    with made:
        for event in made:
            if event.type == "content_block_delta":
                yield Read(event.delta.text)
            elif event.type == "message_delta":
                yield Read("", _STOP[event.delta.stop_reason])


def _gemini(desk: Desk, streams: bool, headers: Mapping[str, str], background: bool) -> Iterator[Read]:
    models = desk.google(headers).models
    if streams:
        chunks: Any = models.generate_content_stream(model="script", contents=QUESTION)
    else:
        chunks = [models.generate_content(model="script", contents=QUESTION)]
    for chunk in chunks:
        for each in chunk.candidates or ():
            yield Read(chunk.text or "", _REASON[each.finish_reason.name] if each.finish_reason else "")


ASK: dict[str, Callable[[Desk, bool, Mapping[str, str], bool], Iterator[Read]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}


def _cancel(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    assert desk.admin.post(f"/treadle/v1/runs/{desk.run_id}/cancel", json={}).json()["status"] == "cancelled"


def _cancel_response(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    (row,) = desk.gateway.ask(desk.gateway.runtime.store.list_runs())
    own = {"authorization": f"Bearer {desk.key}"}
    done = desk.admin.post(f"/v1/responses/{row.response_id}/cancel", json={}, headers=own)
    assert (done.json()["status"], done.json()["incomplete_details"]) == ("cancelled", None)


def _revoke(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    assert desk.admin.delete("/treadle/v1/keys/ada").status_code == 200


def _expire(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    desk.gateway.ask(_end_keys(desk))
    desk.release()


async def _end_keys(desk: Desk) -> None:
    store: Any = desk.gateway.runtime.store
    await store._write_job(lambda connection: connection.execute("UPDATE keys SET expires_at = 1.0"))


def _leave(desk: Desk, again: Callable[[], Iterator[Read]]) -> None:
    reads = again()
    assert next(each.text for each in reads if each.text)
    reads.close()  # type: ignore[attr-defined]
    desk.release()


def _wait(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    """Do nothing: it ends by itself."""


def _stop_server(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    desk.gateway.ask(desk.gateway.runtime.runs.close())


def _take_over(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    run_id, store = desk.run_id, desk.gateway.runtime.store
    desk.gateway.ask(store.end_leases(desk.gateway.runtime.runs._options.owner))
    [(row, _journal)] = desk.gateway.ask(store.claim_abandoned("another", 600.0, 1))
    assert row.id == run_id
    desk.release()


def _deny(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    asked: list[Any] = []
    while not asked:
        asked = desk.admin.get("/treadle/v1/approvals?status=pending").json()["approvals"]
    denied = desk.admin.post(f"/treadle/v1/approvals/{asked[0]['id']}", json={"approve": False})
    assert denied.status_code == 200, denied.text


def _break_store(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    gone = StoreError("The database does not answer.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveRun, "append", lambda *_: failed(gone))
        desk.release()
        _until_over(desk)


def _break_engine(desk: Desk, _: Callable[[], Iterator[Read]]) -> None:
    def broken(_: RunState) -> Any:
        raise LookupError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "decide", broken)
        desk.release()
        _until_over(desk)


def _until_over(desk: Desk) -> None:
    runs = desk.gateway.runtime.runs

    async def over() -> None:
        while runs._live:
            await desk.gateway.runtime.clock.sleep(0.002)

    desk.gateway.ask(over())


@tool(effect="read")
def look() -> str:
    """Look."""
    return "17"


@tool(effect="destructive")
def wipe() -> str:
    """Wipe."""
    raise AssertionError("it was denied")


class Cause(NamedTuple):
    """How an ending is brought about: what the gateway is configured with, what is done once the model has spoken."""

    act: Callable[[Desk, Callable[[], Iterator[Read]]], None]
    sections: Mapping[str, Any] = NOTHING
    protocols: tuple[str, ...] = PROTOCOLS
    streams: tuple[bool, ...] = (True, False)
    headers: Mapping[str, str] = NOTHING
    background: bool = False


_BACKGROUND: dict[str, Any] = {"protocols": ("responses",), "streams": (True,), "background": True}
CAUSES: dict[str, Cause] = {
    "operator_cancel": Cause(_cancel),
    "responses_cancel": Cause(_cancel_response, **_BACKGROUND),
    "revoked_key": Cause(_revoke),
    "expired_key": Cause(_expire),
    "disconnect": Cause(_leave, headers=SHARED, streams=(True,)),
    "limit": Cause(_wait, {"limits": LimitsSection(max_iterations=1), "tools": (look,), "calls": "look"}),
    "wall_time": Cause(_wait, {"limits": LimitsSection(wall_s=1.0)}),
    "idle_time": Cause(_wait, {"limits": LimitsSection(idle_s=1.0)}),
    "shutdown": Cause(_stop_server),
    "hand_over": Cause(_stop_server, **_BACKGROUND),
    "lease_lost": Cause(_take_over),
    "store_failure": Cause(_break_store),
    "internal_error": Cause(_break_engine),
    "approval": Cause(
        _deny, {"tools": (wipe,), "calls": "wipe", "approvals": ApprovalsSection(responses="wait")}, streams=(False,)
    ),
}
_NOT_HERE = {"interrupted", "limit_json"}
"""The first needs a process that died: tests/crash and the encoders' own tests have it. The second needs a request of
its own: `test_choice_and_limits.py` has it."""


def test_every_ending_is_brought_about() -> None:
    """The table and this file know the same ones."""
    assert {ending.name for ending in ENDINGS} == CAUSES.keys() | _NOT_HERE
    assert {ending.name for ending in ENDINGS if ending.end and ending.end.error is SERVER_STOPPING} == {"shutdown"}
    assert {ending.name for ending in ENDINGS if ending.end and ending.end.error is REVOKED} == {"revoked_key"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ending", [each for each in ENDINGS if each.name in CAUSES], ids=lambda each: each.name)
def test_each_ending_is_said_in_each_protocol(tmp_path: Path, ending: Ending, protocol: str) -> None:
    """Never as a finished answer unless it is one, and unstreamed with the status and the headers that it deserves."""
    cause = CAUSES[ending.name]
    if protocol not in cause.protocols:
        return
    for streams in cause.streams:
        folder = tmp_path / str(streams)
        folder.mkdir()
        with ExitStack() as stack:
            desk = Desk(folder, stack, **cause.sections)
            thread = desk.begin(protocol, streams=streams, headers=cause.headers, background=cause.background)
            cause.act(desk, partial(ASK[protocol], desk, streams, cause.headers, cause.background))
            thread.join(BOUND_S)
            seen = desk.seen
        assert seen is not None
        assert (streams, seen.form) == (streams, ending.form)
        if seen.form == "error":
            _check(ending, protocol, streams, seen)


def _check(ending: Ending, protocol: str, streams: bool, seen: Outcome) -> None:
    assert ending.end is not None
    failure = failure_of(ending.end)
    assert failure is not None
    # A stream of Responses that fails has a code of that API.
    if protocol == "chat" or (protocol == "responses" and (not streams or ending.end.status == "cancelled")):
        assert seen.code == failure.code
    if streams:
        return
    assert seen.status == failure.status
    if protocol != "gemini":
        retries = may_retry(failure, has_run_tools=False, is_keyed=False)
        assert (seen.headers.get("x-should-retry") is None) == retries
        assert ("retry-after" in seen.headers) == (retries and failure.status == 503)


def test_choices_that_are_cancelled_end_in_one_error(tmp_path: Path) -> None:
    """Of several runs that answer one request the first bad end is the end of all."""
    with ExitStack() as stack:
        desk = Desk(tmp_path, stack)
        stream: Any = desk.openai().chat.completions.create(model="script", messages=MESSAGES, stream=True, n=2)
        choices = (choice for chunk in stream for choice in chunk.choices)
        assert next(choice.finish_reason for choice in choices if choice.delta.content) is None
        desk.admin.post(f"/treadle/v1/runs/{stream.response.headers['x-treadle-run']}/cancel", json={})
        ended: list[str] = []
        with pytest.raises(openai.APIError, match="cancelled") as raised:
            ended.extend(choice.finish_reason for choice in choices if choice.finish_reason)
    assert (raised.value.code, ended) == ("cancelled", [])


def test_events_of_a_run_that_is_handed_over_are_cut_off(tmp_path: Path) -> None:
    """Its end is not among them: a reader that took the connection's end for the run's would miss the rest."""
    with ExitStack() as stack:
        desk = Desk(tmp_path, stack, server=ServerSection(keep_alive_s=0.05))
        thread = desk.begin("responses", streams=True, headers={}, background=True)
        path = f"/treadle/v1/runs/{desk.run_id}/events"
        told: list[bytes] = []
        with desk.admin.stream("GET", path) as response:
            pieces = response.iter_bytes()
            told.append(next(pieces))
            desk.gateway.ask(desk.gateway.runtime.runs.close())
            with pytest.raises(httpx2.RemoteProtocolError):
                told.extend(pieces)
        assert b"run.ended" not in b"".join(told)
        thread.join(BOUND_S)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cancel_at_another_replica_ends_the_stream_in_an_error(tmp_path: Path, protocol: str) -> None:
    """Who drives the run hears of it by the journal."""
    with ExitStack() as stack:
        desk = Desk(tmp_path, stack)
        made = Gateway(partial(_say, ""), tmp_path, keys=KeysSection(required="always"))
        other = stack.enter_context(made)
        thread = desk.begin(protocol, streams=True, headers=NOTHING, background=False)
        path = f"{other.origin}/treadle/v1/runs/{desk.run_id}/cancel"
        cancelled = desk.admin.post(path, json={})
        thread.join(BOUND_S)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert desk.seen is not None
    assert desk.seen.form == "error"
