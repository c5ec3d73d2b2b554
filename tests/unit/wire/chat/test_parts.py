from typing import Any

import msgspec
import pytest

from treadle.canon.errors import ProtocolError
from treadle.canon.items import AnyPart, FilePart, ImagePart, OpaquePart, RefusalPart, TextPart
from treadle.canon.json import read_json, write_json
from treadle.wire.chat.parts import read_content, write_part
from treadle.wire.notes import Notes

RAW = msgspec.Raw
AUDIO = b'{"type":"input_audio","input_audio":{"data":"x","format":"wav"}}'


def _read(value: bytes) -> tuple[tuple[AnyPart, ...], tuple[str, ...]]:
    notes = Notes()
    return read_content(RAW(value), "messages[0].content", notes), tuple(note.code for note in notes.all())


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        (b'"hi"', (TextPart(text="hi"),)),
        (b'""', ()),
        (b"[]", ()),
        (b'["hi"]', (TextPart(text="hi"),)),
        (b'[{"type":"text","text":"hi"}]', (TextPart(text="hi"),)),
        (b'[{"type":"output_text","text":"hi","annotations":[]}]', (TextPart(text="hi"),)),
        (b'[{"type":"text","text":"hi","annotations":[1]}]', (TextPart(text="hi", annotations=RAW(b"[1]")),)),
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
    assert _read(value) == (parts, ())


def test_an_unknown_field_of_a_known_part_is_noted() -> None:
    """What cannot be carried is said."""
    assert _read(b'[{"type":"text","text":"hi","cache_control":{}}]') == ((TextPart(text="hi"),), ("field_dropped",))


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
