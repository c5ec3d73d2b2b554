"""Foreign schemas and the values made for them: none keeps the event loop from other work, and all end."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.tools import schema_worker
from treadle.tools.compiled_schema import BadSchema
from treadle.tools.json_schema import PATTERNS_NEAR_MAX, STEPS_NEAR_MAX, Validator
from treadle.tools.schema_worker import CHECK_S, CheckTimeout, SchemaReply, WorkerSchema

STALL_S_MAX = 1.0
"""Idle it is under 40 ms, beside other tests up to 0.6 s, as the work of threads counts; the fault was seconds."""
ENDS_S_MAX = 4 * CHECK_S + 10


class Watch:
    """The longest that the event loop did not come round, in seconds of this process at work.

    What the machine does for others meanwhile does not count.
    """

    longest_s = 0.0


@contextlib.asynccontextmanager
async def watched() -> AsyncGenerator[Watch, None]:
    """Measure how long the loop stands still."""
    watch = Watch()

    async def look() -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(0.001)
            watch.longest_s = max(watch.longest_s, time.process_time() - began)

    task = asyncio.create_task(look())
    await asyncio.sleep(0)
    try:
        yield watch
    finally:
        await asyncio.sleep(0.002)
        task.cancel()


def raw(schema: object) -> msgspec.Raw:
    """Write a schema; the standard library writes integers of any size."""
    return msgspec.Raw(json.dumps(schema).encode())


def strings(pattern: str) -> dict[str, Any]:
    """Describe an array of strings that fit a pattern."""
    return {"type": "array", "items": {"type": "string", "pattern": pattern}}


def nested(levels: int) -> Any:
    """Return objects inside one another."""
    value: Any = {}
    for _ in range(levels):
        value = {"c": value}
    return value


CHILD = {"properties": {"c": {"$ref": "#/$defs/n"}}}
RECURSIVE = {
    "$ref": "#/$defs/n",
    "$defs": {"n": {"anyOf": [{**CHILD, "required": ["x"]}, {**CHILD, "required": ["y"]}]}},
}
A_CONST = [{"type": "object", "properties": {"a": {"const": n}}, "required": ["a"]} for n in range(900)]
HOSTILE: dict[str, tuple[Any, Any]] = {
    "backtracking": (strings("^(a+)+$"), ["a" * 28 + "!"] * 5000),
    "back reference": (strings(r"^(a+)+\1b$"), ["a" * 60] * 5000),
    "look-around": (strings("^(?=(a+)+$)(?!b)(a+)+c$"), ["a" * 60] * 5000),
    "counted repetition": (strings("^(?:a{1,100}){1,20}b"), ["a" * 3000] * 300),
    "repetition too large": (strings("(a{1,1000}){1,1000}"), ["a" * 3000] * 300),
    "many patterns": ({"properties": {f"a{n}": {"pattern": f"(\\w{{1,30}}){{1,9}}{n}"} for n in range(1500)}}, {}),
    "pattern properties": (
        {"patternProperties": {f"^a{n}.*x{{1,50}}$": {} for n in range(100)}},
        {f"b{n}": 1 for n in range(20_000)},
    ),
    "enum of objects, last": ({"items": {"enum": [{"a": n} for n in range(4000)]}}, [{"a": 3999}] * 5000),
    "enum of objects, none": ({"items": {"enum": [{"a": n} for n in range(2000)]}}, [{"a": -1}] * 5000),
    "any of many": ({"items": {"anyOf": A_CONST}}, [{"a": -1}] * 2000),
    "recursion, 20 levels": (RECURSIVE, nested(20)),
    "recursion, 60 levels": (RECURSIVE, nested(60)),
    "unique items": ({"uniqueItems": True}, [{"a": n} for n in range(50_000)]),
    "unevaluated": (
        {"allOf": [{"properties": {f"a{n}": {}}} for n in range(1500)], "unevaluatedProperties": False},
        {f"a{n}": 1 for n in range(1500)},
    ),
    "lengths of a long text": ({"anyOf": [{"minLength": 10**7 + n} for n in range(900)]}, "é" * 3_000_000),
    "huge integers": ({"items": {"enum": [10**4000 + n for n in range(7)]}}, [10**4000 - 1] * 5_000),
    "format that compiles": ({"items": {"format": "regex"}}, ["(a{1,1000}){1,100}"] * 2000),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_schema_does_not_hold_up_the_loop(name: str) -> None:
    """Compiling, checking and listing what is wrong end within their bounds, and other work goes on meanwhile."""
    schema, value = HOSTILE[name]
    began = time.monotonic()
    async with watched() as watch:
        try:
            validator = await asyncio.to_thread(Validator, raw(schema))
            with contextlib.suppress(CheckTimeout):
                await validator.fits(value)
            with contextlib.suppress(CheckTimeout):
                await asyncio.to_thread(validator.faults, value)
        except BadSchema:
            pass
    assert watch.longest_s < STALL_S_MAX
    assert time.monotonic() - began < ENDS_S_MAX


async def test_look_around_and_back_references_still_work() -> None:
    """Patterns that the linear engine lacks are checked in the worker, and say what is wrong."""
    validator = await asyncio.to_thread(Validator, raw({"properties": {"a": {"pattern": r"^(?!x)(\w)\1$"}}}))
    assert not validator.is_near
    assert [await validator.fits({"a": text}) for text in ("yy", "xx", "yz")] == [True, False, False]
    [fault] = await asyncio.to_thread(validator.faults, {"a": "xx"})
    assert fault.path == "/a"


def test_an_ordinary_schema_needs_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tools usually have is compiled and checked here, also with a text as large as a file."""

    def refuse(_: bytes) -> SchemaReply:
        pytest.fail("the worker was asked")

    monkeypatch.setattr(schema_worker.workers, "ask", refuse)
    email = r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$"
    validator = Validator(
        raw({"properties": {"to": {"pattern": email}, "text": {"type": "string"}}, "required": ["to", "text"]})
    )
    assert validator.fits_now({"to": "a@b.org", "text": "x" * 250_000})
    assert validator.fits_now({"to": "a@b.org"}) is False
    assert validator.faults({"to": "a@b"})


def test_a_pattern_that_cannot_be_compiled_is_named() -> None:
    """The reason says where the pattern stands."""
    with pytest.raises(BadSchema, match="the pattern at /properties/a/pattern"):
        Validator(raw({"properties": {"a": {"pattern": "(a{1,1000}){1,1000}"}}}))


def test_a_check_that_is_late_ends_and_the_next_one_works() -> None:
    """The worker that was busy is killed; another answers the next question."""
    schema, value = HOSTILE["enum of objects, last"]
    late = WorkerSchema(json.dumps(schema).encode(), is_recursive=False)
    began = time.monotonic()
    with pytest.raises(CheckTimeout, match="within 2 s"):
        late.is_valid(value * 10)
    assert time.monotonic() - began < CHECK_S + 5
    assert late.is_valid([{"a": 1}])
    assert not late.is_valid([{"a": -1}])


def test_workers_end_with_their_process() -> None:
    """A worker whose pipe is closed leaves by itself."""
    worker = schema_worker.SchemaWorker()
    schema = msgspec.json.encode({"wanted": "compile", "schema": "{}", "is_recursive": False, "value": None})
    assert worker.ask(schema) == SchemaReply(is_valid=True)
    process = worker.process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(10) == 0
    worker.close()


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=12,
)
schemas = st.recursive(
    st.sampled_from(
        [{}, {"type": "string"}, {"type": "integer"}, {"pattern": "^a"}, {"pattern": "(?!a)b"}, {"maxLength": 2}]
    ),
    lambda inner: (
        st.fixed_dictionaries({"items": inner})
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)})
        | st.fixed_dictionaries({"enum": st.lists(values, min_size=1, max_size=3)})
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(schema=schemas, value=values)
def test_here_and_in_the_worker_mean_the_same(schema: Any, value: Any) -> None:
    """Where a value is checked changes nothing about what is said of it."""
    validator = Validator(raw(schema))
    far = WorkerSchema(bytes(raw(schema)), is_recursive=False)
    assert validator.is_valid(value) == far.is_valid(value)
    assert validator.faults(value) == far.faults(value)


def test_the_bounds_leave_room_for_ordinary_tools() -> None:
    """A schema of 4 KB with 400 values, and a dozen patterns, is checked here."""
    assert STEPS_NEAR_MAX >= 4_000 * 400
    assert PATTERNS_NEAR_MAX >= 12
