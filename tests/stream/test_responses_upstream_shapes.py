"""Every shape of a Responses upstream × every chunk size, and what Treadle's own stream of it is to the real SDK."""

from typing import Any

import pytest

from stream.answers import answer, as_run, decode, unsteady
from stream.responses_oracle import judge
from stream.responses_shapes import ALL_SHAPES, SHAPES
from stream.shapes import Shape
from treadle.core.ids import CountingIds
from treadle.protocols.responses import Decoder

BY_NAME = pytest.mark.parametrize("shape", ALL_SHAPES, ids=lambda shape: shape.name)
STATUSES = {"done": "completed", "calls": "completed", "length": "incomplete", "filtered": "incomplete"}


def _events(shape: Shape, size: int = 1 << 30) -> list[Any]:
    return decode(Decoder(CountingIds(), provider="up", model="m"), shape.body, size)


def _seen(item: dict[str, Any]) -> tuple[str, ...]:
    """Return an item of the client's response as the table of shapes spells it."""
    match item["type"]:
        case "message":
            parts = item["content"]
            refused = "".join(part.get("refusal", "") for part in parts)
            return ("refusal", refused) if refused else ("text", "".join(part["text"] for part in parts))
        case "reasoning":
            return ("reasoning", "".join(part["text"] for part in (*item["summary"], *item.get("content", ()))))
        case "function_call":
            space = f"{item['namespace']}__" if item.get("namespace") else ""
            return ("call", space + item["name"], item["arguments"])
        case "custom_tool_call":
            return ("call", item["name"], item["input"])
        case _:
            return ("opaque", item["id"])


def test_the_table_holds_the_23_shapes_once_each() -> None:
    """The numbers of BUGS.md are all there, and names are unique."""
    assert [shape.number for shape in SHAPES] == list(range(1, 24))
    assert len({shape.name for shape in ALL_SHAPES}) == len(ALL_SHAPES)


@BY_NAME
def test_a_shape_of_a_responses_upstream_amounts_to_what_it_should(shape: Shape) -> None:
    """Items, stop, usage, error and notes are those of the table."""
    assert answer(_events(shape)) == shape.expected


@BY_NAME
def test_chunking_changes_nothing_of_a_responses_upstream(shape: Shape) -> None:
    """However the bytes are cut, the events are the same but for where deltas are cut."""
    assert unsteady(lambda size: _events(shape, size)) == {}


@BY_NAME
def test_the_sdk_accepts_our_stream_of_a_shape_of_a_responses_upstream(shape: Shape) -> None:
    """From Responses to Responses: the SDK sees the same items and the right status, and a cut is a failure."""
    started, *events = as_run(_events(shape), "resp_1")
    assert started.response_id == "resp_1"  # type: ignore[union-attr]
    final = judge(events).final
    expected = shape.expected
    if expected.error is not None:
        assert final["status"] == "failed"
        return
    assert final["status"] == STATUSES[expected.stop or ""]
    wanted = [item if item[0] != "opaque" else ("opaque", _id_of(item[1])) for item in expected.items]
    assert [_seen(item) for item in final["output"]] == wanted


def _id_of(raw: str) -> str:
    return raw.split('"id": "')[1].split('"')[0]
