"""Bodies that are no JSON, or more of it than anybody means."""

from typing import Any

from hostile.house import MEBIBYTE
from hostile.table import APIS, VENDORS, Row, Scene, accepted, check_refusal, refused, send, several

NESTED = b'"x":' + b"[" * 1_000 + b"]" * 1_000
DEEPEST = b'"x":' + b"[" * 1_000_000 + b"]" * 1_000_000
MANY = b'"x":[' + b"[]," * 3_400_000 + b"[]]"
KEYS = b",".join(b'"k%d":1' % number for number in range(100_000))
NUMBERS = {"chat": "temperature", "responses": "temperature", "messages": "temperature"}
INTEGERS = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}


def said(asked: dict[str, Any]) -> str:
    """Return what the upstream heard the user say."""
    content = asked["messages"][-1]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def number(value: bytes, code: str = "invalid_type") -> Any:
    """Return the attempt to set a temperature of that."""

    def tries(scene: Scene) -> None:
        for api, field in NUMBERS.items():
            body = APIS[api].body(more=f'"{field}":'.encode() + value)
            check_refusal(api, send(scene, api, body), 400, code, field if code == "invalid_type" else None)
        body = APIS["gemini"].body(more=b'"generationConfig":{"temperature":' + value + b"}")
        check_refusal("gemini", send(scene, "gemini", body), 400)

    return tries


def spoken(message: bytes, code: str) -> Any:
    """Return the attempt to say that to the MCP endpoint, whose SDK would decode it."""

    def tries(scene: Scene) -> None:
        accepts = {"accept": "application/json, text/event-stream"}
        body = b'{"jsonrpc":"2.0","id":1,"method":"ping",' + message + b"}"
        check_refusal("treadle", scene.house.ask("POST", "/mcp", body, accepts), 400, code)

    return tries


def fraction(scene: Scene) -> None:
    """Ask for one token and a half."""
    for api, field in INTEGERS.items():
        whole = APIS[api].body(more=f'"{field}":1.5'.encode()).replace(b'"max_tokens":50,', b"")
        check_refusal(api, send(scene, api, whole), 400, "invalid_type", field)
    body = APIS["gemini"].body(more=b'"generationConfig":{"maxOutputTokens":1.5}')
    check_refusal("gemini", send(scene, "gemini", body), 400, field="maxOutputTokens")


def long_text(scene: Scene) -> None:
    """Say 50 MB, which is over the cap, and 24 MiB, which is not: others are answered meanwhile."""
    for api in APIS:
        check_refusal(api, send(scene, api, APIS[api].body(b'"' + b"x" * 50_000_000 + b'"')), 413, "request_too_large")
    assert send(scene, "chat", APIS["chat"].body(b'"' + b"x" * (24 * MEBIBYTE) + b'"')).status == 200


ROWS = (
    Row(
        id="json.depth_1k",
        comes="refused",
        why="JSON nests at most 64 deep",
        tries=several(refused(lambda api: api.body(more=NESTED), 400, "invalid_json"), spoken(NESTED, "invalid_json")),
    ),
    Row(
        id="json.depth_1m",
        comes="refused",
        why="found without recursion, before anything is built",
        tries=refused(lambda api: api.body(more=DEEPEST), 400, "invalid_json"),
    ),
    Row(
        id="json.10_mb_of_lists",
        comes="refused",
        why="a body has at most 200,000 values; built, these would be 290 MB",
        tries=several(refused(lambda api: api.body(more=MANY), 400, "invalid_json"), spoken(MANY, "invalid_json")),
        peak_bytes_max=128 * MEBIBYTE,
    ),
    Row(
        id="json.million_digits",
        comes="refused",
        why="no number has them",
        tries=number(b"1" * 1_000_000),
    ),
    Row(id="json.1e400", comes="refused", why="it would be infinite", tries=number(b"1e400")),
    Row(
        id="json.nan_and_infinity",
        comes="refused",
        why="JSON has no such words",
        tries=several(number(b"NaN", "invalid_json"), number(b"-Infinity", "invalid_json")),
    ),
    Row(
        id="json.duplicate_keys",
        comes="refused",
        why="two readers would read two requests",
        tries=several(
            refused(
                lambda api: api.body(more=b'"model":"good","model":"other"'), 400, "duplicate_field", field="model"
            ),
            refused(lambda api: api.body(more=b'"user":1,"\\u0075ser":2'), 400, "duplicate_field", field="user"),
            spoken(b'"method":"initialize"', "duplicate_field"),
        ),
    ),
    Row(
        id="json.lone_surrogate",
        comes="repaired",
        why="clients cut texts inside an emoji; the half becomes U+FFFD",
        tries=accepted(lambda api: api.body(b'"a \\ud83d b"'), heard=lambda asked: said(asked) == "a � b"),
    ),
    Row(
        id="json.nul_character",
        comes="accepted",
        why="it is a character like others, in a text",
        tries=accepted(lambda api: api.body(b'"a \\u0000 b"'), heard=lambda asked: said(asked) == "a \0 b"),
    ),
    Row(
        id="json.invalid_utf8",
        comes="refused",
        why="JSON is UTF-8",
        tries=refused(lambda api: api.body(b'"a \xff b"'), 400, "invalid_json"),
    ),
    Row(
        id="json.bom",
        comes="repaired",
        why="some editors put it there; it means nothing",
        tries=accepted(lambda api: b"\xef\xbb\xbf" + api.body()),
    ),
    Row(
        id="json.utf16",
        comes="refused",
        why="JSON is UTF-8",
        tries=refused(lambda api: api.body().decode().encode("utf-16"), 400, "invalid_json"),
    ),
    Row(
        id="json.trailing_garbage",
        comes="refused",
        why="what is behind the object would be read by nobody",
        tries=refused(lambda api: api.body() + b" {}", 400, "invalid_json"),
    ),
    Row(
        id="json.empty_body", comes="refused", why="nothing is asked", tries=refused(lambda _: b"", 400, "invalid_json")
    ),
    Row(
        id="json.top_level_scalar",
        comes="refused",
        why="a request is an object",
        tries=several(*(refused(lambda _, body=body: body, 400, "") for body in (b"42", b'"hi"', b"null", b"[]"))),
    ),
    Row(
        id="json.100k_keys",
        comes="refused",
        why="an object that is read field by field has at most 1,000",
        tries=refused(lambda api: api.body(more=KEYS), 400, "too_many_fields"),
    ),
    Row(
        id="json.key_1_mb",
        comes="accepted",
        why="an unknown field is passed on or noted, however it is called",
        tries=several(
            accepted(lambda api: api.body(more=b'"' + b"k" * 1_000_000 + b'":1')),
            refused(
                lambda api: api.body(more=b'"' + b"k" * 1_000_000 + b'":1'), 400, "invalid_value", apis=("treadle",)
            ),
        ),
    ),
    Row(
        id="json.string_50_mb",
        comes="refused",
        why="over the cap of 32 MiB; below it a text is a text",
        tries=long_text,
        peak_bytes_max=256 * MEBIBYTE,
    ),
    Row(
        id="json.truncated",
        comes="refused",
        why="half a request is none",
        tries=refused(lambda api: api.body()[:-3], 400, "invalid_json"),
    ),
    Row(id="json.float_for_int", comes="refused", why="there are no half tokens; the field is named", tries=fraction),
)
assert set(NUMBERS) | {"gemini"} == set(VENDORS)
