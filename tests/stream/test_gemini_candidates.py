"""Several runs as the candidates of one response, in any interleaving, judged by the real SDK's types."""

import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from stream.answers import as_run, decode
from stream.gemini_shapes import ALL_SHAPES, Shape
from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded, RunEvent
from treadle.core.ids import CountingIds
from treadle.core.request import Request, Surface
from treadle.protocols.gemini import Candidates, Decoder
from treadle.protocols.sse import SseReader

GOOD = [shape for shape in ALL_SHAPES if shape.expected.error is None]


def _run(shape: Shape, choice: int) -> list[RunEvent]:
    return as_run(decode(Decoder(CountingIds(namespace=str(choice))), shape.body), f"resp_{choice}")


def _interleaved(runs: list[list[RunEvent]], order: list[int]) -> list[tuple[int, RunEvent]]:
    """Return the events of all runs, each in its own order, the first event of the first run first."""
    rest = [list(run) for run in runs]
    events = [(0, rest[0].pop(0))]
    for choice in order:
        if rest[choice % len(rest)]:
            events.append((choice % len(rest), rest[choice % len(rest)].pop(0)))
    return events + [(choice, event) for choice, run in enumerate(rest) for event in run]


def _candidates(count: int, **surface: Any) -> Candidates:
    return Candidates(Request(protocol="gemini", model="m", surface=Surface(**surface)), CountingIds(), count)


def _folded(frames: list[Any], index: int) -> tuple[list[Any], str | None]:
    """Return the parts of a candidate as a client folds them, and how it ended."""
    mine = [entry for frame in frames for entry in frame["candidates"] if entry["index"] == index]
    parts: list[Any] = []
    for part in (part for entry in mine for part in entry["content"]["parts"]):
        kind = {name: part.get(name) for name in ("thought",)}
        if "text" in part and parts and "text" in parts[-1] and kind == {"thought": parts[-1].get("thought")}:
            parts[-1] = {**parts[-1], **part, "text": parts[-1]["text"] + part["text"]}
        else:
            parts.append(part)
    reasons = [entry["finishReason"] for entry in mine if "finishReason" in entry]
    assert len(reasons) == 1
    return [part for part in parts if part.get("text") != "" or "thoughtSignature" in part], reasons[0]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(st.sampled_from(GOOD), min_size=2, max_size=4), st.lists(st.integers(0, 7), max_size=40), st.booleans())
def test_no_candidate_sees_anything_of_another(shapes: list[Shape], order: list[int], is_array: bool) -> None:
    """B15: each candidate is what its run alone would be, streamed and whole; indexes are all there."""
    runs = [_run(shape, choice) for choice, shape in enumerate(shapes)]
    events = _interleaved(runs, order)
    streaming = _candidates(len(shapes), stream=True, is_array=is_array)
    sent = b"".join(frame for choice, event in events for frame in streaming.feed(choice, event))
    frames = json.loads(sent) if is_array else [json.loads(frame.data) for frame in SseReader().feed(sent)]
    waiting = _candidates(len(shapes))
    for choice, event in events:
        assert waiting.feed(choice, event) == []
    whole = json.loads(waiting.body())
    types.GenerateContentResponse.model_validate(whole)
    for choice, run in enumerate(runs):
        alone = _candidates(1)
        for event in run:
            alone.feed(0, event)
        (one,) = json.loads(alone.body())["candidates"]
        assert whole["candidates"][choice] == {**one, "index": choice}
        parts, reason = _folded(frames, choice)
        assert (parts or [{"text": ""}], reason) == (one["content"]["parts"], one["finishReason"])
    used = [shape.expected.usage.total_tokens for shape in shapes if shape.expected.usage is not None]
    totals = [frame["usageMetadata"]["totalTokenCount"] for frame in frames if "usageMetadata" in frame]
    assert totals == ([sum(used)] if used else [])
    assert {frame["responseId"] for frame in [*frames, whole]} == {"resp_0"}


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        (RunEnded(status="failed", error=ErrorInfo(code="x", message="no", status=503)), "UNAVAILABLE"),
        (RunEnded(status="cancelled"), "CANCELLED"),
    ],
)
def test_a_candidate_that_ends_badly_ends_the_response(ended: RunEnded, status: str) -> None:
    """A response is whole or an error, in a stream and in an array too."""
    first, second = _run(GOOD[0], 0), _run(GOOD[0], 1)
    for is_array in (True, False):
        candidates = _candidates(2, stream=True, is_array=is_array)
        sent = [frame for event in first for frame in candidates.feed(0, event)]
        sent += [frame for event in (second[0], ended) for frame in candidates.feed(1, event)]
        assert candidates.is_over
        assert candidates.feed(1, second[1]) == []
        assert not is_array or isinstance(json.loads(b"".join(sent)), list)
        assert json.loads(candidates.body())["error"]["status"] == status
