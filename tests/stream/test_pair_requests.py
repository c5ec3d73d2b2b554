"""Every pair of protocols on the way to the model: what a client sent reaches an upstream of any protocol.

A conversation is spelled in the client's protocol, read, fitted to the upstream and written; what was written is read
again as that protocol's own server would. Choices are compared with spellings that stand here by hand.
"""

from itertools import product
from typing import Any

import msgspec
import pytest

from treadle.core.ids import CountingIds
from treadle.core.items import (
    AnyItem,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    ResultItem,
    TextPart,
    text_message,
    text_of,
    text_result,
)
from treadle.core.json import read_json, write_json
from treadle.core.plan import Plan
from treadle.core.request import Request
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.providers.provider_model import UpstreamCall, open_call

PAIRS = pytest.mark.parametrize(("client", "upstream"), list(product(PROTOCOLS, PROTOCOLS)))
TOOLS = (ToolSpec(name="book"), ToolSpec(name="cancel"))
QUESTION = text_message("user", "go")
FIRST = CallItem(call_id="call_1", name="book", arguments='{"seats":2}')
SECOND = CallItem(call_id="call_2", name="cancel", arguments="{}")
PNG = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="
UNSET = object()
CHOICE_NOTES = ("tool_choice_coerced", "parallel_dropped", "tools_dropped")


def sent(protocol: Any, items: tuple[AnyItem, ...], tools: tuple[ToolSpec, ...] = TOOLS) -> UpstreamCall:
    """Write a conversation in a protocol."""
    return open_call(protocol, Plan(items=items, model="m", tools=tools), CountingIds(), "")


def carried(client: str, upstream: Any, *items: AnyItem) -> tuple[AnyItem, ...]:
    """Return the conversation as an upstream reads it that a client sent."""
    received = PROTOCOLS[client].codec.read_request(sent(client, items).body)
    return PROTOCOLS[upstream].codec.read_request(sent(upstream, received.items).body).items


def parts_of(items: tuple[AnyItem, ...]) -> list[Any]:
    """Return every part that anybody said or gave."""
    contents = [item.content if isinstance(item, MessageItem) else item.output for item in items if _has_parts(item)]
    return [part for content in contents for part in content]


def _has_parts(item: AnyItem) -> bool:
    return isinstance(item, MessageItem | ResultItem)


@PAIRS
def test_images_and_files_of_results_are_kept(client: str, upstream: str) -> None:
    """Each arrives exactly once, in its order, whether the protocol has a place for it in the result or not."""
    shot = ResultItem(call_id="call_1", name="book", output=(TextPart(text="a shot"), ImagePart(url=PNG)))
    paper = ResultItem(call_id="call_2", name="cancel", output=(TextPart(text="a paper"), FilePart(url=PDF)))
    items = carried(client, upstream, QUESTION, FIRST, SECOND, shot, paper)
    media = [part.url for part in parts_of(items) if isinstance(part, ImagePart | FilePart)]
    assert media == [PNG, PDF]
    texts = [text_of(item.output) for item in items if isinstance(item, ResultItem)]
    assert [text.split("\n")[0] for text in texts] == ["a shot", "a paper"]


@PAIRS
def test_results_stand_behind_their_turn_in_call_order(client: str, upstream: str) -> None:
    """Results that came late and in another order are adjacent pairs for every upstream."""
    results = (text_result(SECOND, "two"), text_result(FIRST, "one"))
    items = carried(client, upstream, QUESTION, FIRST, SECOND, *results, text_message("user", "and?"))
    seen = [item.call_id for item in items if isinstance(item, CallItem | ResultItem)]
    assert seen == ["call_1", "call_2", "call_1", "call_2"]
    assert [text_of(item.output) for item in items if isinstance(item, ResultItem)] == ["one", "two"]


@pytest.mark.parametrize("upstream", PROTOCOLS)
@pytest.mark.parametrize("client", ["responses", "messages", "gemini"])
def test_that_a_result_is_an_error_is_kept(client: str, upstream: str) -> None:
    """As a flag where there is one; Chat, which has none, says it in the text."""
    items = carried(client, upstream, QUESTION, FIRST, text_result(FIRST, "no table", is_error=True))
    (result,) = [item for item in items if isinstance(item, ResultItem)]
    wanted = (False, "[error] no table") if upstream == "chat" else (True, "no table")
    assert (result.is_error, text_of(result.output)) == wanted


def _openai_choice(named: dict[str, Any], mode: str, flag: object) -> dict[str, Any]:
    fields: dict[str, Any] = {} if mode == "auto" else {"tool_choice": named if mode == "named" else mode}
    return fields if flag is UNSET else {**fields, "parallel_tool_calls": flag}


def _messages_choice(mode: str, flag: object) -> dict[str, Any]:
    kind = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}[mode]
    choice: dict[str, Any] = {"type": kind, **({"name": "book"} if mode == "named" else {})}
    if flag is False:
        choice["disable_parallel_tool_use"] = True
    return {} if choice == {"type": "auto"} else {"tool_choice": choice}


def _gemini_choice(mode: str, flag: object) -> dict[str, Any]:
    configs: dict[str, dict[str, Any]] = {
        "none": {"mode": "NONE"},
        "required": {"mode": "ANY"},
        "named": {"mode": "ANY", "allowedFunctionNames": ["book"]},
    }
    return {} if mode == "auto" else {"toolConfig": {"functionCallingConfig": configs[mode]}}


def spelled(protocol: str, mode: str, flag: object) -> dict[str, Any]:
    """Return a choice and the parallel flag as the protocol spells them; what it cannot say is left out."""
    match protocol:
        case "chat":
            return _openai_choice({"type": "function", "function": {"name": "book"}}, mode, flag)
        case "responses":
            return _openai_choice({"type": "function", "name": "book"}, mode, flag)
        case "messages":
            return _messages_choice(mode, flag)
        case _:
            return _gemini_choice(mode, flag)


def understood(client: str, mode: str, flag: object) -> object:
    """Return the flag that a client can have meant: null is the default, and with `none` there is nothing to say."""
    if flag is None or mode == "none" or client == "gemini":
        return UNSET
    return UNSET if client == "messages" and flag is True else flag


def asked(client: str, tools: tuple[ToolSpec, ...], fields: dict[str, Any]) -> Request:
    """Return the request of a client with these fields."""
    body = {**read_json(sent(client, (QUESTION,), tools).body), **fields}
    return PROTOCOLS[client].codec.read_request(write_json(body))


def choice_sent(upstream: Any, request: Request) -> tuple[dict[str, Any], list[str]]:
    """Return what an upstream is told of the choice, and the notes about it."""
    plan = Plan(
        items=request.items,
        model="m",
        tools=request.tools,
        tool_choice=request.tool_choice,
        options=request.options,
    )
    call = open_call(upstream, plan, CountingIds(), "")
    names = ("tool_choice", "parallel_tool_calls", "toolConfig")
    fields = {name: value for name, value in read_json(call.body).items() if name in names}
    return fields, [note.code for note in call.notes if note.code in CHOICE_NOTES]


@PAIRS
@pytest.mark.parametrize("mode", ["auto", "none", "required", "named"])
def test_every_choice_with_every_parallel_flag(client: str, upstream: str, mode: str) -> None:
    """What a client says reaches the upstream in its words; that Gemini cannot be held to one call is noted.

    A tool by name is offered alone and required, except of Gemini: a word is what every server of the others obeys.
    """
    for flag in (UNSET, None, True, False):
        if flag is None and client in ("messages", "gemini"):
            continue
        request = asked(client, TOOLS, spelled(client, mode, flag))
        meant = understood(client, mode, flag)
        told = UNSET if meant is True and upstream == "messages" else meant
        lost = ["parallel_dropped"] if upstream == "gemini" and meant is False else []
        is_alone = mode == "named" and upstream != "gemini"
        lost += ["tool_choice_coerced"] if is_alone else []
        assert choice_sent(upstream, request) == (spelled(upstream, "required" if is_alone else mode, told), lost)


@PAIRS
def test_without_tools_neither_choice_nor_flag_is_sent(client: str, upstream: str) -> None:
    """Upstreams refuse a flag without tools."""
    for mode, flag in product(["auto", "none"], [UNSET, True, False]):
        request = asked(client, (), spelled(client, mode, flag))
        assert choice_sent(upstream, request) == ({}, [])


STRICT: dict[str, list[Any]] = {"chat": [], "responses": [False], "messages": [], "gemini": []}
"""What an upstream is told of the strictness of a tool for which nobody set it: Responses would promote it."""


@PAIRS
@pytest.mark.parametrize("given", [UNSET, None])
def test_strictness_is_never_null_and_never_promoted(client: str, upstream: str, given: object) -> None:
    """A client that leaves it out, or says null, gets the tool as loose as it described it."""
    tools = read_json(sent(client, (QUESTION,), TOOLS[:1]).body)["tools"]
    function = tools[0]["function"] if client == "chat" else tools[0]
    function.pop("strict", None)
    if given is None and client in ("chat", "responses"):
        function["strict"] = None
    request = asked(client, TOOLS[:1], {"tools": tools})
    written = read_json(sent(upstream, request.items, request.tools).body)["tools"]
    assert _values_of("strict", written) == STRICT[upstream]


def _values_of(name: str, value: Any) -> list[Any]:
    """Return every value that stands under a name, however deep."""
    if isinstance(value, list):
        return [found for each in value for found in _values_of(name, each)]
    if not isinstance(value, dict):
        return []
    return [found for key, each in value.items() for found in ([each] if key == name else _values_of(name, each))]


TREE = b"""{"type":"object","properties":{"root":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":
{"value":{"oneOf":[{"type":"string"},{"type":"integer"}]},"next":{"$ref":"#/$defs/node"}}}}}"""


@PAIRS
def test_a_schema_that_refers_to_itself_reaches_every_upstream(client: str, upstream: str) -> None:
    """References are kept where they are known, else written out and cut; what looks like one in a result is data."""
    tool = ToolSpec(name="book", parameters=msgspec.Raw(TREE))
    request = asked(client, (tool,), {})
    result = text_result(FIRST, '{"$ref":"#/$defs/node"}')
    written = sent(upstream, (*request.items, FIRST, result), request.tools).body
    body = read_json(written)
    references = _values_of("$ref", body["tools"])
    assert set(references) <= {"#/$defs/node"}
    assert written.count(b"#/$defs/node") == len(references) + 1
    assert len(written) < 4_000
