import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import (
    AnyPart,
    Blob,
    Extra,
    FilePart,
    ImagePart,
    OpaquePart,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.protocols.gemini.content_parts import (
    read_arguments,
    read_part,
    read_response,
    seal,
    unseal,
    write_arguments,
    write_part,
    write_response,
)
from treadle.protocols.gemini.field_spelling import CamelFields
from treadle.protocols.translation_notes import Notes

RAW = msgspec.Raw


def _read(value: Any) -> AnyPart | None:
    return read_part(CamelFields(json.dumps(value).encode(), "parts[0]"))


def _write(part: AnyPart) -> tuple[Any, list[str]]:
    notes = Notes()
    written = write_part(part, notes)
    return json.loads(msgspec.json.encode(written)), [note.code for note in notes.all()]


def _opaque(value: Any) -> OpaquePart:
    return OpaquePart(protocol="gemini", raw=RAW(msgspec.json.encode(value)))


CODE = {"executableCode": {"code": "1+1", "language": "PYTHON"}}
STORED = {"fileData": {"mimeType": "image/png", "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/x"}}
TUBE = {"fileData": {"fileUri": "https://youtu.be/x"}}

BOTH_WAYS: list[tuple[dict[str, Any], AnyPart]] = [
    ({"text": "hi"}, TextPart(text="hi")),
    ({"inlineData": {"mimeType": "image/png", "data": "AAA="}}, ImagePart(url="data:image/png;base64,AAA=")),
    ({"inlineData": {"mimeType": "audio/wav", "data": "AAA="}}, FilePart(url="data:audio/wav;base64,AAA=")),
    (
        {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a.png"}},
        ImagePart(url="https://example.org/a.png"),
    ),
    (
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.org/a.pdf?x=1"}},
        FilePart(url="https://example.org/a.pdf?x=1"),
    ),
    (CODE, _opaque(CODE)),
    (STORED, _opaque(STORED)),
    (TUBE, _opaque(TUBE)),
    (
        {"text": "hi", "partMetadata": {"a": 1}},
        TextPart(text="hi", extra=Extra(protocol="gemini", fields={"partMetadata": RAW(b'{"a": 1}')})),
    ),
]


@pytest.mark.parametrize(("wire", "part"), BOTH_WAYS, ids=lambda value: "")
def test_a_part_is_read_and_written_back(wire: dict[str, Any], part: AnyPart) -> None:
    """Media by content and by address, what only Google can fetch, unknown kinds, unknown fields."""
    assert _write(part) == (wire, [])
    found = _read(wire)
    assert found is not None
    assert _write(found) == (wire, [])
    assert type(found) is type(part)
    if not isinstance(part, OpaquePart):
        assert found == part


@pytest.mark.parametrize("protocol", ["chat", "responses"])
def test_what_is_to_be_heard_is_carried_from_the_apis_of_openai(protocol: str) -> None:
    """Their part for sound is a blob here; one that is not as it should be is left out with a note."""
    heard = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
    part = OpaquePart(protocol=protocol, raw=RAW(msgspec.json.encode(heard)))
    assert _write(part) == ({"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}}, [])
    odd = OpaquePart(protocol=protocol, raw=RAW(b'{"type":"input_audio","input_audio":5}'))
    assert _write(odd) == (None, ["part_dropped"])


def test_snake_case_and_url_safe_data_are_understood() -> None:
    """Both come from the Python SDK; padding may be missing."""
    part = _read({"inline_data": {"mime_type": "image/png", "data": "-_8", "display_name": "x.png"}})
    assert part == ImagePart(url="data:image/png;base64,+/8=")


def test_an_empty_part_is_none() -> None:
    """Streams end with them."""
    assert _read({}) is None


@pytest.mark.parametrize("value", [{"text": 5}, {"inlineData": "x"}, {"fileData": []}])
def test_a_part_of_the_wrong_type_is_refused_by_path(value: Any) -> None:
    """The error names the field."""
    with pytest.raises(ProtocolError) as caught:
        _read(value)
    assert caught.value.param == f"parts[0].{next(iter(value))}"


@pytest.mark.parametrize(
    ("part", "wire", "codes"),
    [
        (RefusalPart(text="no"), {"text": "no"}, ["refusal_as_text"]),
        (ImagePart(file_id="file-1"), {"text": "[file file-1 cannot be shown here]"}, ["file_by_id"]),
        (
            ImagePart(url="https://example.org/x", detail="low"),
            {"fileData": {"fileUri": "https://example.org/x"}},
            ["detail_dropped"],
        ),
        (
            FilePart(url="data:text/plain;charset=utf-8,a%20b", filename="a.txt"),
            {"inlineData": {"mimeType": "text/plain", "data": "YSBi"}},
            ["filename_dropped"],
        ),
        (OpaquePart(protocol="chat", raw=RAW(b'{"type":"x"}')), None, ["part_dropped"]),
    ],
    ids=lambda value: "",
)
def test_what_gemini_cannot_say_is_said_otherwise_or_noted(part: AnyPart, wire: Any, codes: list[str]) -> None:
    """Nothing is dropped silently."""
    assert _write(part) == (wire, codes)


@pytest.mark.parametrize(
    ("raw", "text", "is_error"),
    [
        (None, "", False),
        (b'{"output":"ok"}', "ok", False),
        (b'{"result":"ok"}', "ok", False),
        (b'{"result":{"a": 1}}', '{"a": 1}', False),
        (b'{"error":"bad"}', "bad", True),
        (b'{"error":{"code":"x"}}', '{"error":{"code":"x"}}', True),
        (b'{"output":5}', '{"output":5}', False),
        (b'{"error":"x","a":1}', '{"error":"x","a":1}', False),
        (b"{}", "{}", False),
    ],
)
def test_a_response_is_read_as_what_the_tool_gave(raw: bytes | None, text: str, is_error: bool) -> None:
    """The SDK wraps results and errors, gemini-cli outputs; any other object is the result itself."""
    assert read_response(None if raw is None else RAW(raw)) == (text, is_error)


@pytest.mark.parametrize(
    ("text", "is_error", "response"),
    [
        ("ok", False, {"output": "ok"}),
        ("", False, {"output": ""}),
        ("[1]", False, {"output": "[1]"}),
        ('{"a":1}', False, {"a": 1}),
        ('{"a":', False, {"output": '{"a":'}),
        ("bad", True, {"error": "bad"}),
        ('{"a":1}', True, {"error": {"a": 1}}),
        ('{"error":{"code":"x"}}', True, {"error": {"code": "x"}}),
    ],
)
def test_a_result_is_written_as_an_object(text: str, is_error: bool, response: Any) -> None:
    """Objects as they are, everything else wrapped by what it is."""
    result = ResultItem(call_id="a", output=(TextPart(text=text),), is_error=is_error)
    assert json.loads(msgspec.json.encode(write_response(result))) == response


def test_texts_of_one_result_are_lines_of_their_own() -> None:
    """A tool that gives a list gives so many texts, of which the ends must not be lost."""
    result = ResultItem(call_id="a", output=(TextPart(text="a.txt"), TextPart(text="b.txt")))
    assert write_response(result) == {"output": "a.txt\nb.txt"}


@pytest.mark.parametrize("text", ['{"a":1}', "{}", '{"a":', "", "[1]", "print(f(x=1))"])
def test_arguments_survive_as_an_object_whatever_they_are(text: str) -> None:
    """Arguments that are no object are passed on under one key and come back as they were."""
    written = msgspec.json.encode(write_arguments(text))
    assert isinstance(json.loads(written), dict)
    assert read_arguments(RAW(written)) == text


def test_arguments_are_read_compact() -> None:
    """SDKs write the object anew, so that the spelling of a replayed call says nothing."""
    assert read_arguments(RAW(b'{ "a" : [1, 2] }')) == '{"a":[1,2]}'
    assert read_arguments(None) == "{}"


def test_sealed_state_comes_back_whole() -> None:
    """Blobs of any provider, in either base64 alphabet."""
    blobs = (
        Blob(provider="anthropic", kind="signature", data="sig/+?>", model="m"),
        Blob(provider="google", kind="thought_signature", data="ü"),
    )
    sealed = seal(blobs)
    assert unseal(sealed) == blobs
    assert unseal(sealed.replace("+", "-").replace("/", "_").rstrip("=")) == blobs


@pytest.mark.parametrize("text", ["c2ln", "skip_thought_signature_validator", seal(())[:-6], seal(())[:12] + "!!"])
def test_a_signature_that_is_not_ours_is_geminis(text: str) -> None:
    """It is kept as it came."""
    assert unseal(text) == (Blob(provider="gemini", kind="thought_signature", data=text),)
    assert unseal("") == ()


def test_an_image_in_any_detail_loses_nothing() -> None:
    """Only a detail that was asked for is noted."""
    for detail, codes in ((None, []), ("auto", []), ("high", ["detail_dropped"])):
        notes = Notes()
        write_part(ImagePart(url="https://a.example/i.png", detail=detail), notes)
        assert [note.code for note in notes.all()] == codes
