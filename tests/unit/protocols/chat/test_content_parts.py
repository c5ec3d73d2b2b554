from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import AnyPart, Extra, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.core.json import read_json, write_json
from treadle.protocols.chat.content_parts import (
    flat_annotation,
    nested_annotation,
    read_content,
    with_extra,
    write_part,
)
from treadle.protocols.translation_notes import Notes

RAW = msgspec.Raw
AUDIO = b'{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}'


def _read(value: bytes) -> tuple[AnyPart, ...]:
    return read_content(RAW(value), "messages[0].content")


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (b'"hi"', (TextPart(text="hi"),)),
        (b'""', ()),
        (b"[]", ()),
        (b'["hi"]', (TextPart(text="hi"),)),
        (b'[{"type":"text","text":"hi"}]', (TextPart(text="hi"),)),
        (b'[{"type":"output_text","text":"hi","annotations":[]}]', (TextPart(text="hi"),)),
        (
            b'[{"type":"text","text":"hi","annotations":[{"type":"url_citation","url_citation":{"url":"u"}}]}]',
            (TextPart(text="hi", annotations=RAW(b'[{"type":"url_citation","url":"u"}]')),),
        ),
        (b'[{"type":"refusal","refusal":"no"}]', (RefusalPart(text="no"),)),
        (b'[{"type":"image_url","image_url":{"url":"u","detail":"low"}}]', (ImagePart(url="u", detail="low"),)),
        (b'[{"type":"image_url","image_url":"u"}]', (ImagePart(url="u"),)),
        (b'[{"type":"input_image","file_id":"f"}]', (ImagePart(file_id="f"),)),
        (
            b'[{"type":"file","file":{"file_data":"data:x","filename":"a.pdf"}}]',
            (FilePart(url="data:x", filename="a.pdf"),),
        ),
        (b'[{"type":"file","file":{"file_id":"f"}}]', (FilePart(file_id="f"),)),
        (b"[" + AUDIO + b"]", (OpaquePart(protocol="chat", raw=RAW(AUDIO)),)),
    ],
)
def test_every_kind_of_content_is_read(value: bytes, parts: tuple[AnyPart, ...]) -> None:
    """Strings, arrays, official parts, tolerated spellings, and unknown kinds kept as they are."""
    assert _read(value) == parts


def test_unknown_fields_of_a_known_part_come_back_as_they_were() -> None:
    """A cache marker of a Chat client reaches a Chat upstream; they override nothing."""
    value = b'{"cache_control":{"type":"ephemeral"},"type":"text","text":"hi"}'
    (part,) = _read(b"[" + value + b"]")
    extra = Extra(protocol="chat", fields={"cache_control": RAW(b'{"type":"ephemeral"}')})
    assert part == TextPart(text="hi", extra=extra)
    assert write_json(write_part(part, Notes())) == value
    evil = Extra(protocol="chat", fields={"text": RAW(b'"evil"')})
    assert with_extra({"text": "hi"}, evil) == {"text": "hi"}
    assert with_extra({"text": "hi"}, Extra(protocol="gemini", fields={"a": RAW(b"1")})) == {"text": "hi"}


@pytest.mark.parametrize(
    ("nested", "flat"),
    [
        (
            {"type": "url_citation", "url_citation": {"url": "u", "start_index": 3, "end_index": 5}},
            {"type": "url_citation", "url": "u", "start_index": 3, "end_index": 5},
        ),
        ({"type": "other", "x": 1}, {"type": "other", "x": 1}),
        ({}, {}),
    ],
)
def test_annotations_are_nested_in_chat_and_flat_elsewhere(nested: dict[str, Any], flat: dict[str, Any]) -> None:
    """Both ways, and unknown ones as they are."""
    assert flat_annotation(nested) == flat
    assert nested_annotation(flat, 0) == nested


def test_annotations_move_with_their_text() -> None:
    """The text of an earlier round stands before it in the same content."""
    flat = {"type": "url_citation", "url": "u", "start_index": 3, "end_index": 5}
    inner = {"url": "u", "start_index": 13, "end_index": 15}
    assert nested_annotation(flat, 10) == {"type": "url_citation", "url_citation": inner}


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (b"5", "messages[0].content"),
        (b"{}", "messages[0].content"),
        (b"[5]", "messages[0].content[0]"),
        (b'["a",{}]', "messages[0].content[1].type"),
        (b'[{"type":"text"}]', "messages[0].content[0].text"),
        (b'[{"type":"text","text":5}]', "messages[0].content[0].text"),
        (b'[{"type":"image_url"}]', "messages[0].content[0].image_url.url"),
        (b'[{"type":"image_url","image_url":{"url":5}}]', "messages[0].content[0].image_url.url"),
        (b'[{"type":"file","file":5}]', "messages[0].content[0].file"),
    ],
)
def test_wrong_content_is_refused_by_its_path(value: bytes, param: str) -> None:
    """The error names the part and the field."""
    with pytest.raises(ProtocolError) as caught:
        _read(value)
    assert caught.value.info.param == param


@pytest.mark.parametrize(
    ("part", "written", "codes"),
    [
        (TextPart(text="hi"), {"type": "text", "text": "hi"}, ()),
        (RefusalPart(text="no"), {"type": "refusal", "refusal": "no"}, ()),
        (ImagePart(url="u"), {"type": "image_url", "image_url": {"url": "u"}}, ()),
        (ImagePart(url="u", detail="low"), {"type": "image_url", "image_url": {"url": "u", "detail": "low"}}, ()),
        (ImagePart(file_id="f"), {"type": "text", "text": "[image f cannot be shown here]"}, ("image_by_id",)),
        (FilePart(file_id="f"), {"type": "file", "file": {"file_id": "f"}}, ()),
        (
            FilePart(url="data:x", filename="a"),
            {"type": "file", "file": {"file_data": "data:x", "filename": "a"}},
            (),
        ),
        (
            FilePart(url="https://x/a", filename="a"),
            {"type": "text", "text": "[file a at https://x/a]"},
            ("file_by_url",),
        ),
        (OpaquePart(protocol="chat", raw=RAW(AUDIO)), read_json(AUDIO), ()),
        (OpaquePart(protocol="responses", raw=RAW(b"{}")), None, ("part_dropped",)),
    ],
)
def test_every_kind_of_part_is_written(part: AnyPart, written: Any, codes: tuple[str, ...]) -> None:
    """Chat's own form where there is one, else a text that says what is missing, or nothing, with a note."""
    notes = Notes()
    raw = write_part(part, notes)
    assert (None if raw is None else read_json(write_json(raw))) == written
    assert tuple(note.code for note in notes.all()) == codes


def test_a_file_in_bare_base64_becomes_a_data_url() -> None:
    """Else it would read as an address elsewhere."""
    raw = msgspec.Raw(b'[{"type":"file","file":{"file_data":"JVBERi0=","filename":"a.pdf"}}]')
    (part,) = read_content(raw, "content")
    assert part == FilePart(url="data:application/octet-stream;base64,JVBERi0=", filename="a.pdf")


@pytest.mark.parametrize(("kind", "form"), [("wav", "wav"), ("x-wav", "wav"), ("mpeg", "mp3"), ("mp3", "mp3")])
def test_a_file_of_sound_is_a_part_to_be_heard(kind: str, form: str) -> None:
    """Chat takes no sound as a file; of other types than these it takes none at all."""
    written = write_part(FilePart(url=f"data:audio/{kind};base64,AAAA", filename="a"), Notes())
    assert read_json(bytes(written or b"")) == {"type": "input_audio", "input_audio": {"data": "AAAA", "format": form}}
