"""Every pair of protocols in one process: what a model says reaches a client the same, whatever lies between.

A reply is spelled as an upstream of one protocol, cut, decoded, written to a client of another and read again by our
own decoder of that protocol. What a protocol has no word for is a row of `SPOKEN`, applied on the way in and out.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stream import gemini_shapes, messages_shapes, responses_shapes, shapes
from stream.answers import CHUNK_SIZES, Answer, as_run, decode
from stream.pairs import Seen, function, seen_of, strays
from stream.shapes import Shape
from treadle.core.events import ModelEvent
from treadle.core.ids import CountingIds
from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall

UPSTREAM = pytest.mark.parametrize("upstream", PROTOCOLS)

LONG_NAME = "look_up_the_opening_hours_of_every_branch_of_every_shop_in_the_whole_country"
TOOLS = (
    ToolSpec(name="book"),
    ToolSpec(name="facts.propose"),
    ToolSpec(name=LONG_NAME),
    ToolSpec(name="exec", kind="custom"),
)
USAGE = Usage(input_tokens=11, output_tokens=7, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
CODE = 'print("é 🌍")\n\\'
MALFORMED = '{"seats": 2, oops'
PROSE = "two seats"


TWO = (ReplyCall(name="book", args={"seats": 2, "place": 'Café ☕ "Zoë"\n'}), ReplyCall(name="book", args={"seats": 3}))
SEEN_TWO = (
    function("book", '{"seats":2,"place":"Café ☕ \\"Zoë\\"\\n"}'),
    function("book", '{"seats":3}'),
)
BOTH = Seen(calls=SEEN_TWO, stop="calls", usage=USAGE)

SCENARIOS: dict[str, tuple[Reply, Seen]] = {
    "text": (
        Reply(text="Bonjour, 世界 👩‍🚀!", usage=USAGE),
        Seen(text="Bonjour, 世界 👩‍🚀!", stop="done", usage=USAGE),
    ),
    "nothing": (Reply(usage=USAGE), Seen(stop="done", usage=USAGE)),
    "usage_of_zero": (Reply(text="a", usage=Usage()), Seen(text="a", stop="done", usage=Usage())),
    "usage_unknown": (Reply(text="a"), Seen(text="a", stop="done")),
    "refusal": (Reply(refusal="I must not.", usage=USAGE), Seen(refusal="I must not.", stop="done", usage=USAGE)),
    "text_and_refusal": (
        Reply(text="Well. ", refusal="No.", usage=USAGE),
        Seen(text="Well. ", refusal="No.", stop="done", usage=USAGE),
    ),
    "reasoning": (
        Reply(reasoning="Hm, let\n\nme see.", text="Yes.", usage=USAGE),
        Seen(reasoning="Hm, let\n\nme see.", text="Yes.", stop="done", usage=USAGE),
    ),
    "reasoning_and_call": (
        Reply(reasoning="Hm.", calls=TWO[1:], usage=USAGE),
        Seen(reasoning="Hm.", calls=SEEN_TWO[1:], stop="calls", usage=USAGE),
    ),
    "call": (Reply(calls=TWO[:1], usage=USAGE), Seen(calls=SEEN_TWO[:1], stop="calls", usage=USAGE)),
    "text_and_call": (
        Reply(text="One moment. ", calls=TWO[:1], usage=USAGE),
        Seen(text="One moment. ", calls=SEEN_TWO[:1], stop="calls", usage=USAGE),
    ),
    "parallel": (Reply(calls=TWO, usage=USAGE), BOTH),
    "no_arguments": (
        Reply(calls=(ReplyCall(name="book"), ReplyCall(name="book", raw=""))),
        Seen(calls=(function("book"),) * 2, stop="calls"),
    ),
    "malformed": (
        Reply(calls=(ReplyCall(name="book", raw=MALFORMED), *TWO[1:])),
        Seen(calls=(function("book", MALFORMED), *SEEN_TWO[1:]), stop="calls"),
    ),
    "prose_for_arguments": (
        Reply(calls=(ReplyCall(name="book", raw=PROSE),)),
        Seen(calls=(function("book", PROSE),), stop="calls"),
    ),
    "custom": (Reply(calls=(ReplyCall(name="exec", raw=CODE),)), Seen(calls=(("custom", "exec", CODE),), stop="calls")),
    "dotted_and_long_names": (
        Reply(calls=(ReplyCall(name="facts.propose", args={"a": 1}), ReplyCall(name=LONG_NAME))),
        Seen(calls=(function("facts.propose", '{"a":1}'), function(LONG_NAME)), stop="calls"),
    ),
    "length": (
        Reply(text="Once upon", finish="length", usage=USAGE),
        Seen(text="Once upon", stop="length", usage=USAGE),
    ),
    "length_in_a_call": (
        Reply(calls=(ReplyCall(name="book", raw='{"place": "Ca'),), finish="length"),
        Seen(stop="length"),
    ),
    "filtered": (Reply(text="I", finish="filtered"), Seen(text="I", stop="filtered")),
    "stop_sequence": (Reply(text="a", finish="stop_sequence"), Seen(text="a", stop="stop_sequence")),
    "cut": (Reply(text="word " * 60, faults=Faults(disconnect_after=3_000)), Seen(error="failed")),
    **{
        f"parallel_{name}": (Reply(calls=TWO, usage=USAGE, faults=Faults(**{name: True})), BOTH)
        for name in ("dup_chunk", "no_index", "index_zero", "no_id", "name_after_args", "args_as_object", "empty_final")
    },
}
"""What a model says, and what everybody should see of it."""


def _openai(seen: Seen) -> Seen:
    """Chat and Responses only lack a word for stop sequences."""
    return msgspec.structs.replace(seen, stop="done") if seen.stop == "stop_sequence" else seen


def _refused(seen: Seen) -> Seen:
    """Messages and Gemini have no refusals but text that ends in the stop reason of one."""
    if not seen.refusal:
        return seen
    return msgspec.structs.replace(seen, text=seen.text + seen.refusal, refusal="", stop="filtered")


def _messages(seen: Seen) -> Seen:
    """Messages counts what is unknown as zero."""
    return msgspec.structs.replace(_refused(seen), usage=seen.usage or Usage())


def _gemini(seen: Seen) -> Seen:
    """Gemini has no count of what was written to a cache."""
    usage = None if seen.usage is None else msgspec.structs.replace(seen.usage, cache_write_tokens=0)
    return msgspec.structs.replace(_openai(_refused(seen)), usage=usage)


SPOKEN: dict[str, Callable[[Seen], Seen]] = {
    "chat": _openai,
    "responses": _openai,
    "messages": _messages,
    "gemini": _gemini,
}
"""What each protocol makes of an answer: the only differences between the pairs."""


def expected(seen: Seen, upstream: str, client: str, *, streams: bool = True) -> Seen:
    """Return what a client of this pair must see."""
    if seen.error:
        return seen
    if client == "messages" and streams and any(text == MALFORMED for _, _, text in seen.calls):
        # An SDK makes an object of any beginning of one, so no such block may end.
        return Seen(error="failed")
    return msgspec.structs.replace(
        SPOKEN[client](SPOKEN[upstream](seen)), calls=tuple(_shown(client, call) for call in seen.calls)
    )


def _shown(client: str, call: tuple[str, str, str]) -> tuple[str, str, str]:
    """Return a call as a client is shown it.

    Where there are no custom calls they are functions; Messages has no place for arguments that are no object.
    """
    kind, name, text = call
    if client == "messages" and kind != "custom" and not _is_json(text):
        return function(name, _compact({"INVALID_JSON": text}))
    if kind == "custom" and client in ("messages", "gemini"):
        return function(name, _compact({"input": text}))
    return call


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def said(reply: Reply, upstream: Any, size: int) -> list[ModelEvent]:
    """Have a model of this protocol say the reply in chunks of this size."""
    turn = ScriptTurn(**{name: getattr(reply, name) for name in Reply.__struct_fields__})
    model = ScriptedModel(Script(turns=(turn,)), ids=CountingIds(), chunk_bytes=size, protocol=upstream)
    plan = Plan(items=(text_message("user", "go"),), model="m", tools=TOOLS)
    return [event async for batch in model.stream(plan, "run_1") for event in batch]


def read_as(client: Any, events: list[ModelEvent], size: int, *, streams: bool = True) -> Seen:
    """Write the events for a client of this protocol, and read what it gets with our own decoder."""
    surface = Surface(stream=streams, include_usage=True)
    encoder = PROTOCOLS[client].codec.encoder(
        Request(protocol=client, model="m", tools=TOOLS, surface=surface), CountingIds(namespace="c")
    )
    frames = [frame for event in as_run(events) for frame in encoder.feed(event)]
    body = b"".join(frames) if streams else encoder.body()
    return seen_of(decode(PROTOCOLS[client].codec.decoder(CountingIds()), body, size))


@UPSTREAM
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_reply_is_the_same_through_every_pair_at_every_chunk_size(scenario: str, upstream: str) -> None:
    """Text, refusal, reasoning, calls, stop and usage; the client reads at the same chunk size."""
    reply, wanted = SCENARIOS[scenario]
    events = {size: await said(reply, upstream, size) for size in CHUNK_SIZES}
    seen = {(client, size): read_as(client, events[size], size) for client in PROTOCOLS for size in CHUNK_SIZES}
    assert strays(seen, {key: expected(wanted, upstream, key[0]) for key in seen}) == {}


@UPSTREAM
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_whole_answer_says_what_a_stream_says(scenario: str, upstream: str) -> None:
    """A client that waits gets the stream folded, through every pair."""
    reply, wanted = SCENARIOS[scenario]
    events = await said(reply, upstream, 64)
    seen = {client: read_as(client, events, 1 << 30, streams=False) for client in PROTOCOLS}
    assert strays(seen, {client: expected(wanted, upstream, client, streams=False) for client in PROTOCOLS}) == {}


SHAPES: dict[str, tuple[Shape, ...]] = {
    "chat": shapes.ALL_SHAPES,
    "responses": responses_shapes.ALL_SHAPES,
    "messages": messages_shapes.ALL_SHAPES,
    "gemini": gemini_shapes.ALL_SHAPES,
}
"""The 23 shapes of a stream, and all that each protocol adds to them, as an upstream of it sends them."""

PARTICULAR = frozenset(
    {
        # What only the protocol it came in can show, or what Messages cannot carry: judged by that codec's own tests.
        "content_as_parts",
        "custom_call",
        "half_of_the_output_only_in_completed",
        "images_audio_and_unknown_fields",
        "items_that_the_upstream_ran",
        "whole_document",
        "blocks_that_nobody_knows",
        "malformed_arguments",
        "malformed_call",
        "malformed_call_of_nobody",
        "two_objects_in_one_call",
        # Texts apart that are one text with paragraphs elsewhere.
        "one_id_for_every_item",
        "summaries_of_reasoning",
        "two_texts_interleaved",
    }
)


def seen_in(answer: Answer) -> Seen:
    """Return what the table of shapes says that its stream amounts to."""
    if answer.error is not None:
        return Seen(error="failed")
    by_kind: dict[str, list[Any]] = {"text": [], "refusal": [], "reasoning": [], "call": []}
    for kind, *content in answer.items:
        by_kind[kind].append(content)
    return Seen(
        text="\n\n".join(text for (text,) in by_kind["text"] if text),
        refusal="".join(text for (text,) in by_kind["refusal"]),
        reasoning="".join(text for (text,) in by_kind["reasoning"]),
        calls=tuple(function(name, arguments) for name, arguments in by_kind["call"]),
        stop=answer.stop or "",
        usage=answer.usage,
    )


@pytest.mark.parametrize(
    ("upstream", "shape"),
    [(upstream, shape) for upstream, table in SHAPES.items() for shape in table if shape.name not in PARTICULAR],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_every_shape_of_every_upstream_is_the_same_to_every_client(upstream: str, shape: Shape) -> None:
    """Interleaved, fragmented, nameless, doubled, cut: each stream of the four tables, streamed on to four clients."""
    events = decode(PROTOCOLS[upstream].codec.decoder(CountingIds()), shape.body)
    wanted = seen_in(shape.expected)
    seen = {client: read_as(client, events, 64) for client in PROTOCOLS}
    # The table says what the upstream's own words amount to, so only the client's are applied.
    assert strays(seen, {client: expected(wanted, client, client) for client in PROTOCOLS}) == {}


@pytest.mark.parametrize("client", PROTOCOLS)
def test_texts_that_come_in_turns_are_told_one_after_the_other(client: str) -> None:
    """Two messages whose deltas are interleaved stay two texts, also where all texts are one content."""
    (shape,) = [shape for shape in responses_shapes.ALL_SHAPES if shape.name == "two_texts_interleaved"]
    events = decode(PROTOCOLS["responses"].codec.decoder(CountingIds()), shape.body)
    for streams in (True, False):
        seen = read_as(client, events, 64, streams=streams)
        assert (seen.text.replace("\n\n", ""), seen.stop) == ("HiHo", "done")
