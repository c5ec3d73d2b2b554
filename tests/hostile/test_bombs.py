"""JSON made to cost more than it weighs, at every route that takes a body, and in the schemas of clients' tools."""

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from hostile.house import MEBIBYTE, House
from hostile.table import APIS, Scene, send
from treadle.server.route_table import TABLE

SECONDS_MAX = 10.0
"""For one request, on a machine that does much else; most take milliseconds."""
PEAK_BYTES_MAX = 160 * MEBIBYTE
STALL_S_MAX = 1.0
"""For a probe meanwhile, on a busy machine; a server that decodes a bomb on its event loop takes longer."""
BOMBS: dict[str, bytes] = {
    "depth": b'{"x":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "depth of objects": b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
    "width": b'{"x":[' + b"1," * 2_000_000 + b"1]}",
    "many keys": b"{" + b",".join(b'"k%d":1' % n for n in range(300_000)) + b"}",
    "a key twice": b'{"model":"good","model":"bad","input":"x","name":"x","name":"y"}',
    "a key a hundred thousand times": b"{" + b",".join([b'"model":1'] * 100_000) + b"}",
    "exponent": b'{"x":1e999999,"limit":1e999999}',
    "digits": b'{"x":' + b"9" * 2_000_000 + b"}",
    "negative exponent of many digits": b'{"x":1e-' + b"9" * 1_000_000 + b"}",
    "escapes": b'{"' + b"\\u0041" * 500_000 + b'":"' + b"\\ud83d\\ude00" * 500_000 + b'"}',
    "half an escape": b'{"model":"\\ud800"}',
    "unclosed": b'{"x":"' + b"a" * 4_000_000,
    "only openers": b"[" * 4_000_000,
}
ROUTES = sorted(
    (method, route.pattern)
    for route in TABLE
    for method in route.methods.split()
    if method in ("POST", "PATCH", "PUT") and not route.pattern.startswith("/v1beta/tuned")
)
BODILESS = {"POST /treadle/v1/logout", "POST /treadle/v1/runs/{run_id}/cancel"}
"""Routes that take no body: what comes with the request is not read as JSON."""


UNREAD = {
    name: {"POST /v1/conversations", "POST /v1/responses/input_tokens"}
    for name in ("exponent", "digits", "negative exponent of many digits", "escapes", "half an escape")
}
"""Bombs that are one JSON value of a field which these routes do not know, and so never decode."""


def filled(pattern: str) -> str:
    """Return a path of this route; what it names need not be there."""
    if "{model*}" in pattern:
        return pattern.replace("{model*}", "good:generateContent")
    return "/".join("x" if part.startswith("{") else part for part in pattern.split("/"))


@pytest.mark.parametrize("name", BOMBS)
def test_every_route_refuses_a_bomb_soon_and_in_words(scene: Scene, name: str) -> None:
    """With a 4xx in its own envelope, in bounded time and memory; the server is well afterwards."""
    house = scene.house
    house.forget_peak()
    before = house.memory_bytes()
    wrong: list[str] = []
    for method, pattern in ROUTES:
        began = time.monotonic()
        accepts = {"accept": "application/json, text/event-stream"}
        answer = house.ask(method, filled(pattern), BOMBS[name], accepts)
        took = time.monotonic() - began
        is_refused = 400 <= answer.status < 500 and bool(answer.json["error"]["message"])
        if not is_refused and f"{method} {pattern}" not in BODILESS | UNREAD.get(name, set()):
            wrong.append(f"{method} {pattern}: {answer.status} {answer.text[:200]}")
        if took > SECONDS_MAX:
            wrong.append(f"{method} {pattern}: {took:.1f} s")
    grown = house.memory_bytes(peak=True) - before
    assert wrong == []
    assert house.is_well() == ""
    assert grown < PEAK_BYTES_MAX, f"{grown / 1e6:.0f} MB"


def _doubling(levels: int) -> dict[str, Any]:
    """Return a schema whose references unfold into 2^levels nodes."""
    steps = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {
        "type": "object",
        "$defs": {**steps, f"d{levels}": {"type": "string"}},
        "properties": {"a": {"$ref": "#/$defs/d0"}},
    }


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


SCHEMAS: dict[str, dict[str, Any]] = {
    "doubling": _doubling(40),
    "deep": _deep(25),
    "wide": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(900)}},
    "huge enum": {"type": "object", "properties": {"a": {"enum": [str(n) for n in range(100_000)]}}},
    "refers to itself": {"$ref": "#"},
    "refers to each other": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "backtracking": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
    "a pattern without end": {"type": "object", "properties": {"a": {"pattern": "(a{1,1000}){1,1000}"}}},
    "unions of unions": {"anyOf": [{"anyOf": [{"anyOf": [{"type": "object"}] * 20}] * 20}] * 20},
    "all of all": {"allOf": [{"allOf": [{"properties": {f"p{n}": {"type": "string"}}} for n in range(30)]}] * 30},
    "long escape": {"type": "object", "description": "\U0001f600" * 100_000},
}


def with_tool(api: str, schema: dict[str, Any], count: int) -> bytes:
    """Return a request with this many tools of a schema, and the schema as what the answer shall follow."""
    raw = json.dumps(schema).encode()
    many = [raw] * count

    def tools(form: bytes) -> bytes:
        return b'"tools":[' + b",".join(form % (b"t%d" % n, each) for n, each in enumerate(many)) + b"]"

    more = {
        "chat": tools(b'{"type":"function","function":{"name":"%s","parameters":%s}}')
        + b',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":'
        + raw
        + b"}}",
        "responses": tools(b'{"type":"function","name":"%s","parameters":%s}')
        + b',"text":{"format":{"type":"json_schema","name":"x","schema":'
        + raw
        + b"}}",
        "messages": tools(b'{"name":"%s","input_schema":%s}'),
        "gemini": b'"tools":[{"functionDeclarations":['
        + b",".join(b'{"name":"t%d","parametersJsonSchema":%s}' % (n, each) for n, each in enumerate(many))
        + b']}],"generationConfig":{"responseMimeType":"application/json","responseJsonSchema":'
        + raw
        + b"}",
    }
    return APIS[api].body(more=more[api])


@contextmanager
def probed(house: House) -> Generator[list[float], None, None]:
    """Probe the server's health all the time and note how long each answer takes."""
    lasted: list[float] = []
    done = threading.Event()

    def probe() -> None:
        while not done.is_set():
            began = time.monotonic()
            assert house.ask("GET", "/healthz").status == 200
            lasted.append(time.monotonic() - began)
            done.wait(0.01)

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield lasted
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_of_a_clients_tool_does_not_hold_up_others(scene: Scene, name: str) -> None:
    """It is passed on, cut or refused in words, within its bounds; probes are answered meanwhile."""
    wrong: list[str] = []
    with probed(scene.house) as lasted:
        for api in ("chat", "responses", "messages", "gemini"):
            for count in (1, 20):
                began = time.monotonic()
                answer = send(scene, api, with_tool(api, SCHEMAS[name], count))
                took = time.monotonic() - began
                if answer.status not in (200, 400, 413) or took > SECONDS_MAX:
                    wrong.append(f"{api} with {count}: {answer.status} after {took:.1f} s: {answer.text[:200]}")
    assert wrong == []
    assert max(lasted) < STALL_S_MAX
    assert scene.house.is_well() == ""
