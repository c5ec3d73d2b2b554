import json
from typing import Any

import msgspec
import pytest

from treadle.core.events import ArgumentsDelta, ItemAdded, ItemDone, RoundStarted, RunEnded, TextDelta
from treadle.core.items import (
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from treadle.core.request import Surface
from treadle.protocols.chat.client_choice import Choice

RAW = msgspec.Raw
MESSAGE = MessageItem(id="msg_1", role="assistant")
ENDED = RunEnded(status="completed")
MAKER = {"provider": "p", "model": "m"}


def _choice(*events: Any, index: int = 0, **surface: Any) -> tuple[Choice, list[Any]]:
    choice = Choice(index, Surface(**{"stream": True, **surface}))
    choice.begin(b"", b"")
    entries = [entry for event in events for entry in choice.feed(event)]
    choice.finish(ENDED)
    return choice, [json.loads(entry) for entry in [*entries, *choice.take()]]


def _deltas(*events: Any) -> list[Any]:
    return [entry["delta"] for entry in _choice(*events)[1]]


def _said(text: str, index: int = 0, **fields: Any) -> list[Any]:
    parts = fields.pop("content", (TextPart(text=text, annotations=fields.pop("annotations", None)),))
    item = MessageItem(id=f"msg_{index}", role="assistant", content=parts, **fields)
    return [ItemAdded(index=index, item=MESSAGE), TextDelta(index=index, text=text), ItemDone(index=index, item=item)]


def _blob(kind: str, data: Any) -> Blob:
    return Blob(provider="p", kind=kind, data=json.dumps(data), model="m")


def test_entries_carry_the_number_of_their_choice() -> None:
    """Each entry says which choice it is of."""
    assert [entry["index"] for entry in _choice(*_said("a"), index=3)[1]] == [3, 3]


def test_a_choice_is_opened_once() -> None:
    """An opening says the role and nothing else."""
    choice = Choice(0, Surface(stream=True))
    choice.begin(b"", b"")
    assert not choice.is_open
    choice.open()
    choice.open()
    assert choice.is_open
    assert choice.take() == [b'{"index":0,"delta":{"role":"assistant"},"finish_reason":null}']


@pytest.mark.parametrize(
    ("kind", "field"),
    [(TextPart, "content"), (RefusalPart, "refusal")],
)
def test_logprobs_are_sent_once_each_the_rest_with_the_end_of_the_item(kind: Any, field: str) -> None:
    """Those that came with text go with it, those without text follow."""
    part = kind(text="a", logprobs=RAW(b'[{"token":"a"},{"token":"end"}]'))
    item = MessageItem(id="msg_1", role="assistant", content=(part,))
    choice, entries = _choice(ItemAdded(index=0, item=MESSAGE), ItemDone(index=0, item=item))
    assert [entry.get("logprobs") for entry in entries] == [
        None,
        {"content": None, "refusal": None, field: [{"token": "a"}, {"token": "end"}]},
        None,
    ]
    delta = TextDelta(index=0, text="a", logprobs=RAW(b'[{"token":"a"}]'))
    if field == "content":
        choice, entries = _choice(ItemAdded(index=0, item=MESSAGE), delta, ItemDone(index=0, item=item))
        assert [entry.get("logprobs") for entry in entries] == [
            {"content": [{"token": "a"}], "refusal": None},
            {"content": [{"token": "end"}], "refusal": None},
            None,
        ]
    whole = json.loads(msgspec.json.encode(choice.whole()))
    assert whole["logprobs"] == {"content": None, "refusal": None, field: [{"token": "a"}, {"token": "end"}]}


def test_images_are_numbered_over_the_whole_answer() -> None:
    """Accumulators put them together by index."""
    parts = (ImagePart(url="u1"), ImagePart(url="u2"))
    events = [ItemDone(index=n, item=MessageItem(role="assistant", content=parts)) for n in (0, 1)]
    images = [delta["images"][0] for delta in _deltas(*events) if "images" in delta]
    assert [(image["index"], image["image_url"]["url"]) for image in images] == [
        (0, "u1"),
        (1, "u2"),
        (2, "u1"),
        (3, "u2"),
    ]


def test_annotations_are_sent_once_at_their_place_in_the_content() -> None:
    """A list without indexes that came twice would break the SDK; texts of earlier rounds move what they point at."""
    annotation = {"type": "url_citation", "url": "u", "start_index": 0, "end_index": 2}
    raw = RAW(json.dumps([annotation]).encode())
    deltas = _deltas(*_said("One.", 0, annotations=raw), *_said("Two.", 1, annotations=raw))
    shown = [delta["annotations"] for delta in deltas if "annotations" in delta]
    starts = [[entry["url_citation"]["start_index"] for entry in entries] for entries in shown]
    assert starts == [[0, 6]]
    assert ("One.\n\nTwo.")[6:8] == "Tw"


def test_fields_of_the_provider_are_sent_once_the_last_ones_win() -> None:
    """Repeated, their texts would be glued together by accumulators."""
    events = [
        *_said("a", 0, blobs=(_blob("message_fields", {"mood": "sad", "audio": {"id": "a"}}),)),
        *_said("b", 1, blobs=(_blob("message_fields", {"mood": "glad"}),)),
    ]
    choice, entries = _choice(*events)
    assert entries[-2]["delta"] == {"mood": "glad", "audio": {"id": "a"}}
    assert choice.whole()["message"] == {
        "role": "assistant",
        "content": "a\n\nb",
        "refusal": None,
        "mood": "glad",
        "audio": {"id": "a"},
    }


def test_sealed_reasoning_is_that_of_the_last_round() -> None:
    """What a model thought before calls that the client never saw would not be taken back."""
    first = ReasoningItem(id="rs_1", blobs=(_blob("reasoning_details", [{"data": "1"}]),))
    second = ReasoningItem(id="rs_2", blobs=(_blob("reasoning_details", [{"data": "2"}]),))
    events = [
        RoundStarted(round=1, fingerprint="x"),
        ItemDone(index=0, item=first),
        RoundStarted(round=2, fingerprint="y"),
        ItemDone(index=1, item=second),
    ]
    assert _deltas(*events)[0]["reasoning_details"] == [{"data": "2", "treadle": MAKER}]


@pytest.mark.parametrize("rest", ["", '"x"}'])
def test_state_of_a_call_comes_with_its_last_piece(rest: str) -> None:
    """Always beside a function: the SDK asserts that there is one."""
    call = CallItem(id="fc_1", call_id="c", name="f")
    whole = '{"a":' + rest
    done = CallItem(id="fc_1", call_id="c", name="f", arguments=whole, blobs=(_blob("extra_content", {"sig": "s"}),))
    streamed = ArgumentsDelta(index=0, text='{"a":')
    choice, entries = _choice(ItemAdded(index=0, item=call), streamed, ItemDone(index=0, item=done))
    piece = {"index": 0, "function": {"arguments": rest}, "extra_content": {"sig": "s", "treadle": MAKER}}
    assert entries[-2]["delta"] == {"tool_calls": [piece]}
    assert choice.whole()["message"]["tool_calls"] == [
        {
            "id": "c",
            "type": "function",
            "function": {"name": "f", "arguments": whole},
            "extra_content": {"sig": "s", "treadle": MAKER},
        }
    ]


def test_an_answer_of_audio_alone_has_no_content() -> None:
    """Null, as the API writes it, and not an empty text."""
    item = MessageItem(role="assistant", blobs=(_blob("message_fields", {"audio": {"id": "a"}}),))
    choice, _ = _choice(ItemDone(index=0, item=item), stream=False)
    message = choice.whole()["message"]
    assert (message["content"], message["audio"]) == (None, {"id": "a"})


def test_an_image_that_a_responses_upstream_made_is_one_of_the_answers_images() -> None:
    """Numbered with the others; other items that only that API knows are not shown."""
    image = RAW(b'{"type":"image_generation_call","id":"ig_1","result":"AAAA"}')
    search = RAW(b'{"type":"web_search_call","id":"ws_1"}')
    items = [OpaqueItem(protocol="responses", raw=raw) for raw in (search, image, image)]
    choice, _ = _choice(*(ItemDone(index=index, item=item) for index, item in enumerate(items)))
    url = {"url": "data:image/png;base64,AAAA"}
    images = [{"type": "image_url", "index": number, "image_url": url} for number in range(2)]
    assert choice.whole()["message"] == {"role": "assistant", "content": None, "refusal": None, "images": images}
