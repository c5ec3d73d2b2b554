"""Requests that are good JSON and no good conversation."""

import json
from collections.abc import Callable
from typing import Any

from hostile.house import MEBIBYTE, Answer
from hostile.table import VENDORS, Row, Scene, check_refusal
from hostile.upstream import DONE, Line, call, chunk, good

USER = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/good:generateContent",
}


def body(api: str, **more: Any) -> dict[str, Any]:
    """Return a good request with some more in it."""
    bodies: dict[str, dict[str, Any]] = {
        "chat": {"model": "good", "messages": [USER]},
        "responses": {"model": "good", "input": "hi"},
        "messages": {"model": "good", "max_tokens": 50, "messages": [USER]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
    }
    return {**bodies[api], **more}


def tools(api: str, *names: str, schema: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Declare functions as an API does."""
    form = schema or {"type": "object"}
    if api == "gemini":
        return [{"functionDeclarations": [{"name": name, "parameters": form} for name in names]}]
    shapes: dict[str, Callable[[str], dict[str, Any]]] = {
        "chat": lambda name: {"type": "function", "function": {"name": name, "parameters": form}},
        "responses": lambda name: {"type": "function", "name": name, "parameters": form},
        "messages": lambda name: {"name": name, "input_schema": form},
    }
    return [shapes[api](name) for name in names]


def ask(scene: Scene, api: str, request: dict[str, Any]) -> Answer:
    """Send a request."""
    return scene.house.ask("POST", PATHS[api], request)


def good_answer(scene: Scene, api: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send a request that is answered well, and return what the upstream was asked."""
    before = len(scene.received)
    answer = ask(scene, api, request)
    assert answer.status == 200, f"{api}: {answer.status} {answer.text[:500]}"
    assert len(scene.received) > before
    return scene.received[-1]


def own_tools(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the client's tools among those that the upstream was told of: they come first."""
    return [each["function"] for each in asked["tools"] if each["function"]["name"] not in SERVER_TOOLS]


SERVER_TOOLS = {"look_up", "pay", "draft_patch", "facts_propose", "locks_list", "state_get", "ui_show"}
RESULTS: dict[str, dict[str, Any]] = {
    "chat": {"messages": [USER, {"role": "tool", "tool_call_id": "c9", "content": "42"}]},
    "responses": {"input": [USER, {"type": "function_call_output", "call_id": "c9", "output": "42"}]},
    "messages": {
        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9", "content": "42"}]}]
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a": 42}}}]}]},
}
ORPHANS: dict[str, dict[str, Any]] = {
    "chat": {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, USER]},
    "responses": {"input": [USER, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, USER]},
    "messages": {
        "messages": [
            USER,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {}}]},
            USER,
        ]
    },
    "gemini": {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"text": "hi"}]},
        ]
    },
}


def unknown_role(scene: Scene) -> None:
    """A role that nobody knows is passed on where the upstream may know it, else left out and said."""
    king = {"role": "king", "content": "hi"}
    asked = good_answer(scene, "chat", body("chat", messages=[king]))
    assert asked["messages"] == [king]
    others = {
        "responses": {"input": [USER, king]},
        "messages": {"messages": [USER, king]},
        "gemini": {"contents": [*body("gemini")["contents"], {"role": "king", "parts": [{"text": "hi"}]}]},
    }
    for api, more in others.items():
        answer = ask(scene, api, body(api, **more))
        assert answer.status == 200, f"{api}: {answer.text[:300]}"
        assert answer.headers["x-treadle-fidelity"] != "exact", api


def lone_result(scene: Scene) -> None:
    """A result whose call is not there is refused by its id, in each API's own words for a mistake."""
    fields = {"chat": "messages", "responses": "input", "messages": "messages", "gemini": "contents"}
    for api, more in RESULTS.items():
        answer = ask(scene, api, body(api, **more))
        check_refusal(api, answer, 400, "invalid_value", fields[api])
        assert "there is no call with the id" in answer.text, api
        assert api == "gemini" or "'c9'" in answer.text, api


def lone_call(scene: Scene) -> None:
    """A call without a result gets one that says so."""
    for api, more in ORPHANS.items():
        asked = good_answer(scene, api, body(api, **more))
        results = [each for each in asked["messages"] if each["role"] == "tool"]
        assert [json.loads(each["content"])["error"]["code"] for each in results] == ["interrupted"], api


def twice_the_id(scene: Scene) -> None:
    """Two calls of one id keep their two results, in order."""
    results = [{"role": "tool", "tool_call_id": "c1", "content": text} for text in "12"]
    history = [USER, {"role": "assistant", "tool_calls": [CALL, CALL]}, *results]
    asked = good_answer(scene, "chat", body("chat", messages=history))
    assert [each["content"] for each in asked["messages"] if each["role"] == "tool"] == ["1", "2"]


def foreign_result(scene: Scene) -> None:
    """A result for a call of another response is not taken for one of this."""
    given = {"type": "function_call_output", "call_id": "call_elsewhere", "output": "42"}
    answer = ask(scene, "responses", body("responses", previous_response_id=scene.house.kept, input=[given]))
    check_refusal("responses", answer, 400, "invalid_value", "input")
    assert "call_elsewhere" in answer.text


def token_bounds(scene: Scene) -> None:
    """A bound below nothing is refused; one beyond all reason is the upstream's to judge."""
    fields = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}
    for api, field in fields.items():
        check_refusal(api, ask(scene, api, body(api, **{field: -1})), 400, "invalid_value", field)
        good_answer(scene, api, body(api, **{field: 10**18}))
    asked = good_answer(scene, "gemini", body("gemini", generationConfig={"maxOutputTokens": -1}))
    assert not {"max_tokens", "max_completion_tokens"} & set(asked)


def many_choices(scene: Scene) -> None:
    """Each choice is a run of its own, so there are few."""
    check_refusal("chat", ask(scene, "chat", body("chat", n=1_000)), 400, "invalid_value", "n")
    request = body("gemini", generationConfig={"candidateCount": 1_000})
    check_refusal("gemini", ask(scene, "gemini", request), 400, field="candidateCount")


def many_stops(scene: Scene) -> None:
    """How many an upstream takes is its own affair; here they are only carried."""
    stops = [f"stop {number}" for number in range(10_000)]
    assert len(good_answer(scene, "chat", body("chat", stop=stops))["stop"]) == 10_000
    assert len(good_answer(scene, "messages", body("messages", stop_sequences=stops))["stop"]) == 10_000


def many_tools(scene: Scene) -> None:
    """No model is told of so many."""
    for api in VENDORS:
        answer = ask(scene, api, body(api, tools=tools(api, *(f"t{number}" for number in range(10_000)))))
        check_refusal(api, answer, 413, "", "tools" if api in ("chat", "responses") else None)


def named_twice(scene: Scene) -> None:
    """The last declaration counts, once."""
    for api in VENDORS:
        asked = good_answer(scene, api, body(api, tools=tools(api, "same", "same")))
        assert [each["name"] for each in own_tools(asked)] == ["same"], api


def odd_names(*names: str) -> Callable[[Scene], None]:
    """Names that no provider takes are mapped to some that it does, and back."""

    def tries(scene: Scene) -> None:
        for api in VENDORS:
            for name in names:
                asked = good_answer(scene, api, body(api, tools=tools(api, name)))
                (told,) = own_tools(asked)
                assert told["name"].isascii(), api
                assert told["name"].replace("-", "_").isidentifier(), api
                assert len(told["name"]) <= 64, api

    return tries


def schema(form: dict[str, Any], check: Callable[[dict[str, Any]], bool]) -> Callable[[Scene], None]:
    """Return the attempt to offer a tool of that schema: it is passed on harmlessly and fetched from nowhere."""

    def tries(scene: Scene) -> None:
        for api in VENDORS:
            asked = good_answer(scene, api, body(api, tools=tools(api, "odd", schema=form)))
            (told,) = own_tools(asked)
            assert check(told["parameters"]), f"{api}: {told}"

    return tries


def missing_tool(scene: Scene) -> None:
    """A tool that is not offered cannot be demanded."""
    choices: dict[str, dict[str, Any]] = {
        "chat": {"tool_choice": {"type": "function", "function": {"name": "absent"}}},
        "responses": {"tool_choice": {"type": "function", "name": "absent"}},
        "messages": {"tool_choice": {"type": "tool", "name": "absent"}},
        "gemini": {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["absent"]}}},
    }
    for api, choice in choices.items():
        answer = ask(scene, api, body(api, tools=tools(api, "there"), **choice))
        check_refusal(api, answer, 400, "invalid_value", "tool_choice")


def thousand_calls(line: Line) -> None:
    """Ask for a thousand calls at once; be content afterwards."""
    if any(message["role"] == "tool" for message in line.asked["messages"]):
        good(line)
        return
    line.open()
    calls = (
        call(f'{{"word":"w{number}"}}', name="look_up", call_id=f"k{number}", index=number) for number in range(1_000)
    )
    line.send(b"".join(calls) + chunk(finish="tool_calls") + DONE)


def parallel_calls(scene: Scene) -> None:
    """The run's limit holds; every call that is told back has a result, and the client gets an answer."""
    answer = ask(scene, "chat", body("chat", model="bad-thousand"))
    assert answer.status == 200, answer.text[:500]
    history = scene.received[-1]["messages"]
    called = [each["id"] for message in history for each in message.get("tool_calls", ())]
    told = [each["tool_call_id"] for each in history if each["role"] == "tool"]
    assert called == told
    assert sum("means much" in each["content"] for each in history if each["role"] == "tool") <= 32


def missing_previous(scene: Scene) -> None:
    """Nothing is begun without what it shall go on with."""
    answer = ask(scene, "responses", body("responses", previous_response_id="resp_absent"))
    check_refusal("responses", answer, 404, "previous_response_not_found", "previous_response_id")
    thread = {"type": "continue", "previous_message_id": "msg_absent"}
    check_refusal("messages", ask(scene, "messages", body("messages", thread=thread)), 404)


def cycle(scene: Scene) -> None:
    """Nobody chooses ids, so a chain cannot bite its tail: naming oneself is naming nothing."""
    first = ask(scene, "responses", body("responses", previous_response_id=scene.house.kept)).json["id"]
    for name in (first + "x", first[::-1], f"{first}/../{first}"):
        answer = ask(scene, "responses", body("responses", previous_response_id=name, id=name))
        check_refusal("responses", answer, 404, "previous_response_not_found", "previous_response_id")
    chain = scene.house.ask("GET", f"/v1/responses/{first}/input_items?limit=100")
    assert (chain.status, len(chain.json["data"])) == (200, 3)


def background_unstored(scene: Scene) -> None:
    """What nobody keeps, nobody can come back for."""
    answer = ask(scene, "responses", body("responses", background=True, store=False))
    check_refusal("responses", answer, 400, "invalid_value", "store")


def odd_start(scene: Scene) -> None:
    """A place before the beginning is none; behind the end there is nothing, which is no error."""
    path = f"/v1/responses/{scene.house.kept}?stream=true&starting_after="
    for place in ("-1", "1e9", "x", "9" * 30):
        check_refusal("responses", scene.house.ask("GET", path + place), 400, "invalid_value", "starting_after")
    behind = scene.house.ask("GET", path + "99999")
    assert (behind.status, behind.body) == (200, b"")


def data_urls(scene: Scene) -> None:
    """A picture is carried and never unpacked: what is in it is the upstream's to judge."""
    for url in ("data:image/png;base64," + "A" * (8 * MEBIBYTE), "data:image/png;base64,!!!", "data:,"):
        picture = {"type": "image_url", "image_url": {"url": url}}
        asked = good_answer(scene, "chat", body("chat", messages=[{"role": "user", "content": [picture]}]))
        assert asked["messages"][0]["content"][0]["image_url"]["url"] == url


RECURSIVE: dict[str, Any] = {"type": "object", "properties": {"inner": {"$ref": "#"}}}
LEVELS: dict[str, Any] = {
    f"x{level}": {"type": "object", "properties": {f"p{n}": {"$ref": f"#/$defs/x{level + 1}"} for n in range(10)}}
    for level in range(12)
}
BOMB: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/x0"}},
    "$defs": {**LEVELS, "x12": {"type": "string"}},
}


def elsewhere(url: str) -> dict[str, Any]:
    """Return a schema that refers to another document."""
    return {"type": "object", "properties": {"a": {"$ref": url}}}


def references(scene: Scene) -> None:
    """Offer tools whose schemas lie elsewhere."""
    for url in ("http://127.0.0.1:1/schema.json", "file:///etc/passwd"):
        schema(elsewhere(url), lambda form: "$ref" not in json.dumps(form))(scene)


REPLIES = {"bad-thousand": thousand_calls}
ROWS = (
    Row(id="protocol.unknown_role", comes="accepted", why="clients are ahead of us", tries=unknown_role),
    Row(id="protocol.result_without_call", comes="refused", why="it answers nothing", tries=lone_result),
    Row(id="protocol.orphan_call", comes="repaired", why="upstreams want a result for each call", tries=lone_call),
    Row(id="protocol.duplicate_call_id", comes="accepted", why="some clients count from one", tries=twice_the_id),
    Row(id="protocol.result_of_another_response", comes="refused", why="it has no call here", tries=foreign_result),
    Row(
        id="protocol.max_tokens_negative_or_huge",
        comes="refused",
        why="below nothing; Gemini says none by it",
        tries=token_bounds,
    ),
    Row(id="protocol.n_1000", comes="refused", why="a choice is a run; there are at most 8", tries=many_choices),
    Row(
        id="protocol.stops_10k",
        comes="accepted",
        why="carried as they are, within the bounds of JSON",
        tries=many_stops,
    ),
    Row(id="protocol.tools_10k", comes="refused", why="a model is told of 128 at most", tries=many_tools),
    Row(id="protocol.duplicate_tool_name", comes="repaired", why="the last one counts", tries=named_twice),
    Row(
        id="protocol.tool_name_with_line_ends",
        comes="repaired",
        why="mapped and restored",
        tries=odd_names("a\r\nb: c"),
    ),
    Row(
        id="protocol.tool_name_long_or_emoji",
        comes="repaired",
        why="mapped and restored",
        tries=odd_names("x" * 200, "🦆"),
    ),
    Row(
        id="protocol.recursive_ref",
        comes="accepted",
        why="a schema may be recursive",
        tries=schema(RECURSIVE, lambda form: "$ref" in json.dumps(form)),
    ),
    Row(
        id="protocol.ref_to_http_or_file",
        comes="repaired",
        why="nothing is fetched; the place takes anything",
        tries=references,
    ),
    Row(
        id="protocol.pattern_without_end",
        comes="accepted",
        why="patterns of a client's tool are not run here",
        tries=schema({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}, bool),
    ),
    Row(id="protocol.schema_bomb", comes="accepted", why="references are never written out", tries=schema(BOMB, bool)),
    Row(id="protocol.choice_of_missing_tool", comes="refused", why="it could not be obeyed", tries=missing_tool),
    Row(
        id="protocol.parallel_calls_1000",
        comes="repaired",
        why="the limit of a run holds, and it gets its answer",
        tries=parallel_calls,
    ),
    Row(
        id="protocol.previous_id_missing",
        comes="refused",
        why="its history would be lost in silence",
        tries=missing_previous,
    ),
    Row(id="protocol.previous_id_cycle", comes="refused", why="ids are given here, once", tries=cycle),
    Row(
        id="protocol.background_without_store",
        comes="refused",
        why="there would be nothing to ask for",
        tries=background_unstored,
    ),
    Row(id="protocol.starting_after_out_of_range", comes="refused", why="it is a number from 0", tries=odd_start),
    Row(
        id="protocol.data_url_bomb",
        comes="accepted",
        why="nothing is decoded here",
        tries=data_urls,
        peak_bytes_max=192 * MEBIBYTE,
    ),
)
