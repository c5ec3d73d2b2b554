"""What may stand behind the end of an answer, and what of it is damage: one table for all upstream protocols.

docs/reliability.md has the same in words. The end is the reason for which the answer ends; what tells that the stream
is over comes behind it, and behind that nothing is read any more.
"""

import json

import pytest

from stream import gemini_shapes as gemini
from stream import messages_shapes as messages
from stream import responses_shapes as responses
from stream import shapes as chat
from stream.answers import Answer, answer, decode
from treadle.core.ids import CountingIds
from treadle.protocols.protocol_registry import PROTOCOLS

CALL = responses.call('{"a":1}', name="f")

BODIES: dict[str, tuple[bytes, bytes, bytes]] = {
    "chat": (
        chat.stream(chat.text("Hi"), chat.calls(chat.call(0, "a", "f", '{"a":1}'))),
        chat.frame(chat.finish("tool_calls")),
        chat.frame(chat.DONE),
    ),
    "messages": (
        messages.stream(messages.begin(), *messages.said(0, "Hi"), *messages.called(1, "a", "f", '{"a":1}')),
        messages.frame(messages.end("tool_use")[0]),
        messages.frame(messages.end()[1]),
    ),
    "responses": (
        responses.frames(*responses.CREATED, *responses.said("Hi"), *responses.called(CALL, 1)),
        b"",
        b"event: response.completed\ndata: "
        + json.dumps(responses.completed(responses.message("Hi"), CALL)).encode()
        + b"\n\n",
    ),
    "gemini": (
        gemini.stream(gemini.text("Hi"), gemini.chunk(gemini.call("f", {"a": 1}, "a"))),
        gemini.frame(gemini.end()),
        b"",
    ),
}
"""Of each protocol an answer up to its reason, the reason, and what says that the stream is over."""

QUIET: dict[str, bytes] = {
    "comment": b": keep-alive\n\n",
    "ping": b'event: ping\ndata: {"type":"ping"}\n\n',
    "heartbeat": b"event: heartbeat\ndata: 1\n\n",
    "empty": b"data: {}\n\n",
}
"""What may stand anywhere."""

JUNK: dict[str, bytes] = {
    "words": b"data: upstream closed\n\n",
    "another done": b"data: [done]\n\n",
    "half a frame": b'data: {"choi\n\n',
    "a list": b"data: [1]\n\n",
    "no UTF-8": b"data: \xff\n\n",
    "no field": b"0\n\n",
}
"""What cannot be read."""

ERRORS: dict[str, bytes] = {
    "an error": b'data: {"error":{"message":"oh","type":"api_error"}}\n\n',
    "an event of an error": b"event: error\ndata: oh\n\n",
    "a detail": b'data: {"detail":"oh"}\n\n',
}

MORE: dict[str, tuple[bytes, bytes]] = {
    "chat": (chat.frame(chat.text("!")), chat.frame(chat.calls(chat.call(1, "b", "g", "")))),
    "messages": (messages.stream(*messages.said(2, "!")), messages.stream(*messages.called(2, "b", "g"))),
    "gemini": (gemini.frame(gemini.text("!")), gemini.frame(gemini.chunk(gemini.call("g", {}, "b")))),
}
"""Another text and another call, which servers are known to send behind the reason (opencode#43040)."""

OFTEN: dict[str, dict[str, bytes]] = {
    "chat": {
        "usage": chat.frame(chat.chunk(choices=[], usage=chat.USAGE)),
        "an empty text": chat.frame(chat.text("")),
        "the reason again": chat.frame(chat.finish("tool_calls")),
        "a role": chat.frame(chat.chunk({"role": "assistant"})),
    },
    "messages": {
        "the reason again": messages.frame(messages.end("tool_use")[0]),
        "a block that ends again": messages.frame(messages.stop(1)),
        "the end of a Chat stream": b"data: [DONE]\n\n",
    },
    "gemini": {
        "usage": gemini.frame({"usageMetadata": gemini.USAGE}),
        "no candidates": gemini.frame({"candidates": []}),
        "an empty text": gemini.frame(gemini.text("")),
        "the reason again": gemini.frame(gemini.end()),
        "the end of a Chat stream": b"data: [DONE]\n\n",
    },
}
"""What servers of a protocol send behind the reason and what says nothing more."""

CUTS = {
    "chat": chat.frame(chat.finish("length")),
    "messages": messages.frame(messages.end("max_tokens")[0]),
    "gemini": gemini.frame(gemini.end("MAX_TOKENS")),
}
REASONED = pytest.mark.parametrize("protocol", ["chat", "messages", "gemini"])
ALL = pytest.mark.parametrize("protocol", BODIES)


def told(protocol: str, *parts: bytes) -> Answer:
    """Return what a stream amounts to."""
    return answer(decode(PROTOCOLS[protocol].codec.decoder(CountingIds()), b"".join(parts)))  # type: ignore[arg-type]


def names(result: Answer) -> list[str]:
    """Return the text and the names of the calls."""
    return [item[1] for item in result.items]


@REASONED
def test_what_says_nothing_may_stand_behind_the_reason(protocol: str) -> None:
    """Usage, keep-alives, the reason again: the answer is the same."""
    body, reason, over = BODIES[protocol]
    found = {name: told(protocol, body, reason, each, over) for name, each in {**QUIET, **OFTEN[protocol]}.items()}
    meant = [("text", "Hi"), ("call", "f", '{"a":1}')]
    assert {name: (*each.items, each.stop, each.notes) for name, each in found.items()} == dict.fromkeys(
        found, (*meant, "calls", ())
    )


@ALL
def test_behind_the_end_of_the_stream_nothing_is_read(protocol: str) -> None:
    """Not even an error: the answer was said to be over. Gemini's streams just end, so that nothing is behind them."""
    body, reason, over = BODIES[protocol]
    over = over or b"data: [DONE]\n\n"
    for behind in (*QUIET.values(), *JUNK.values(), *ERRORS.values(), *MORE.get(protocol, ())):
        result = told(protocol, body, reason, over, behind)
        assert (names(result), result.stop, result.notes) == (["Hi", "f"], "calls", ()), behind


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_what_cannot_be_read_behind_the_reason_takes_nothing_back(protocol: str) -> None:
    """The answer is whole; before its reason the same is damage."""
    body, reason, over = BODIES[protocol]
    for junk in JUNK.values():
        result = told(protocol, body, reason, junk, over)
        assert (names(result), result.stop, result.notes) == (["Hi", "f"], "calls", ("bad_frame",)), junk
        assert told(protocol, body, junk, reason, over).error == "upstream_broken_stream", junk


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_what_cannot_be_read_is_damage_where_more_of_the_answer_follows(protocol: str) -> None:
    """Then the reason was not the end, and what was lost may have been of the answer."""
    body, reason, over = BODIES[protocol]
    for junk in JUNK.values():
        for more in MORE[protocol]:
            assert told(protocol, body, reason, junk, more, over).error == "upstream_broken_stream", (junk, more)
            assert told(protocol, body, reason, more, junk, over).error is None, (junk, more)


def test_what_cannot_be_read_is_damage_anywhere_in_a_stream_of_gemini() -> None:
    """Servers of it give the reason with every part, so that it ends nothing."""
    body, reason, _ = BODIES["gemini"]
    for junk in JUNK.values():
        assert told("gemini", body, reason, junk).error == "upstream_broken_stream", junk


def test_what_cannot_be_read_is_damage_up_to_the_end_of_a_response() -> None:
    """There is one event that ends it, and it has all of it."""
    body, _, over = BODIES["responses"]
    for junk in JUNK.values():
        assert told("responses", body, junk, over).error == "upstream_broken_stream", junk


@ALL
def test_an_error_ends_the_answer_wherever_it_comes_before_the_end_of_the_stream(protocol: str) -> None:
    """In whatever shape: its upstream did not finish."""
    body, reason, over = BODIES[protocol]
    for error in ERRORS.values():
        for parts in ((body, error, reason, over), (body, reason, error, over)):
            assert told(protocol, *parts).stop is None, error
            assert told(protocol, *parts).error not in (None, "upstream_broken_stream"), error


@REASONED
def test_more_of_the_answer_behind_the_reason_belongs_to_it(protocol: str) -> None:
    """Servers are known to send a last text, thought or call there: it is not lost."""
    body, reason, over = BODIES[protocol]
    text, call = MORE[protocol]
    assert names(told(protocol, body, reason, text, over)) in (["Hi", "f", "!"], ["Hi!", "f"])
    assert names(told(protocol, body, reason, call, over)) == ["Hi", "f", "g"]


@REASONED
def test_a_second_reason_that_cuts_the_answer_cuts_it(protocol: str) -> None:
    """The worse one holds, whichever comes first."""
    body, reason, over = BODIES[protocol]
    assert told(protocol, body, reason, CUTS[protocol], over).stop == "length"
    assert told(protocol, body, CUTS[protocol], reason, over).stop == "length"


def test_a_piece_of_a_block_that_has_ended_is_damage() -> None:
    """In Messages every block says where it ends."""
    body, reason, over = BODIES["messages"]
    for piece in (messages.text(0, "!"), messages.args(1, "{}")):
        assert told("messages", body, reason, messages.frame(piece), over).error == "upstream_broken_stream"
