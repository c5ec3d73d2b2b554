"""What a Responses upstream gives reaches a Responses client, and comes back to that upstream from its next request."""

import json
from typing import Any

from stream.answers import as_run, decode
from stream.responses_oracle import Verdict, judge
from stream.responses_shapes import SEARCH, A, added, called, completed, done, ev, frames, message, text
from treadle.core.ids import CountingIds
from treadle.core.plan import Plan
from treadle.protocols.responses import Decoder, read_request, write_request

THOUGHT = {
    "type": "reasoning",
    "id": "rs_up",
    "summary": [{"type": "summary_text", "text": "look"}],
    "encrypted_content": "zz",
}


def seen(*events: Any) -> Verdict:
    """Return what a client sees of an upstream's stream."""
    decoder = Decoder(CountingIds(), provider="up", model="m")
    return judge(as_run(decode(decoder, frames(*events)), "resp_1")[1:])


def replayed(output: list[Any], provider: str) -> tuple[list[Any], list[str]]:
    """Return what the next request of a client that resends everything is to an upstream, and what is noted."""
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
        for item in output
        if item["type"] == "function_call"
    ]
    body = {"model": "m", "store": False, "input": [{"role": "user", "content": "hi"}, *output, *results]}
    request = read_request(json.dumps(body).encode())
    written = write_request(Plan(items=request.items, model="m"), provider=provider)
    return json.loads(written.body)["input"], [note.code for note in written.notes]


def test_sealed_reasoning_survives_a_client_that_resends_everything() -> None:
    """The provider gets back its seal under its own id, before the call it led to; Treadle stored nothing."""
    output = seen(done(THOUGHT), *called(A, 1), completed(THOUGHT, A)).final["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    assert output[0]["encrypted_content"] != "zz"
    sent, notes = replayed(output, "up")
    assert sent[1:] == [
        THOUGHT,
        {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "call_a", "output": "sunny"},
    ]
    assert notes == []


def test_sealed_reasoning_goes_to_nobody_else() -> None:
    """Another provider gets the call without the reasoning, and the run says so."""
    output = seen(done(THOUGHT), *called(A, 1), completed(THOUGHT, A)).final["output"]
    sent, notes = replayed(output, "other")
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]
    assert notes == ["reasoning_dropped"]


def test_items_that_the_upstream_ran_come_back_as_they_were() -> None:
    """A search of the upstream is shown as it was written, and resent so."""
    output = seen(added(SEARCH), done(SEARCH), done(message("Hi"), 1), completed(SEARCH)).final["output"]
    assert output[0] == SEARCH
    sent, notes = replayed(output, "up")
    assert sent[1] == SEARCH
    assert notes == []


def test_logprobs_and_annotations_reach_the_client() -> None:
    """On the delta, at the end of the text, and on the part."""
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    note = {"type": "url_citation", "url": "https://x", "title": "x", "start_index": 0, "end_index": 2}
    part = {"type": "output_text", "text": "Hi", "annotations": [note], "logprobs": [token]}
    ended = {**message("Hi"), "content": [part]}
    verdict = seen(added(message("")), {**text("Hi"), "logprobs": [token]}, done(ended), completed(ended))
    assert [event["logprobs"] for event in verdict.of("output_text.delta")] == [[token]]
    assert [event["logprobs"] for event in verdict.of("output_text.done")] == [[token]]
    assert verdict.final["output"][0]["content"] == [part]


def test_annotations_that_only_streamed_reach_the_client() -> None:
    """An upstream that lists none in the end has still said them."""
    note = {"type": "url_citation", "url": "https://x", "title": "x", "start_index": 0, "end_index": 2}
    streamed = ev(
        "output_text.annotation.added",
        output_index=0,
        item_id="msg_1",
        content_index=0,
        annotation_index=0,
        annotation=note,
    )
    verdict = seen(added(message("")), text("Hi"), streamed, done(message("Hi")), completed())
    assert verdict.final["output"][0]["content"][0]["annotations"] == [note]
