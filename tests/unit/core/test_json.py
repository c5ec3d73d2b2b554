import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core import json as canon_json
from treadle.core.json import (
    DEPTH_MAX,
    FIELDS_MAX,
    JOINED_MAX,
    NODES_MAX,
    BadJson,
    canonical_json,
    check_bounds,
    check_fields,
    check_members,
    cut_text,
    fingerprint,
    members_of,
    read_json,
)

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_equal_values_have_equal_canonical_bytes():
    """Key order does not matter to the canonical spelling."""
    assert canonical_json({"b": 1, "a": [1, {"d": 2, "c": 3}]}) == b'{"a":[1,{"c":3,"d":2}],"b":1}'


def test_fingerprint_is_the_sha256_of_the_canonical_bytes():
    """The fingerprint of an empty object is the well-known digest of its two bytes."""
    assert fingerprint({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * 65 + b"]" * 65, "deeper than 64"),
        (b"[" * 1_000_000, "more than 200000"),
        (b"[" + b"0," * 200_001 + b"0]", "more than 200000"),
        (b'{"a":', "truncated"),
        (b"NaN", "malformed"),
        (b"1e999", "out of range"),
        (b"", "truncated"),
        (b'{"a":1} x', "malformed"),
        (b'"\xff"', "utf-8"),
    ],
)
def test_hostile_json_is_refused_in_words(text: bytes, words: str):
    """Depth, width, broken and out-of-range JSON are refused with a reason, and never by another exception."""
    with pytest.raises(BadJson) as caught:
        read_json(text)
    assert words in str(caught.value).lower()


def test_brackets_inside_strings_do_not_count_as_depth():
    """Structure inside a string is text."""
    assert read_json('["' + "[" * 500 + '\\""]') == ["[" * 500 + '"']


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


@given(
    st.recursive(
        st.text(alphabet='[]{},"\\a', max_size=4) | st.integers(0, 9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet='[{"\\', max_size=2), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_depth_is_counted_exactly(value):
    """Whatever stands in strings and keys, a value passes at its own depth and fails below it."""
    raw, depth = canonical_json(value), _depth(value)
    check_bounds(raw, depth_max=depth)
    if depth:
        with pytest.raises(BadJson):
            check_bounds(raw, depth_max=depth - 1)


def _values(value: object) -> int:
    """Count what opens and what follows another."""
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(_values, inner))


@given(JSON_VALUES)
def test_values_are_counted_exactly(value: object):
    """Whatever stands in strings, a document passes at its own number of values and fails below it."""
    raw, count = canonical_json(value), _values(value)
    check_bounds(raw, nodes_max=count)
    if count:
        with pytest.raises(BadJson, match=f"more than {count - 1} values"):
            check_bounds(raw, nodes_max=count - 1)


@given(JSON_VALUES | st.lists(st.text(alphabet='\\\\"[],a', max_size=6), max_size=8), st.integers(1, 12))
def test_values_are_counted_exactly_wherever_the_text_is_cut(value: object, piece_bytes: int):
    """Cuts fall outside of strings, whatever is escaped in them: counts and depth are those of the whole."""
    raw, count = canonical_json(value), _values(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canon_json, "PIECE_BYTES", piece_bytes)
        check_bounds(raw, depth_max=0 if not count else 64, nodes_max=count)
        if count:
            with pytest.raises(BadJson, match=f"more than {count - 1} values"):
                check_bounds(raw, nodes_max=count - 1)


def test_the_bounds_are_those_that_are_documented():
    """Depth 64 passes and 65 does not; so many values, and so many fields of one object."""
    assert (DEPTH_MAX, NODES_MAX, FIELDS_MAX) == (64, 200_000, 1_000)
    check_bounds(b"[" * 64 + b"]" * 64)
    check_bounds(b"[" + b"0," * 199_999 + b"0]")
    with pytest.raises(BadJson, match="more than 200000"):
        check_bounds(b"[" + b"0," * 200_000 + b"0]")
    check_fields(json.dumps({f"k{n}": 1 for n in range(1_000)}).encode())
    with pytest.raises(BadJson, match="more than 1000 fields") as caught:
        check_fields(json.dumps({f"k{n}": 1 for n in range(1_001)}).encode())
    assert (caught.value.code, caught.value.field) == ("too_many_fields", "")


def _nested(depth: int, around: bytes = b"%b") -> bytes:
    return around % (b"[" * depth + b"]" * depth)


@pytest.mark.parametrize(
    "around",
    [
        b'{"a":%b}',
        b'{"a":{"b":%b}}',
        b'{"a":[%b]}',
        b'{"a":[1,%b]}',
        b'{"a":1,"b":[{},{"c":%b}]}',
        b'{"a":{"b":[%b,2]}}',
    ],
)
@pytest.mark.parametrize("proven", ["", "other"])
def test_an_object_by_its_fields_has_the_same_bounds(around: bytes, proven: str):
    """Wherever the depth stands: what passes by its fields passes as a whole, and the other way round."""
    passed = {}
    for depth in range(DEPTH_MAX - 5, DEPTH_MAX + 2):
        raw = _nested(depth, around)
        members = members_of(raw)
        assert members is not None
        passed[depth] = [_is_taken(check_bounds, raw), _is_taken(check_members, raw, members, proven)]
    assert {tuple(pair) for pair in passed.values()} == {(True, True), (False, False)}, passed


def test_a_field_that_is_known_to_be_flat_is_not_looked_at(monkeypatch: pytest.MonkeyPatch):
    """Neither are values that open little, nor lists of such; what opens much or often is, and so is what is huge."""
    looked: list[bytes] = []
    monkeypatch.setattr(canon_json, "check_bounds", looked.append)
    flat = [
        _nested(DEPTH_MAX - 1, b'{"a":%b}'),
        _nested(DEPTH_MAX - 2, b'{"a":[%b,{},{}]}'),
        b'{"a":[' + b"[]," * DEPTH_MAX + b'[]],"b":"[[[["}',
        b'{"a":{"b":{"c":{"d":[' + b"[]," * DEPTH_MAX + b"[]]}}}}",
        b'{"a":"' + b"[" * 5_000 + b'"}',
        b'{"a":"' + b"x," * (NODES_MAX // 4) + b"," * (NODES_MAX // 2) + b'"}',
        b'{"a":"' + b"x" * NODES_MAX + b'"}',
        b'{"a":"' + b"," * (NODES_MAX - 1) + b'"}',
    ]
    deep = [
        _nested(DEPTH_MAX, b'{"a":%b}'),
        _nested(DEPTH_MAX - 1, b'{"a":[1,%b]}'),
        b'{"a":{"b":{"c":{"d":{"e":[' + b"[]," * DEPTH_MAX + b"[]]}}}}}",
        b'{"a":"' + b"," * (NODES_MAX + 1) + b'"}',
        b'{"a":"' + b"[" * NODES_MAX + b',"}',
        b'{"a":"' + b"{" * NODES_MAX + b',"}',
    ]
    for raw in (*flat, *deep):
        check_members(raw, members_of(raw) or {})
    assert looked == deep
    check_members(deep[0], members_of(deep[0]) or {}, "a")
    assert looked == deep


def _is_taken(check, *given: object) -> bool:
    try:
        check(*given)
    except BadJson:
        return False
    return True


@pytest.mark.parametrize("raw", [b"[1]", b'"a"', b"null", b"", b'{"a":', b'{"a":1} x'])
def test_what_is_no_object_has_no_fields(raw: bytes):
    """Other JSON, and what is none, is passed on for others to refuse."""
    assert members_of(raw) is None
    check_fields(raw)


@given(st.text(), st.integers(0, 60))
def test_a_cut_is_a_prefix_within_the_bound_and_valid_utf8(text: str, bytes_max: int):
    """Whatever the text and the bound, the cut fits, is a prefix, and can be encoded."""
    cleaned = text.encode("utf-8", "replace").decode()
    cut = cut_text(cleaned, bytes_max)
    assert cleaned.startswith(cut)
    assert len(cut.encode()) <= bytes_max


@pytest.mark.parametrize(
    ("text", "bytes_max", "kept"),
    [("abc", 3, "abc"), ("aé", 2, "a"), ("ae\u0301", 2, "a"), ("👩‍🚀!", 8, ""), ("👍🏽", 4, "")],
)
def test_a_cut_never_parts_what_is_one_character_to_a_person(text: str, bytes_max: int, kept: str):
    """Accents, joiners and skin tones stay with the character they belong to."""
    assert cut_text(text, bytes_max) == kept


@pytest.mark.parametrize(("first", "last"), [(0x300, 0x36F), (0xFE00, 0xFE0F), (0x1F3FB, 0x1F3FF), (0x20D0, 0x20FF)])
def test_every_mark_stays_with_its_character(first: int, last: int):
    """From the first of a block of marks to its last, and no character beside it."""
    cuts = {code: cut_text(f"ab{chr(code)}", 2) for code in (first - 1, first, last, last + 1)}
    assert cuts == {first - 1: "ab", first: "a", last: "a", last + 1: "ab"}


def test_a_joiner_holds_on_both_sides():
    """What stands before it and what stands after it are one character."""
    assert cut_text("ab\u200dc", 2) == "a"
    assert cut_text("ab\u200dc", 5) == "a"
    assert cut_text("abc\u200d", 2) == "ab"


def test_a_run_of_marks_without_end_is_cut_anywhere():
    """No more is given up than a person could have written; nothing is left of what has only marks."""
    marks = "\u0301" * 200
    assert cut_text(f"a{marks}", 201) == f"a{marks[: 100 - JOINED_MAX]}"
    assert JOINED_MAX == 32
    assert cut_text(marks, 4) == ""


def test_a_cut_of_what_utf8_cannot_say_is_of_what_it_says_instead():
    """Half of a surrogate pair is one byte; uncut, the text stays as it was."""
    assert cut_text("a\ud800bc", 3) == "a?b"
    assert cut_text("a\ud800", 2) == "a\ud800"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'{"a":1,"a":1}', "a"),
        (b'{"b":0,"a":1,"c":{"a":1},"a":1,"c":2}', "a"),
        (b'{"a":1,"b":{"a":2},"a":[3]}', "a"),
        (b'{ "a" : 1 ,\n "a": 2 }', "a"),
        (b'{"a":1,"\\u0061":2}', "a"),
        (b'{"a":"\\"}:{","b":1,"a":1}', "a"),
        (b'{"big":' + b"1" * 5_000 + b',"x":NaN1,"big":1}', None),
        (b'{"big":' + b"1" * 5_000 + b',"big":1}', "big"),
    ],
)
def test_a_field_that_stands_there_twice_is_named(text: bytes, name: str | None):
    """However it is spelled and whatever its values; what is no JSON at all is for others to refuse."""
    if name is None:
        check_fields(text)
        return
    with pytest.raises(BadJson) as caught:
        check_fields(text)
    assert (caught.value.code, caught.value.field) == ("duplicate_field", name)


@given(JSON_VALUES)
def test_an_object_that_says_each_field_once_passes(value: object):
    """In whatever spacing, with whatever inside its values."""
    for text in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value, ensure_ascii=False)):
        check_fields(text.encode("utf-8", "replace"), fields_max=10**6)


@given(st.dictionaries(st.text(max_size=3), JSON_VALUES, min_size=1, max_size=4), st.data())
def test_a_field_more_is_never_overlooked(value: dict[str, object], data: st.DataObject):
    """However short it is and however the object is spelled: one that stands there twice is found."""
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()), separators=(",", ":"))
    name = data.draw(st.sampled_from(sorted(value)))
    twice = "{" + json.dumps(name, ensure_ascii=False) + ":0," + text[1:]
    check_fields(text.encode("utf-8", "replace"))
    if twice.encode("utf-8", "replace").decode() == twice:
        with pytest.raises(BadJson, match="stands there twice"):
            check_fields(twice.encode())


def test_an_object_has_so_many_fields_and_no_more():
    """Exactly as many as the bound."""
    check_fields(json.dumps({f"k{n}": 1 for n in range(3)}).encode(), fields_max=3)
    with pytest.raises(BadJson, match="more than 3 fields"):
        check_fields(json.dumps({f"k{n}": 1 for n in range(4)}).encode(), fields_max=3)


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b" { } ",
        b'{"a":1}',
        b'{"a":1,"b":{"a":[1,2]},"c":"x"}',
        b'\n{\t"a" : 1 ,\r\n "b": [ ] , "\xc3\xa9":"{,}" }\n',
    ],
)
def test_an_object_that_says_each_field_once_is_read_once(raw: bytes, monkeypatch: pytest.MonkeyPatch):
    """Only one that is spelled in a strange way, or says a field twice, is looked through for the name."""
    monkeypatch.setattr(canon_json, "_first_repeated", pytest.fail)
    check_fields(raw)
    check_fields(raw, members=members_of(raw))
