import itertools
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.protocols.decoding.call_arguments import Arguments, FinalArguments, FreeText


def _fed(*pieces: str) -> tuple[str, FinalArguments]:
    arguments = Arguments()
    passed = "".join(arguments.feed(piece) for piece in pieces)
    return passed, arguments.finish()


@pytest.mark.parametrize(
    "pieces", [(), ("",), ("null",), ("nu", "ll"), ("{}",), ("{", "}"), (" { ", " } "), ("{}", "{}")]
)
def test_nothing_is_an_empty_object_once(pieces: tuple[str, ...]) -> None:
    """Whatever spelling of nothing comes, `{}` is passed on exactly once, at the end."""
    assert _fed(*pieces) == ("", FinalArguments(text="{}", rest="{}"))


@pytest.mark.parametrize(
    ("pieces", "passed", "final"),
    [
        (('{"a"', ":1}"), '{"a":1}', FinalArguments(text='{"a":1}', rest="")),
        (("{", '"a":1}'), '{"a":1}', FinalArguments(text='{"a":1}', rest="")),
        (("{}", '{"a":1}'), '{"a":1}', FinalArguments(text='{"a":1}', rest="")),
        (('{"a":1}', " \n"), '{"a":1}', FinalArguments(text='{"a":1}', rest="")),
        (('{"a":"}', '\\"{', '"}'), '{"a":"}\\"{"}', FinalArguments(text='{"a":"}\\"{"}', rest="")),
        (('{"a":"\\', '"}"}'), '{"a":"\\"}"}', FinalArguments(text='{"a":"\\"}"}', rest="")),
        (('{"a":[{}', "]}"), '{"a":[{}]}', FinalArguments(text='{"a":[{}]}', rest="")),
        (('{"a":"Pa',), '{"a":"Pa', FinalArguments(text='{"a":"Pa', rest="")),
        (("{",), "", FinalArguments(text="{", rest="{")),
        (("nul",), "", FinalArguments(text="nul", rest="nul")),
        (("city=Paris",), "city=Paris", FinalArguments(text="city=Paris", rest="")),
        (("[1]",), "[1]", FinalArguments(text="[1]", rest="")),
        (("{}x",), "{}", FinalArguments(text="{}x", rest="x")),
    ],
)
def test_arguments_are_passed_on_as_they_are(pieces: tuple[str, ...], passed: str, final: FinalArguments) -> None:
    """Complete, cut and broken texts alike: nothing is completed and nothing is lost."""
    assert _fed(*pieces) == (passed, final)


@pytest.mark.parametrize("pieces", [('{"a":1}', '{"a":1}'), ('{"a":1}{"a"', ':1} {"a":1}'.replace(" ", ""))])
def test_the_same_object_again_is_left_out(pieces: tuple[str, ...]) -> None:
    """A repetition is dropped, the raw text is kept beside."""
    passed, final = _fed(*pieces)
    raw = "".join(pieces)
    assert passed == '{"a":1}'
    assert final == FinalArguments(text=passed, rest="", raw=raw, repair="repeated_arguments")


def test_a_different_object_behind_it_is_kept() -> None:
    """Two objects are not JSON, and it is not for us to choose one."""
    assert _fed('{"a":1}{"b":2}') == ('{"a":1}', FinalArguments(text='{"a":1}{"b":2}', rest='{"b":2}'))


def test_an_object_in_a_string_is_taken_out() -> None:
    """Double-encoded arguments are decoded once; the raw text is kept beside."""
    raw = json.dumps('{"a":1}')
    expected = FinalArguments(text='{"a":1}', rest='{"a":1}', raw=raw, repair="quoted_arguments")
    assert _fed(raw[:4], raw[4:]) == ("", expected)


@pytest.mark.parametrize("raw", ['"just text"', '"cut', '"[1]"'])
def test_a_string_that_holds_no_object_stays(raw: str) -> None:
    """Only an object inside is a repair."""
    assert _fed(raw) == ("", FinalArguments(text=raw, rest=raw))


def test_completeness_is_known_as_it_happens() -> None:
    """`is_closed` turns true with the last brace, and an empty object may still become another."""
    arguments = Arguments()
    assert not arguments.is_closed
    arguments.feed("{}")
    assert not arguments.is_closed
    arguments.feed('{"a":{}')
    assert not arguments.is_closed
    arguments.feed("}")
    assert arguments.is_closed
    assert arguments.text == '{"a":{}}'


def test_free_text_passes_as_it_comes() -> None:
    """The input of a custom tool is not JSON and not touched."""
    arguments = FreeText()
    assert [arguments.feed(text) for text in ("", "{}", "é")] == ["", "{}", "é"]
    assert arguments.size == 4
    assert arguments.finish() == FinalArguments(text="{}é", rest="")


def test_blanks_behind_the_first_brace_stay_wherever_the_pieces_are_cut() -> None:
    """They are held with it, and let go with what comes behind them; an object that is only blanks is nothing."""
    for pieces in (('{ "a":1}',), ("{", ' "a":1}'), ("{ ", '"a":1}'), ("{", " ", '"a":1}'), ("{} {", " ", '"a":1}')):
        assert _fed(*pieces)[1].text == '{ "a":1}'
    assert _fed("{ ", " ", "}")[1].text == _fed("{  }")[1].text == "{}"


@given(st.text(st.sampled_from('{}[]",:\\ anul1é'), max_size=30), st.lists(st.integers(0, 30), max_size=6))
def test_cutting_changes_nothing(text: str, cuts: list[int]) -> None:
    """Passed text plus the rest is the final text, however the pieces are cut."""
    edges = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(edges)]
    passed, final = _fed(*pieces)
    whole_passed, whole = _fed(text)
    assert passed + final.rest == final.text == whole.text == whole_passed + whole.rest
    assert (final.raw, final.repair) == (whole.raw, whole.repair)


@pytest.mark.parametrize("unit", ["{}", " ", '"\\"', "[", "{", '{"a":1}', "x"])
def test_work_is_linear_in_the_text(unit: str) -> None:
    """Twice the pieces are at most about twice the executed lines."""

    def lines(count: int) -> int:
        executed = 0

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal executed
            executed += event == "line"
            return trace

        arguments = Arguments()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            for _ in range(count):
                arguments.feed(unit)
            arguments.finish()
        finally:
            sys.settrace(None)
        return executed

    assert lines(800) <= 2.1 * lines(400)
