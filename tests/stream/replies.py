"""Replies of each protocol as one document, and the same as a stream: how a provider would have sent it piece by piece.

A reply may be as odd as any that was ever seen; only what a stream can say as well is in it.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from stream import gemini_shapes as gemini
from stream import messages_shapes as messages
from stream import responses_shapes as responses
from stream import shapes as chat

Reply = dict[str, Any]

TEXTS = st.sampled_from(["", "Hello", "né 🙂 done", "a b", " ", '{"x":1}', "<tool_call>"])
NAMES = st.sampled_from(["get_weather", "get_time", "get_weather", ""]) | st.none()
IDS = st.sampled_from(["call_a", "call_b", "call_c", "", "functions.f:0", "odd id", "x" * 200]) | st.none()
JSONS = st.sampled_from(
    ["", "{}", '{"city":"Paris"}', '{"a":"é","b":[1,{"c":null}]}', "[1]", "oops", '"{\\"a\\":1}"', "null"]
)
CUT_JSONS = st.sampled_from(['{"city":"Pa', '{"a":[1', "{", '{"a":1}{"a":1}', '{"a":1} x'])
OBJECTS = st.sampled_from([{}, {"city": "Paris"}, {"a": [1, {"b": None}], "c": "é"}])


def cut(text: str, size: int) -> list[str]:
    """Cut a text into pieces of a size; an empty one is one piece."""
    return [text[start : start + size] for start in range(0, len(text), size)] or [text]


def _set(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _fields(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw an object; what is drawn as None is left out."""
    return st.fixed_dictionaries(strategies).map(lambda drawn: _set(**drawn))


# Chat

_CHAT_PARTS = st.sampled_from(
    [
        {"type": "text", "text": "part"},
        {"type": "output_text", "text": "two"},
        {"text": "bare"},
        {"type": "refusal", "refusal": "no"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}},
        {"type": "reference", "reference_ids": [1]},
    ]
)
_CHAT_CALLS = st.fixed_dictionaries(
    {
        "id": IDS,
        "function": _fields(name=NAMES, arguments=JSONS | CUT_JSONS | OBJECTS | st.none()),
    }
).map(lambda call: _set(**call, type="function"))
_CHAT_CUSTOM = st.fixed_dictionaries({"id": IDS, "custom": _fields(name=NAMES, input=TEXTS)}).map(
    lambda call: _set(**call, type="custom")
)


def _says_something(call: dict[str, Any]) -> bool:
    """Tell whether there is a name or there are arguments: what has neither is no call of a whole reply (S0)."""
    return any(call[call["type"]].get(name) not in (None, "") for name in ("name", "arguments", "input"))


def _are_apart(calls: list[dict[str, Any]]) -> bool:
    """Tell whether every call that has the id of another has a name: in a stream one without is a piece of that other.

    Some servers count a new index for each piece of one call, so only its name says that it is another.
    """
    ids = [call.get("id") for call in calls]
    return all(call[call["type"]].get("name") or not call.get("id") or ids.count(call["id"]) == 1 for call in calls)


_CHAT_TOOL_CALLS = st.lists((_CHAT_CALLS | _CHAT_CUSTOM).filter(_says_something), max_size=3).filter(_are_apart)
_CHAT_MESSAGES = _fields(
    reasoning_content=st.none() | TEXTS,
    content=st.none() | TEXTS | st.lists(_CHAT_PARTS, min_size=1, max_size=3),
    refusal=st.none() | TEXTS,
    audio=st.none() | st.just({"id": "audio_1"}),
    tool_calls=st.none()
    | st.lists((_CHAT_CALLS | _CHAT_CUSTOM).filter(_says_something), max_size=3).filter(_are_apart),
)
_CHAT_ENDS = st.sampled_from(["stop", "tool_calls", "length", "content_filter", "eos", "error", "strange", None])
_CHOICES = st.fixed_dictionaries({"message": _CHAT_MESSAGES, "finish_reason": _CHAT_ENDS})
CHAT: st.SearchStrategy[Reply] = st.fixed_dictionaries(
    {"choices": st.lists(_CHOICES, min_size=1, max_size=1) | st.lists(_CHOICES, min_size=1, max_size=2)}
).map(
    lambda reply: {
        "object": "chat.completion",
        "choices": [{"index": index, **choice} for index, choice in enumerate(reply["choices"])],
        "usage": chat.USAGE,
    }
)


def _chat_deltas(message: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant"}
    for name in ("reasoning_content", "content", "refusal"):
        value = message.get(name)
        for piece in cut(value, size) if isinstance(value, str) else [[part] for part in value or ()]:
            yield {name: piece}
    if "audio" in message:
        yield {"audio": message["audio"]}
    for index, call in enumerate(message.get("tool_calls") or ()):
        kind = call["type"]
        body = call[kind]
        field = "arguments" if kind == "function" else "input"
        given = body.get(field)
        begun = {**call, "index": index, kind: {**body, **({field: ""} if isinstance(given, str) else {})}}
        yield {"tool_calls": [begun]}
        for piece in cut(given, size) if isinstance(given, str) else ():
            yield {"tool_calls": [{"index": index, kind: {field: piece}}]}


def chat_stream(reply: Reply, size: int) -> bytes:
    """Return a Chat completion as a stream."""
    sent: list[Any] = []
    for choice in reply["choices"]:
        for delta in _chat_deltas(choice["message"], size):
            sent.append({"choices": [{"index": choice["index"], "delta": delta, "finish_reason": None}]})
        sent.append({"choices": [{"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}]})
    return chat.stream(*sent, {"choices": [], "usage": reply["usage"]}, chat.DONE)


# Messages

_CITATION = {"type": "char_location", "cited_text": "x"}
_BLOCKS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}),
    st.just({"type": "text", "text": "cited", "citations": [_CITATION]}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXTS, "signature": st.just("sig")}),
    st.just({"type": "redacted_thinking", "data": "sealed"}),
    st.fixed_dictionaries({"type": st.just("tool_use"), "id": IDS, "name": NAMES, "input": OBJECTS}).map(
        lambda block: _set(**block)
    ),
    st.just({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}),
    st.just({"type": "future_block", "field": [1]}),
)
_MESSAGES_ENDS = st.sampled_from(
    ["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", "strange", None]
)


def _shows_its_end(reply: Reply) -> bool:
    """Tell whether a whole message says all that a stream says: not whether a call at a cut was whole."""
    is_cut = reply["stop_reason"] in ("max_tokens", "refusal")
    return not (is_cut and reply["content"] and reply["content"][-1]["type"] == "tool_use")


MESSAGES: st.SearchStrategy[Reply] = (
    st.fixed_dictionaries({"content": st.lists(_BLOCKS, max_size=4), "stop_reason": _MESSAGES_ENDS})
    .filter(_shows_its_end)
    .map(
        lambda reply: {
            "type": "message",
            "role": "assistant",
            "usage": {"input_tokens": 3, "output_tokens": 5},
            **reply,
        }
    )
)


def _messages_events(reply: Reply, size: int) -> Iterator[dict[str, Any]]:
    yield messages.begin()
    for index, block in enumerate(reply["content"]):
        begun = {**block, **{name: "" for name in ("text", "thinking", "signature") if name in block}}
        begun.pop("citations", None)
        if "input" in block:
            begun["input"] = {}
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for name, kind in (("text", "text_delta"), ("thinking", "thinking_delta")):
            for piece in cut(block[name], size) if name in block else ():
                yield messages.delta(index, kind, **{name: piece})
        for citation in block.get("citations", ()):
            yield messages.delta(index, "citations_delta", citation=citation)
        if "signature" in block:
            yield messages.delta(index, "signature_delta", signature=block["signature"])
        if block.get("input"):
            for piece in cut(json.dumps(block["input"], separators=(",", ":")), size):
                yield messages.args(index, piece)
        yield messages.stop(index)
    yield {"type": "message_delta", "delta": {"stop_reason": reply["stop_reason"]}, "usage": reply["usage"]}
    yield {"type": "message_stop"}


def messages_stream(reply: Reply, size: int) -> bytes:
    """Return a message as a stream."""
    return messages.stream(*_messages_events(reply, size))


# Responses

_OUTPUT_PARTS = st.one_of(
    st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": TEXTS}),
    st.just({"type": "output_audio", "data": "x"}),
)
_STATUSES = st.sampled_from(["completed", None])
_OUTPUT = st.one_of(
    st.fixed_dictionaries({"type": st.just("message"), "content": st.lists(_OUTPUT_PARTS, max_size=2)}),
    st.fixed_dictionaries(
        {
            "type": st.just("function_call"),
            "call_id": IDS,
            "name": NAMES,
            "arguments": JSONS | CUT_JSONS,
            "status": st.sampled_from(["completed", "completed", "incomplete"]),
        }
    ),
    st.fixed_dictionaries({"type": st.just("custom_tool_call"), "call_id": IDS, "name": NAMES, "input": TEXTS}),
    st.fixed_dictionaries(
        {"type": st.just("reasoning"), "summary": st.sampled_from([[], [{"type": "summary_text", "text": "why"}]])}
    ),
    st.just({"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "x"}}),
    st.just({"type": "future_item", "field": [1]}),
).map(lambda item: _set(**item))
_RESPONSE_ENDS = st.sampled_from(["completed", "completed", "incomplete", "failed", "cancelled"])
RESPONSES: st.SearchStrategy[Reply] = st.fixed_dictionaries(
    {"status": _RESPONSE_ENDS, "output": st.lists(_OUTPUT, max_size=4)}
).map(
    lambda drawn: responses.response(
        drawn["status"],
        [{**item, "id": f"it_{index}"} for index, item in enumerate(drawn["output"])],
        **({"incomplete_details": {"reason": "max_output_tokens"}} if drawn["status"] == "incomplete" else {}),
        **({"error": {"code": "server_error", "message": "oh"}} if drawn["status"] == "failed" else {}),
    )
)


def _item_events(index: int, item: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    yield responses.added(item, index)
    where = {"output_index": index, "item_id": item["id"]}
    for number, part in enumerate(item.get("content", ())):
        if part["type"] in ("output_text", "refusal"):
            name = "text" if part["type"] == "output_text" else "refusal"
            for piece in cut(part[name], size):
                yield responses.ev(f"{part['type']}.delta", **where, content_index=number, delta=piece)
            yield responses.ev(f"{part['type']}.done", **where, content_index=number, **{name: part[name]})
        yield responses.ev("content_part.done", **where, content_index=number, part=part)
    for number, part in enumerate(item.get("summary", ())):
        yield responses.ev("reasoning_summary_text.delta", **where, summary_index=number, delta=part["text"])
    for name, kind in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
        if name in item:
            for piece in cut(item[name], size):
                yield responses.ev(f"{kind}.delta", **where, delta=piece)
            yield responses.ev(f"{kind}.done", **where, **{name: item[name]})
    yield responses.done(item, index)


def responses_stream(reply: Reply, size: int) -> bytes:
    """Return a response as a stream."""
    items = [event for index, item in enumerate(reply["output"]) for event in _item_events(index, item, size)]
    return responses.frames(*responses.CREATED, *items, responses.ev(reply["status"], response=reply))


# Gemini

_PARTS = st.one_of(
    st.fixed_dictionaries({"text": TEXTS}),
    st.fixed_dictionaries({"text": TEXTS, "thought": st.just(True)}),
    st.fixed_dictionaries({"text": TEXTS, "thoughtSignature": st.just("c2ln")}),
    st.fixed_dictionaries(
        {"functionCall": _fields(id=IDS, name=NAMES, args=OBJECTS | st.none())},
        optional={"thoughtSignature": st.just("c2ln")},
    ),
    st.just({"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}),
    st.just({"executableCode": {"language": "PYTHON", "code": "1"}}),
    st.just({"futurePart": [1]}),
    st.just({"functionCall": "oops"}),
)
_GEMINI_ENDS = st.sampled_from(
    ["STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "STRANGE", None]
)
_CANDIDATES = st.fixed_dictionaries({"parts": st.lists(_PARTS, max_size=4), "finishReason": _GEMINI_ENDS})
GEMINI: st.SearchStrategy[Reply] = st.fixed_dictionaries(
    {"candidates": st.lists(_CANDIDATES, min_size=1, max_size=1) | st.lists(_CANDIDATES, min_size=1, max_size=2)}
).map(
    lambda reply: {
        "candidates": [
            {"index": index, "content": {"role": "model", "parts": each["parts"]}, "finishReason": each["finishReason"]}
            for index, each in enumerate(reply["candidates"])
        ],
        "usageMetadata": gemini.USAGE,
    }
)


def _gemini_parts(part: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    if part.get("text") and "thoughtSignature" not in part:
        for piece in cut(part["text"], size):
            yield {**part, "text": piece}
    else:
        yield part


def gemini_stream(reply: Reply, size: int) -> bytes:
    """Return a response of Gemini as a stream: every part in a frame of its own, texts in several."""
    sent: list[Any] = []
    for candidate in reply["candidates"]:
        index = candidate["index"]
        for part in candidate["content"]["parts"]:
            for piece in _gemini_parts(part, size):
                sent.append({"candidates": [{"index": index, "content": {"role": "model", "parts": [piece]}}]})
        sent.append({"candidates": [{"index": index, "finishReason": candidate["finishReason"]}]})
    sent[-1]["usageMetadata"] = reply["usageMetadata"]
    # Without a reason a document ends all the same, and a stream where it says so.
    is_ended = any(candidate["finishReason"] for candidate in reply["candidates"])
    return gemini.stream(*sent) + (b"" if is_ended else b"data: [DONE]\n\n")


REPLIES: dict[str, tuple[st.SearchStrategy[Reply], Callable[[Reply, int], bytes]]] = {
    "chat": (CHAT, chat_stream),
    "messages": (MESSAGES, messages_stream),
    "responses": (RESPONSES, responses_stream),
    "gemini": (GEMINI, gemini_stream),
}
"""Of each protocol what replies there may be, and how one is streamed in pieces of a size."""
