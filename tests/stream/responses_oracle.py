"""Judges a Responses stream with the real openai SDK: its SSE reader, its types and its accumulator."""

import json
from collections.abc import Iterable
from typing import Any

import httpx2
import msgspec
import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from treadle.core.events import RunEnded, RunEvent, RunStarted
from treadle.core.ids import CountingIds
from treadle.core.request import Request
from treadle.protocols.responses import Encoder, read_request
from treadle.protocols.sse import SseFrame, SseReader

TERMINALS = ("response.completed", "response.incomplete", "response.failed")
EXTENDED = ("response.output_tool_call.", "response.done")
_official: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class Verdict(msgspec.Struct, kw_only=True):
    """What a client saw: the data of every event, and the response it ended with."""

    events: list[dict[str, Any]]
    final: dict[str, Any]
    raw: bytes

    @property
    def types(self) -> list[str]:
        """Return the types of all events, without the prefix they share."""
        return [event["type"].removeprefix("response.") for event in self.events]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of one type."""
        return [event for event in self.events if event["type"] == f"response.{kind}"]


def request(**fields: Any) -> Request:
    """Read a small streaming request with these fields."""
    return read_request(json.dumps({"model": "m", "input": "hi", "stream": True, **fields}).encode())


def judge(events: Iterable[RunEvent], of: Request | None = None, *, extended: bool = False) -> Verdict:
    """Encode a run and let the SDK read it; the whole response must say the same, streamed or not."""
    asked = of or request()
    run = [STARTED, *events]
    encoder = Encoder(asked, CountingIds(namespace="new"), extended=extended)
    raw = b"".join(frame for event in run for frame in encoder.feed(event))
    frames = SseReader().feed(raw)
    verdict = Verdict(events=_checked(frames, extended=extended), final=json.loads(encoder.body()), raw=raw)
    _check_lifecycle(verdict)
    _check_sdk(raw, verdict)
    quiet = msgspec.structs.replace(asked, surface=msgspec.structs.replace(asked.surface, stream=False))
    assert _fold(run, quiet, extended=extended) == encoder.body()
    return verdict


STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1000.5)
COMPLETED = RunEnded(status="completed", ended_at=1009.0)


def _fold(run: list[RunEvent], asked: Request, *, extended: bool) -> bytes:
    encoder = Encoder(asked, CountingIds(namespace="new"), extended=extended)
    assert [frame for event in run for frame in encoder.feed(event)] == []
    return encoder.body()


def _checked(frames: list[SseFrame], *, extended: bool) -> list[dict[str, Any]]:
    """Return the data of the frames, each valid for the SDK's strict types and named as its type."""
    if extended:
        assert frames.pop() == SseFrame(data="[DONE]")
    events = [json.loads(frame.data) for frame in frames]
    assert [frame.event for frame in frames] == [event["type"] for event in events]
    numbers = [event["sequence_number"] for event in events]
    kept_alive = {n for n in range(2, len(events)) if events[n]["type"] == "response.in_progress"}
    assert [number for n, number in enumerate(numbers) if n not in kept_alive] == list(
        range(len(events) - len(kept_alive))
    )
    assert all(numbers[n] == numbers[n - 1] for n in kept_alive)
    for event in events:
        if not event["type"].startswith(EXTENDED):
            _official.validate_python(event)
    return events


def _check_lifecycle(verdict: Verdict) -> None:
    """Check what holds for every stream: one terminal, dense indexes, one open item at a time."""
    kinds = [event["type"] for event in verdict.events]
    terminals = [kind for kind in kinds if kind in TERMINALS]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert len(terminals) == 1
    last = next(event for event in verdict.events if event["type"] in TERMINALS)
    assert last["response"] == verdict.final
    steps = [(e["type"], e["output_index"]) for e in verdict.events if e["type"].startswith("response.output_item.")]
    # What clients run is never said to be done unless it is whole, and then no answer ends well.
    cut = [
        index for kind, index in steps if kind.endswith(".added") and ("response.output_item.done", index) not in steps
    ]
    assert not cut or verdict.final["status"] != "completed"
    count = len(verdict.final["output"]) + len(cut)
    expected = [
        (f"response.output_item.{step}", index)
        for index in range(count)
        for step in (("added",) if index in cut else ("added", "done"))
    ]
    assert steps == expected
    assert [event["item"] for event in verdict.of("output_item.done")] == verdict.final["output"]
    Response.model_validate(verdict.final)


def _check_sdk(raw: bytes, verdict: Verdict) -> None:
    """Let `client.responses.stream()` read the bytes and compare what it accumulated."""
    headers = {"content-type": "text/event-stream"}
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, headers=headers, content=raw))
    with (
        httpx2.Client(transport=transport) as http,
        openai.OpenAI(api_key="k", base_url="http://sdk.invalid/v1", http_client=http) as client,
        client.responses.stream(model="m", input="hi") as stream,
    ):
        seen = [event.type for event in stream]
        assert seen == [event["type"] for event in verdict.events]
        if verdict.final["status"] == "completed":
            final = stream.get_final_response().to_dict(mode="json")
            assert final["id"] == verdict.final["id"]
            assert [_told(item) for item in final["output"]] == [_told(item) for item in verdict.final["output"]]


def _told(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without what the SDK adds while it parses."""
    kept = {key: value for key, value in item.items() if key != "parsed_arguments"}
    if "content" in kept:
        kept["content"] = [{k: v for k, v in part.items() if k != "parsed"} for part in kept["content"]]
    return kept
