"""The format of cassettes: what is written comes back exactly, and what is wrong is named by its line."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ConfigError
from treadle.providers.cassettes.file_format import (
    Call,
    Cassette,
    CassetteEnd,
    CassetteRequest,
    CassetteResponse,
    Chunk,
    Header,
    data_of,
    first_difference,
    load_cassette,
    read_cassette,
    text_or_base64,
    write_cassette,
)

HEADER = Header(version=1, upstream="up", protocol="chat", base_url="http://up.invalid/v1")


def call(body: bytes = b'{"model":"m"}', *chunks: bytes, at: float = 0.0, path: str = "/chat/completions") -> Call:
    """A call that was answered with these chunks."""
    return Call(
        asked=CassetteRequest(at=at, path=path, **text_or_base64(body)),
        answered=CassetteResponse(status=200, headers={"content-type": "text/event-stream"}),
        chunks=tuple(Chunk(after_s=0.5, **text_or_base64(chunk)) for chunk in chunks),
        ended=CassetteEnd(how="eof", after_s=0.1),
    )


@given(st.binary(min_size=1), st.lists(st.binary(min_size=1), max_size=5))
def test_bytes_come_back_exactly(body: bytes, chunks: list[bytes]) -> None:
    """Whatever they are, UTF-8 or not, line breaks included."""
    cassette = Cassette(header=HEADER, calls=(call(body, *chunks),))
    again = read_cassette(write_cassette(cassette))
    assert again == cassette
    assert [data_of(chunk) for chunk in again.calls[0].chunks] == chunks
    assert again.calls[0].body == body


def test_text_is_readable_and_the_rest_is_base64() -> None:
    """A person can read a cassette of text; half a character is no text."""
    assert text_or_base64("ö".encode()) == {"text": "ö"}
    assert text_or_base64("ö".encode()[:1]) == {"base64": "ww=="}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("", "c.jsonl:1: a cassette begins with a line of type cassette"),
        ('{"type":"end","how":"eof"}', "c.jsonl:1: a cassette begins with a line of type cassette"),
        ("not json", "c.jsonl:1: "),
        ('{"type":"cassette","version":9,"upstream":"u","protocol":"chat","base_url":"x"}', "the version is 9"),
        ('{"type":"cassette","version":1,"upstream":"u","protocol":"smoke","base_url":"x"}', "Invalid enum value"),
        ('HEAD\n{"type":"chunk","text":"x"}', "c.jsonl:2: a line of type chunk cannot stand here"),
        ('HEAD\n{"type":"request","path":"/a","text":"x"}', "c.jsonl:2: the last call has no line of type end"),
        ('HEAD\n{"type":"request","path":"/a","base64":"%"}', "c.jsonl:2: "),
        ('HEAD\n{"type":"request","path":"/a","txt":"x"}', "unknown field `txt`"),
        ('HEAD\n{"type":"chunk","after_s":-1}', "Expected `float` >= 0"),
        ("HEAD\nHEAD", "c.jsonl:2: a line of type cassette cannot stand here"),
    ],
)
def test_what_is_wrong_is_named_by_its_line(lines: str, problem: str) -> None:
    """No guess is made at what was meant."""
    text = lines.replace("HEAD", msgspec.json.encode(HEADER).decode())
    with pytest.raises(ConfigError) as caught:
        read_cassette(text.encode(), "c.jsonl")
    assert problem in caught.value.message


def test_a_folder_is_one_cassette_in_the_order_of_time(tmp_path: Path) -> None:
    """Whatever the names of its files."""
    (tmp_path / "a.jsonl").write_bytes(write_cassette(Cassette(header=HEADER, calls=(call(b'{"n":2}', at=2.0),))))
    (tmp_path / "b.jsonl").write_bytes(write_cassette(Cassette(header=HEADER, calls=(call(b'{"n":1}', at=1.0),))))
    assert [each.body for each in load_cassette(tmp_path).calls] == [b'{"n":1}', b'{"n":2}']


def test_a_folder_with_several_upstreams_is_read_by_name(tmp_path: Path) -> None:
    """An upstream of that name gets its own calls; without such a name the mixture is refused."""
    other = msgspec.structs.replace(HEADER, upstream="other", base_url="http://other.invalid/v1")
    (tmp_path / "a.jsonl").write_bytes(write_cassette(Cassette(header=HEADER, calls=(call(b"{}"),))))
    (tmp_path / "b.jsonl").write_bytes(write_cassette(Cassette(header=other, calls=(call(b"[]"),))))
    assert [each.body for each in load_cassette(tmp_path, "other").calls] == [b"[]"]
    with pytest.raises(ConfigError, match=r"holds calls of 'up' .* and of 'other'"):
        load_cassette(tmp_path, "third")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """A missing file and an empty folder are two mistakes."""
    with pytest.raises(ConfigError, match=r"no\.jsonl: No such file"):
        load_cassette(tmp_path / "no.jsonl")
    with pytest.raises(ConfigError, match="there is no cassette in"):
        load_cassette(tmp_path)


def test_models_are_those_that_were_asked() -> None:
    """In the body, or in the path as Gemini says it; each once."""
    gemini = call(b"{}", path="/models/gem:streamGenerateContent?alt=sse")
    cassette = Cassette(header=HEADER, calls=(call(), call(), gemini, call(b"no json"), call(b"[]")))
    assert cassette.models == ("m", "gem")


@pytest.mark.parametrize(
    ("recorded", "asked", "said"),
    [
        (b'{"a":1,"b":[1,{"c":2}]}', b'{"b":[1,{"c":3}],"a":1}', "$.b[1].c: recorded 2, asked 3"),
        (b'{"a":[1]}', b'{"a":[1,2]}', "$.a[1]: recorded nothing, asked 2"),
        (b'{"a":1}', b"{}", "$.a: recorded 1, asked nothing"),
        (b'{"a":1}', b'{"a":true}', "$.a: recorded 1, asked true"),
        (b'{"a":1}', b'{ "a": 1 }', "nothing differs"),
        (b"abc", b"abd", "byte 2"),
        (b"abc", b"abcd", "byte 3"),
    ],
)
def test_the_first_difference_is_named_by_its_place(recorded: bytes, asked: bytes, said: str) -> None:
    """A person finds it in the request."""
    assert first_difference(recorded, asked) == said


def test_a_long_value_is_shown_short() -> None:
    """A difference in a megabyte is still one line."""
    assert len(first_difference(b'{"a":"%s"}' % (b"x" * 10_000), b'{"a":"y"}')) < 300
