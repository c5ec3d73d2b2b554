import base64
import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import AnyPart, Extra, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.core.json import read_json, write_json
from treadle.protocols.messages.content_blocks import read_content, write_part
from treadle.protocols.translation_notes import Notes

CACHED = {"cache_control": {"type": "ephemeral"}}
EXTRA = Extra(protocol="messages", fields={"cache_control": msgspec.Raw(b'{"type": "ephemeral"}')})
B64 = base64.b64encode(b"hello").decode()


def _read(value: Any) -> tuple[AnyPart, ...]:
    return read_content(msgspec.Raw(json.dumps(value).encode()), "content")


def _written(part: AnyPart) -> tuple[Any, list[str]]:
    notes = Notes()
    block = write_part(part, notes)
    return None if block is None else read_json(write_json(block)), [note.code for note in notes.all()]


def _source(kind: str, **fields: str) -> dict[str, Any]:
    return {"source": {"type": kind, **fields}}


PAIRS: list[tuple[dict[str, Any], AnyPart]] = [
    ({"type": "text", "text": "hi"}, TextPart(text="hi")),
    ({"type": "text", "text": "hi", **CACHED}, TextPart(text="hi", extra=EXTRA)),
    (
        {"type": "image", **_source("base64", media_type="image/png", data=B64)},
        ImagePart(url=f"data:image/png;base64,{B64}"),
    ),
    (
        {"type": "image", **_source("url", url="https://x/a.png"), **CACHED},
        ImagePart(url="https://x/a.png", extra=EXTRA),
    ),
    ({"type": "image", **_source("file", file_id="file_1")}, ImagePart(file_id="file_1")),
    (
        {"type": "document", **_source("base64", media_type="application/pdf", data=B64), "title": "a.pdf"},
        FilePart(url=f"data:application/pdf;base64,{B64}", filename="a.pdf"),
    ),
    (
        {"type": "document", **_source("text", media_type="text/plain", data="hello"), **CACHED},
        FilePart(url=f"data:text/plain;base64,{B64}", extra=EXTRA),
    ),
    ({"type": "document", **_source("url", url="https://x/a.pdf")}, FilePart(url="https://x/a.pdf")),
    ({"type": "document", **_source("file", file_id="f"), "title": "t"}, FilePart(file_id="f", filename="t")),
]


@pytest.mark.parametrize(("block", "part"), PAIRS)
def test_blocks_and_parts_stand_for_each_other(block: dict[str, Any], part: AnyPart) -> None:
    """In both directions, with all their fields and without a note."""
    assert _read([block]) == (part,)
    assert _written(part) == (block, [])


@pytest.mark.parametrize(
    "block",
    [
        {"type": "search_result", "source": "s", "title": "t", "content": []},
        {"type": "search_result", "source": 5, "title": "t", "content": [{"type": "text", "text": "x"}]},
        {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
        {"type": "image", **_source("teleport")},
    ],
)
def test_blocks_without_a_canonical_form_are_kept(block: dict[str, Any]) -> None:
    """Exactly, for upstreams of this protocol."""
    (part,) = _read([block])
    assert isinstance(part, OpaquePart)
    assert _written(part) == (block, [])


WORDS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (
            {"type": "search_result", "source": "https://x/", "title": "X", "content": WORDS, **CACHED},
            "[X at https://x/]\none\ntwo",
        ),
        ({"type": "document", "source": {"type": "content", "content": WORDS}, "title": "D"}, "[D]\none\ntwo"),
        ({"type": "document", **_source("content", content="one")}, "one"),
    ],
    ids=["found", "document", "untitled"],
)
def test_what_a_client_found_is_text_to_other_protocols_and_itself_to_this_one(
    block: dict[str, Any], text: str
) -> None:
    """The results of a search are what the model shall answer from: an upstream that lacks the block reads them."""
    (part,) = _read([block])
    assert isinstance(part, TextPart)
    assert part.text == text
    assert _written(part) == (block, [])


def test_a_content_may_be_a_string_or_nothing() -> None:
    """And strings may stand among blocks."""
    assert _read("hi") == (TextPart(text="hi"),)
    assert _read("") == ()
    assert read_content(None, "content") == ()
    assert _read(["hi"]) == (TextPart(text="hi"),)


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (5, "content"),
        ([5], "content.0"),
        ([{"text": "x"}], "content.0.type"),
        ([{"type": "text", "text": 5}], "content.0.text"),
        ([{"type": "text", "text": "a"}, {"type": "image"}], "content.1.source"),
        ([{"type": "image", "source": {"type": "base64", "data": "x"}}], "content.0.source.media_type"),
        ([{"type": "document", "source": {}}], "content.0.source.type"),
    ],
)
def test_what_contradicts_the_types_is_refused_by_its_path(value: Any, param: str) -> None:
    """As the API itself writes a path."""
    with pytest.raises(ProtocolError) as caught:
        _read(value)
    assert caught.value.param == param
    assert param in caught.value.message


@pytest.mark.parametrize(
    ("part", "block", "codes"),
    [
        (TextPart(text="  \n"), None, []),
        (RefusalPart(text="no"), {"type": "text", "text": "no"}, []),
        (OpaquePart(protocol="chat", raw=msgspec.Raw(b"{}")), None, ["part_dropped"]),
        (
            TextPart(text="x", extra=Extra(protocol="chat", fields={"y": msgspec.Raw(b"1")})),
            {"type": "text", "text": "x"},
            ["fields_dropped"],
        ),
        (
            ImagePart(url="https://x/a", detail="low"),
            {"type": "image", **_source("url", url="https://x/a")},
            ["image_detail_dropped"],
        ),
        (
            ImagePart(url="data:image/tiff;base64,AA=="),
            {"type": "text", "text": "[image of type image/tiff cannot be shown here]"},
            ["attachment_unreadable"],
        ),
        (
            FilePart(url=f"data:image/png;base64,{B64}", filename="a.png"),
            {"type": "image", **_source("base64", media_type="image/png", data=B64)},
            [],
        ),
        (
            FilePart(url="data:text/csv,a%2Cb", filename="a.csv"),
            {"type": "document", **_source("text", media_type="text/plain", data="a,b"), "title": "a.csv"},
            [],
        ),
        (
            FilePart(url="data:application/zip;base64,AA==", filename="a.zip"),
            {"type": "text", "text": "[file a.zip of type application/zip cannot be shown here]"},
            ["attachment_unreadable"],
        ),
        (
            FilePart(url="data:text/plain;base64,/w=="),
            {"type": "text", "text": "[file  of type text/plain cannot be shown here]"},
            ["attachment_unreadable"],
        ),
        (
            FilePart(url="data:application/pdf"),
            {"type": "text", "text": "[file  of type application/pdf cannot be shown here]"},
            ["attachment_unreadable"],
        ),
    ],
)
def test_what_the_api_cannot_say_is_said_otherwise(part: AnyPart, block: Any, codes: list[str]) -> None:
    """Never dropped without a note."""
    assert _written(part) == (block, codes)


def test_an_address_counts_more_than_a_files_id() -> None:
    """A part that has both is written by what anybody can fetch."""
    address = _source("url", url="https://x/a")
    assert _written(ImagePart(url="https://x/a", file_id="f")) == ({"type": "image", **address}, [])
    assert _written(FilePart(url="https://x/a", file_id="f")) == ({"type": "document", **address}, [])
    assert _written(ImagePart()) == ({"type": "image", **_source("url", url="")}, [])
