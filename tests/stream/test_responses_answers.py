"""What an answer holds beside text, as Responses clients are shown it, judged by the real openai SDK."""

import json
from typing import Any

import msgspec

from stream.responses_oracle import COMPLETED, judge
from stream.responses_runs import CALL, START, TEXT, call, called, function_call, message_item
from treadle.core.events import ItemAdded, ItemDone, RunEnded, RunEvent, TextDelta
from treadle.core.ids import CountingIds
from treadle.core.items import AnyPart, FilePart, ImagePart, MessageItem, OpaquePart, TextPart
from treadle.core.plan import Plan
from treadle.protocols.chat import Decoder
from treadle.protocols.responses import read_request
from treadle.providers.provider_model import open_call

PNG = "data:image/png;base64,iVBORw0KGgo="
IMAGE = ["output_item.added", "image_generation_call.in_progress", "image_generation_call.completed"]


def picture(number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return an image of the first message as the client sees it."""
    plain = {"type": "image_generation_call", "id": f"img_msg_1_{number}", "status": "completed"}
    return {**plain, "result": "iVBORw0KGgo=", "output_format": "png", **fields}


def answered(*parts: AnyPart, text: str = "Here.") -> list[RunEvent]:
    """Return the events of a message that streams its text and has these parts behind it."""
    begun = MessageItem(id="msg_1", role="assistant")
    done = msgspec.structs.replace(begun, content=(TextPart(text=text), *parts) if text else parts)
    deltas = [TextDelta(index=0, text=text)] if text else []
    return [ItemAdded(index=0, item=begun), *deltas, ItemDone(index=0, item=done)]


def test_images_of_an_answer_are_items_of_their_own() -> None:
    """Behind their message and before what follows, as the API shows the images it makes itself."""
    parts = (ImagePart(url=PNG), ImagePart(url="data:image/webp;base64,AAAA"))
    seen = judge([*answered(*parts), *called(1, call("{}"), "{}"), COMPLETED])
    image = [*IMAGE, "output_item.done"]
    assert seen.types == [*START, *TEXT, *image, *image, *CALL, "completed"]
    webp = picture(1, result="AAAA", output_format="webp")
    assert seen.final["output"] == [message_item("Here."), picture(), webp, function_call("{}")]


def test_an_image_is_told_once() -> None:
    """Its bytes stand in the item that is done and in the whole response, not where it begins."""
    seen = judge([*answered(ImagePart(url=PNG)), COMPLETED])
    begun = seen.of("output_item.added")[1]["item"]
    assert begun == {"type": "image_generation_call", "id": "img_msg_1_0", "status": "in_progress", "result": None}


def test_an_image_of_an_answer_that_was_cut_is_whole() -> None:
    """An image comes in one piece or not at all."""
    seen = judge([*answered(ImagePart(url=PNG)), RunEnded(status="incomplete", stop="length")])
    assert seen.final["output"][1] == picture()


def test_images_and_files_that_stand_elsewhere_are_links() -> None:
    """In texts of their own behind the answer's; parts that only another protocol knows were noted when they came."""
    parts = (
        ImagePart(url="https://example.com/a.png"),
        FilePart(url="https://example.com/b.pdf", filename="b.pdf"),
        FilePart(url="data:audio/wav;base64,AAAA", filename="c.wav"),
        FilePart(file_id="file_1"),
        OpaquePart(protocol="chat", raw=msgspec.Raw(b"{}")),
    )
    (item,) = judge([*answered(*parts), COMPLETED]).final["output"]
    assert [part["text"] for part in item["content"]] == [
        "Here.",
        "![image](https://example.com/a.png)",
        "[b.pdf](https://example.com/b.pdf)",
        "[c.wav]",
        "[file_1]",
    ]


def test_annotations_have_events_of_their_own() -> None:
    """One for each, numbered within their text, before the text is done."""
    notes = [{"type": "url_citation", "url": u, "title": "t", "start_index": 0, "end_index": 4} for u in ("a", "b")]
    item = MessageItem(
        id="msg_1",
        role="assistant",
        content=(TextPart(text="Here.", annotations=msgspec.Raw(json.dumps(notes).encode())),),
    )
    events = [*answered()[:2], ItemDone(index=0, item=item)]
    seen = judge([*events, COMPLETED])
    assert seen.types == [*START, *TEXT[:3], *["output_text.annotation.added"] * 2, *TEXT[3:], "completed"]
    told = [(event["annotation_index"], event["annotation"]) for event in seen.of("output_text.annotation.added")]
    assert told == list(enumerate(notes))
    assert seen.final["output"][0]["content"][0]["annotations"] == notes


def test_an_image_of_a_chat_upstream_reaches_a_responses_client_and_comes_back() -> None:
    """From the upstream's `images` to the client's item, and with the history to the upstream again."""
    image = {"type": "image_url", "image_url": {"url": PNG}}
    answer = {"choices": [{"message": {"content": "Here.", "images": [image]}, "finish_reason": "stop"}]}
    decoder = Decoder(CountingIds())
    decoder.feed(json.dumps(answer).encode())
    run = [event for event in decoder.finish() if isinstance(event, ItemAdded | ItemDone | TextDelta)]
    output = judge([*run, COMPLETED]).final["output"]
    assert [item["type"] for item in output] == ["message", "image_generation_call"]
    items = read_request(json.dumps({"model": "m", "input": output}).encode()).items
    body = json.loads(open_call("chat", Plan(items=items, model="m"), CountingIds(), "p").body)
    images = [image for message in body["messages"] for image in message.get("images", ())]
    assert images == [{"type": "image_url", "index": 0, "image_url": {"url": PNG}}]
