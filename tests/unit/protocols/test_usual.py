import gc
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ErrorInfo, ProtocolError
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
    MessageItem,
    ReasoningItem,
    ResultItem,
    Role,
    TextPart,
)
from treadle.core.plan import Plan
from treadle.core.request import Request
from treadle.protocols.chat import client_messages as chat_messages
from treadle.protocols.chat import client_request as chat_request
from treadle.protocols.chat import upstream_request as chat_write
from treadle.protocols.gemini import client_contents as gemini_contents
from treadle.protocols.gemini import client_request as gemini_request
from treadle.protocols.gemini import upstream_contents as gemini_history
from treadle.protocols.messages import client_messages as history
from treadle.protocols.messages import client_request as messages_request
from treadle.protocols.messages import upstream_messages as dialogue
from treadle.protocols.messages.provider_state import REDACTED, SIGNATURE
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.responses import client_request as responses_request
from treadle.protocols.responses import upstream_input as replies_history
from treadle.protocols.responses import upstream_request as replies_write
from treadle.protocols.responses.encrypted_content import SEALED
from treadle.protocols.responses.upstream_item_drafts import ITEM_ID
from unit.protocols.histories import BODIES, Writer

SEEDS = range(200)
LONG = "Some words of one turn. "
PLAIN: dict[str, Callable[[int], dict[str, Any]]] = {
    "chat": lambda turns: {"model": "m", "messages": _said(turns)},
    "messages": lambda turns: {"model": "m", "max_tokens": 9, "messages": _said(turns)},
    "responses": lambda turns: {"model": "m", "input": _said(turns)},
    "gemini": lambda turns: {
        "contents": [{"role": ("user", "model")[turn % 2], "parts": [{"text": LONG}]} for turn in range(turns)]
    },
}


def _said(turns: int) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[turn % 2], "content": LONG} for turn in range(turns)]


def _nothing(*_given: Any, **_named: Any) -> None:
    return None


def _forget_shapes(patch: pytest.MonkeyPatch) -> None:
    """Have every message read field by field, as if it were of no usual shape."""
    for module in (chat_request, messages_request, responses_request, gemini_request):
        patch.setattr(module, "SHAPES", ())
    for module, name in (
        (chat_messages, "usual_message"),
        (history, "usual_message"),
        (gemini_contents, "_usual_of"),
    ):
        patch.setattr(module, name, _nothing)


def _reads(protocol: str) -> list[Request | ErrorInfo]:
    found: list[Request | ErrorInfo] = []
    for seed in SEEDS:
        body = json.dumps(BODIES[protocol](Writer(seed))).encode()
        try:
            found.append(PROTOCOLS[protocol].codec.read_request(body))
        except ProtocolError as error:
            found.append(error.info)
    return found


@pytest.mark.parametrize("protocol", BODIES)
def test_a_usual_history_is_read_as_any_other(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way gives the same items, notes and refusals as the long one."""
    short = _reads(protocol)
    _forget_shapes(monkeypatch)
    assert _reads(protocol) == short
    assert sum(isinstance(read, Request) for read in short) > len(short) / 2


def _written(upstream: str, histories: list[tuple[AnyItem, ...]]) -> list[Any]:
    plans = (Plan(items=items, model="m") for items in histories)
    return [PROTOCOLS[upstream].codec.write_request(plan, provider="openai") for plan in plans]


OWN = Extra(protocol="messages", fields={"cache_control": msgspec.Raw(b'{"type":"ephemeral"}')})
LIKELY = 12
"""One in so many of the things that can be odd in a history of work is."""


class Worker:
    """A history of talk and calls as canonical items; most of it is in order, and anything can be odd."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._calls = 0

    def items(self) -> tuple[AnyItem, ...]:
        """Return up to six rounds."""
        return tuple(item for _ in range(self._random.randint(1, 6)) for item in self._round())

    def _odd(self, usual: Any, *others: Any) -> Any:
        return self._random.choice(others) if self._random.randrange(LIKELY * 3) == 0 else usual

    def _text(self) -> TextPart:
        return TextPart(text=self._odd("words ", "", " ", "é"), extra=self._odd(None, OWN))

    def _said(self, role: Role) -> MessageItem:
        parts = (self._text(),) * self._odd(1, 0, 2)
        name, phase = self._odd(None, "Ann"), self._odd(None, "final_answer")
        return MessageItem(role=self._odd(role, "system", "user"), content=parts, name=name, phase=phase)

    def _round(self) -> list[AnyItem]:
        said: list[AnyItem] = [self._said("user")] if self._random.random() < 0.6 else []
        said += self._odd([], [self._thought()], [self._thought(), self._thought()])
        said += [self._said("assistant")] if self._random.random() < 0.6 else []
        said += self._odd([], [self._thought()])
        calls = [self._call() for _ in range(self._random.choice((0, 1, 1, 2)))]
        results = [self._result(call) for call in calls]
        self._odd(list[ResultItem].copy, list[ResultItem].reverse, list[ResultItem].clear)(results)
        return [*said, *calls, *self._odd((), (self._said("assistant"),)), *results, *self._odd((), results[:1])]

    def _thought(self) -> ReasoningItem:
        kinds = (SIGNATURE, REDACTED, SEALED, ITEM_ID)
        blobs = [Blob(provider="openai", kind=kind, data="abc", model=self._odd("", "m", "n")) for kind in kinds]
        told = self._random.sample(blobs, self._random.choice((1, 2, 4)))
        return ReasoningItem(text=self._odd(("why",), ()), summary=self._odd((), ("so",)), blobs=tuple(told))

    def _call(self) -> CallItem:
        self._calls += self._odd(1, 0)
        return CallItem(
            call_id=self._odd(f"call_{self._calls}", f"call.{self._calls}"),
            name="f",
            arguments=self._odd('{"a": 1}', "", "[1]", "{"),
            kind=self._odd("function", "custom"),
            namespace=self._odd(None, "space"),
            extra=self._odd(None, OWN),
        )

    def _result(self, call: CallItem) -> ResultItem:
        return ResultItem(
            call_id=call.call_id,
            name=call.name,
            output=(self._text(),) * self._odd(1, 0, 2),
            is_error=self._odd(False, True),
            kind=call.kind,
            extra=self._odd(None, OWN),
        )


@pytest.mark.parametrize("upstream", PROTOCOLS)
def test_a_usual_history_is_written_as_any_other(upstream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The short way gives the same bytes and notes as the long one, whatever protocol the history came in."""
    bodies = [(name, json.dumps(PLAIN[name](turns)).encode()) for name in PLAIN for turns in (1, 4)]
    requests = [PROTOCOLS[name].codec.read_request(body) for name, body in bodies]
    requests += [read for name in BODIES for read in _reads(name) if isinstance(read, Request)]
    histories = [request.items for request in requests]
    histories += [Worker(seed).items() for seed in range(1_000)]
    short = _written(upstream, histories)
    for module, name in (
        (chat_write._Usual, "messages"),
        (dialogue, "_usual_turns"),
        (replies_write, "write_plain_input"),
        (gemini_history, "plain_turns"),
        (chat_write, "_plain_result"),
        (chat_write, "plain_text"),
        (dialogue, "plain_text"),
        (replies_history, "plain_text"),
    ):
        monkeypatch.setattr(module, name, _nothing)
    assert _written(upstream, histories) == short


@pytest.mark.parametrize(
    "write",
    [
        lambda items: Plan(items=items, model="m").fold(chat_write._Usual).messages(),
        lambda items: dialogue._usual_turns(items, "openai", "m"),
        lambda items: replies_history.write_plain_input(items, provider="openai", model="m"),
    ],
    ids=["chat", "messages", "responses"],
)
def test_most_histories_of_work_are_usual(write: Callable[[tuple[AnyItem, ...]], Any]) -> None:
    """The short way is taken often enough to be worth having, and not by all that may be odd."""
    taken = [write((MessageItem(role="user", content=(TextPart(text="u"),)), *Worker(seed).items())) for seed in SEEDS]
    assert len(taken) / 4 < sum(written is not None for written in taken) < len(taken)


def _calls(work: Callable[[], object]) -> int:
    count = 0

    def heard(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("protocol", PLAIN)
def test_a_turn_more_costs_no_call_more(protocol: str) -> None:
    """A history in which people and the model only talk is read and written in a number of calls that never grows."""

    def work(turns: int) -> int:
        body = json.dumps(PLAIN[protocol](turns)).encode()

        def both() -> bytes:
            items = PROTOCOLS[protocol].codec.read_request(body).items
            return PROTOCOLS[protocol].codec.write_request(Plan(items=items, model="m")).body

        both()
        return _calls(both)

    assert work(200) == work(20)


@pytest.mark.parametrize("protocol", PLAIN)
def test_a_plain_history_is_the_same_bytes_again(protocol: str) -> None:
    """What a client says to an upstream of its own protocol arrives as it was said."""
    field = {"responses": "input", "gemini": "contents"}.get(protocol, "messages")
    asked = PLAIN[protocol](5)
    read = PROTOCOLS[protocol].codec.read_request(json.dumps(asked).encode())
    sent = json.loads(PROTOCOLS[protocol].codec.write_request(Plan(items=read.items, model="m")).body)
    expected = asked[field]
    assert sent[field] == ([{"type": "message", **each} for each in expected] if protocol == "responses" else expected)
    assert read.notes == ()


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("chat", b'{"model":"m","messages":[{"role":"user","content":"a%bb"}]}'),
        ("messages", b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a%bb"}]}'),
        ("responses", b'{"model":"m","input":[{"role":"user","content":"a%bb"}]}'),
        ("gemini", b'{"contents":[{"role":"user","parts":[{"text":"a%bb"}]}]}'),
    ],
)
def test_half_a_character_in_a_plain_history_is_mended_and_noted(protocol: str, body: bytes) -> None:
    """The short way is not taken past what the long one repairs; a whole pair needs no repair."""
    mended = PROTOCOLS[protocol].codec.read_request(body % rb"\ud83d")
    whole = PROTOCOLS[protocol].codec.read_request(body % rb"\ud83d\ude00")
    assert [(note.code, note.count) for note in mended.notes] == [("lone_surrogate", 1)]
    assert "a\ufffdb" in repr(mended.items)
    assert "a\U0001f600b" in repr(whole.items)
    assert whole.notes == ()


@pytest.mark.parametrize(("depth", "is_taken"), [(40, True), (59, True), (60, False), (70, False)])
def test_what_stands_in_a_usual_block_has_the_bound_of_the_whole(depth: int, is_taken: bool) -> None:
    """The input of a call nests as deep as the body may, counted from the outside, and no deeper."""
    given = b'{"a":' * depth + b"1" + b"}" * depth
    use = b'{"type":"tool_use","id":"a","name":"f","input":%b}' % given
    body = b'{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[%b]}]}' % use
    if is_taken:
        assert PROTOCOLS["messages"].codec.read_request(body).items
        return
    with pytest.raises(ProtocolError, match="JSON nests deeper than 64 levels"):
        PROTOCOLS["messages"].codec.read_request(body)


def test_a_history_is_nothing_to_the_garbage_collector() -> None:
    """Items and their parts cannot refer to themselves, so that thousands of them slow nothing else down."""
    body = json.dumps({"model": "m", "messages": [*_said(2), {"role": "user", "content": "x", "name": "Ann"}]}).encode()
    items = PROTOCOLS["chat"].codec.read_request(body).items
    parts = [part for item in items if isinstance(item, MessageItem) for part in item.content]
    assert len(parts) == 3
    assert not any(gc.is_tracked(each) for each in (*items, *parts))


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "chat": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "messages": [{"name": "f", "input_schema": SCHEMA}],
    "responses": [{"type": "function", "name": "f", "parameters": SCHEMA}],
    "gemini": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}],
}


@pytest.mark.parametrize("protocol", TOOLS)
def test_the_same_tools_are_the_same_object(protocol: str) -> None:
    """So what is made of them can be kept; a tool that is refused or noted is so for every request that has it."""

    def read(tools: list[dict[str, Any]], turns: int = 1) -> Request:
        return PROTOCOLS[protocol].codec.read_request(json.dumps({**PLAIN[protocol](turns), "tools": tools}).encode())

    first, other = read(TOOLS[protocol]), read(TOOLS[protocol], turns=3)
    assert [(tool.name, json.loads(bytes(tool.parameters))) for tool in first.tools] == [("f", SCHEMA)]
    assert other.tools is first.tools
    assert (first.notes, other.notes) == ((), ())
    renamed = json.loads(json.dumps(TOOLS[protocol]).replace('"f"', '"g"'))
    assert [tool.name for tool in read(renamed).tools] == ["g"]
    nameless = json.loads(json.dumps(TOOLS[protocol]).replace('"name": "f"', '"name": 5'))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="name"):
            read(nameless)
    twice = json.loads(json.dumps(TOOLS[protocol] * 2).replace('"string"', '"number"', 1))
    assert read(twice).notes == read(twice).notes != ()


def test_what_one_request_does_with_its_tools_is_nothing_to_another() -> None:
    """A choice that narrows the tools which the upstream runs leaves those of other requests alone."""
    tools = [{"type": "web_search"}, {"type": "file_search"}, *TOOLS["responses"]]
    body = {**PLAIN["responses"](1), "tools": tools}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    whole, narrowed, again = (
        PROTOCOLS["responses"].codec.read_request(json.dumps(asked).encode())
        for asked in (body, {**body, "tool_choice": choice}, body)
    )
    assert json.loads(bytes(narrowed.options.extra["tools"])) == [{"type": "web_search"}]
    assert json.loads(bytes(whole.options.extra["tools"])) == [{"type": "web_search"}, {"type": "file_search"}]
    assert again == whole
