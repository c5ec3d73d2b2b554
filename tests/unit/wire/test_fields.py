import msgspec
import pytest

from treadle.canon.errors import ErrorInfo, ProtocolError
from treadle.canon.json import FIELDS_MAX
from treadle.wire.fields import FLAG, INTEGER, LIST, TEXT, Fields, open_body, open_request


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


NUMBERS = msgspec.json.Decoder(list[int]).decode
WORDS = msgspec.json.Decoder(list[str]).decode


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"h":[1,2]}', [1, 2]),
        (b'\xef\xbb\xbf{"h":["a"],"b":[[1]]}', ["a"]),
        (b'{"h":["\\ud800"]}', ["\ufffd"]),
        (b'{"h":[1,"a"]}', None),
        (b'{"h":null}', None),
        (b'{"b":[1]}', None),
        (b"[1]", None),
    ],
)
def test_a_history_is_told_in_the_first_shape_that_it_has(body: bytes, told: list[object] | None) -> None:
    """All of it or nothing; the fields are there as they were written."""
    opened = open_request(body, "h", (NUMBERS, WORDS))
    assert opened.told == told
    assert opened.mended == (b"ud800" in body)
    assert (opened.members is None) == body.startswith(b"[")
    if opened.members is not None:
        assert {name: bytes(raw) for name, raw in opened.members.items()} == {
            name: bytes(raw) for name, raw in msgspec.json.decode(opened.data, type=dict[str, msgspec.Raw]).items()
        }


def test_a_shape_may_decline() -> None:
    """Then the next one is asked, and what none of them takes is bounded like anything else."""
    assert open_request(b'{"h":[1]}', "h", (lambda _raw: None, NUMBERS)).told == [1]
    deep = b'{"h":' + b"[" * 64 + b"]" * 64 + b"}"
    assert open_request(deep, "h", (lambda raw: [raw],)).told is not None
    with pytest.raises(ProtocolError, match="nests deeper"):
        open_request(deep, "h", (lambda _raw: None,))


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
