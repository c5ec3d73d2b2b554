import msgspec
import pytest

from treadle.core.errors import ErrorInfo, ProtocolError
from treadle.core.json import DEPTH_MAX, FIELDS_MAX
from treadle.protocols.field_reader import (
    FLAG,
    INTEGER,
    LIST,
    NULL,
    TEXT,
    Fields,
    given,
    given_object,
    open_body,
    open_request,
    read_known,
    unknown_in,
    usual_or_raw,
)


def _refused(raw: bytes, name: str, decoder: object) -> ErrorInfo:
    with pytest.raises(ProtocolError) as caught:
        Fields(raw, "a[1]").need(name, decoder)  # type: ignore[arg-type]
    return caught.value.info


def test_what_is_taken_is_not_in_the_rest() -> None:
    """Fields are taken out one by one; null is the same as missing."""
    fields = Fields(b'{"a":"x","b":null,"c":[1],"d":{"e":true}}', "")
    assert fields.get("a", TEXT) == "x"
    assert fields.get("b", TEXT) is None
    assert fields.has("c")
    assert fields.peek("c") == fields.rest()["c"]
    assert (fields.peek("b"), fields.peek("z")) == (None, None)
    assert not fields.has("b")
    assert {name: bytes(raw) for name, raw in fields.rest().items()} == {"c": b"[1]", "d": b'{"e":true}'}
    inner = fields.object("d")
    assert inner is not None
    assert (inner.path, inner.get("e", FLAG), inner.at("e")) == ("d", True, "d.e")


@pytest.mark.parametrize(
    ("raw", "decoder", "param", "code"),
    [
        (b"{}", TEXT, "a[1].x", "missing_required_parameter"),
        (b'{"x":null}', TEXT, "a[1].x", "missing_required_parameter"),
        (b'{"x":1}', TEXT, "a[1].x", "invalid_type"),
        (b'{"x":1.5}', INTEGER, "a[1].x", "invalid_type"),
        (b'{"x":{}}', LIST, "a[1].x", "invalid_type"),
        (b"[]", TEXT, "a[1]", "invalid_type"),
        (b'{"x"', TEXT, "a[1]", "invalid_json"),
        (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", LIST, "a[1]", "invalid_json"),
    ],
)
def test_a_refusal_names_the_field(raw: bytes, decoder: object, param: str, code: str) -> None:
    """The path of the object and the field, and which kind of wrong it is."""
    info = _refused(raw, "x", decoder)
    assert (info.param, info.code, info.status) == (param, code, 400)
    assert param in info.message


def test_an_object_kept_as_written_must_be_an_object() -> None:
    """`json_object` keeps the bytes, and refuses anything else."""
    fields = Fields(b'{"a":{ "b": 1 },"c":"text"}', "")
    assert fields.json_object("missing") is None
    kept = fields.json_object("a")
    assert kept is not None
    assert bytes(kept) == b'{ "b": 1 }'
    with pytest.raises(ProtocolError) as caught:
        fields.json_object("c")
    assert caught.value.info.param == "c"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b'{"model":"a","model":"b"}', "duplicate_field", "model"),
        (b"{" + b",".join(b'"k%d":1' % n for n in range(FIELDS_MAX + 1)) + b"}", "too_many_fields", None),
        (b'{"a":"\xff"}', "invalid_json", None),
        (b"[" * 1_000, "invalid_json", None),
    ],
    ids=["twice", "too many", "not UTF-8", "too deep"],
)
def test_a_body_is_refused_before_it_is_decoded(body: bytes, code: str, param: str | None) -> None:
    """Whatever two readers could read differently, or no reader should have to."""
    with pytest.raises(ProtocolError) as caught:
        open_body(body)
    assert (caught.value.info.code, caught.value.info.param) == (code, param)


def test_an_object_inside_has_a_bound_on_its_fields_too() -> None:
    """The error says where it stands."""
    many = b"{" + b",".join(b'"k%d":1' % n for n in range(FIELDS_MAX + 1)) + b"}"
    with pytest.raises(ProtocolError) as caught:
        Fields(many, "tools[0]")
    assert (caught.value.info.code, caught.value.info.param) == ("too_many_fields", "tools[0]")


class Numbers(msgspec.Struct):
    h: list[int]


class Words(msgspec.Struct):
    h: list[str]


NUMBERS = msgspec.json.Decoder(Numbers).decode
WORDS = msgspec.json.Decoder(Words).decode


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (b'{"h":[1,2]}', Numbers([1, 2])),
        (b'\xef\xbb\xbf{"h":["a"],"b":[[1]]}', Words(["a"])),
        (b'{"h":["\\ud800"]}', Words(["\ufffd"])),
        (b'{"h":[1,"a"]}', None),
        (b'{"h":null}', None),
        (b'{"b":[1]}', None),
        (b"[1]", None),
    ],
)
def test_a_history_is_told_in_the_first_shape_that_it_has(body: bytes, known: Numbers | Words | None) -> None:
    """All of it or nothing; the fields are there as they were written."""
    opened = open_request(body, "h", (NUMBERS, WORDS))
    assert opened.known == known
    assert opened.mended == (b"ud800" in body)
    assert (opened.members is None) == body.startswith(b"[")
    if opened.members is not None:
        assert {name: bytes(raw) for name, raw in opened.members.items()} == {
            name: bytes(raw) for name, raw in msgspec.json.decode(opened.data, type=dict[str, msgspec.Raw]).items()
        }


def test_a_shape_may_decline() -> None:
    """Then the next one is asked, and what none of them takes is bounded like anything else."""
    assert open_request(b'{"h":[1]}', "h", (lambda _data: None, NUMBERS)).known == Numbers([1])
    deep = b'{"h":' + b"[" * 64 + b"]" * 64 + b"}"
    assert open_request(deep, "h", (lambda data: data,)).known == deep
    with pytest.raises(ProtocolError, match="nests deeper"):
        open_request(deep, "h", (lambda _data: None,))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"h":[1],"h":[2]}', "duplicate_field"),
        (b'{"h":[1],"b":' + b"[" * 64 + b"]" * 64 + b"}", "invalid_json"),
        (b'{"h":[1],"b":"\xff"}', "invalid_json"),
        (b'{"h":[1],' + b",".join(b'"k%d":1' % n for n in range(FIELDS_MAX)) + b"}", "too_many_fields"),
    ],
    ids=["twice", "too deep", "not UTF-8", "too many"],
)
def test_beside_a_history_that_has_a_shape_all_is_checked(body: bytes, code: str) -> None:
    """A usual history does not let anything else pass."""
    with pytest.raises(ProtocolError) as caught:
        open_request(body, "h", (NUMBERS,))
    assert caught.value.info.code == code


class Known(msgspec.Struct):
    model: str
    words: str | list[str] | None = None
    count: int | None = None
    raw: msgspec.Raw = NULL


KNOWN = msgspec.json.Decoder(Known)


def test_what_is_known_of_a_body_is_read_at_once() -> None:
    """Null is as missing, and what nobody knows is for others, without nulls."""
    opened = open_request(b'{"model":"m","count":null,"raw":{"a":1},"more":[1],"less":null}')
    known = read_known(KNOWN, opened)
    assert (known.model, known.words, known.count, bytes(known.raw)) == ("m", None, None, b'{"a":1}')
    assert unknown_in(opened, frozenset(Known.__struct_fields__)) == {"more": msgspec.Raw(b"[1]")}
    assert unknown_in(opened, frozenset({*Known.__struct_fields__, "more", "less"})) == {}


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"{}", "Missing required 'model'.", "model"),
        (b'{"count":"x","model":null}', "Missing required 'model'.", "model"),
        (b'{"count":"x","model":"m"}', "Invalid 'count': Expected `int`, got `str`.", "count"),
        (b'{"words":[1],"model":"m"}', "Invalid 'words[0]': Expected `str`, got `int`.", "words[0]"),
        (b'{"words":1,"count":[],"model":"m"}', "Invalid 'words': Expected `str | array`, got `int`.", "words"),
        (b"[1]", "The body is not a JSON object: Invalid body: Expected `object`, got `array`.", None),
    ],
)
def test_the_first_known_field_that_is_wrong_is_named(body: bytes, message: str, param: str | None) -> None:
    """In the order of the struct, as if it had been read alone: nobody is told that null would do."""
    with pytest.raises(ProtocolError) as caught:
        read_known(KNOWN, open_request(body))
    assert (caught.value.message, caught.value.info.param) == (message, param)


def test_a_raw_field_is_given_unless_it_is_absent_or_null() -> None:
    """One that must be an object is refused otherwise, and kept without the body it came in."""
    assert (given(NULL), given(msgspec.Raw(b"null")), given(msgspec.Raw(b"0"))) == (None, None, msgspec.Raw(b"0"))
    assert given_object(NULL, "a") is given_object(msgspec.Raw(b"null"), "a") is None
    assert given_object(msgspec.Raw(b"{}"), "a") == msgspec.Raw(b"{}")
    with pytest.raises(ProtocolError) as caught:
        given_object(msgspec.Raw(b"[]"), "a.b")
    assert (caught.value.message, caught.value.info.param) == ("Invalid 'a.b': Expected `object`.", "a.b")


def test_an_entry_that_is_not_usual_leaves_the_others_usual() -> None:
    """It stays as it was written; one that may nest too deep is for others to judge."""

    def usual(raw: msgspec.Raw) -> str | None:
        return TEXT.decode(raw) if bytes(raw).startswith(b'"') else None

    raws = [msgspec.Raw(text) for text in (b'"a"', b"[1]", b'"b"')]
    assert usual_or_raw(raws, usual) == ["a", raws[1], "b"]
    deep = msgspec.Raw(b"[" * (DEPTH_MAX - 1) + b"]" * (DEPTH_MAX - 1))
    assert usual_or_raw([*raws, deep], usual) is None
    assert usual_or_raw([*raws, msgspec.Raw(bytes(deep)[1:-1])], usual) is not None
