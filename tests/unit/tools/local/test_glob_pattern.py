import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.tools.local.glob_pattern import (
    ALTERNATIVES_MAX,
    SEGMENTS_MAX,
    BadPattern,
    expand_braces,
    glob_pattern,
    name_regex,
    path_pattern,
)


def matches(pattern: str, path: str, *, hidden: bool = False) -> bool:
    """Match a whole path by a pattern as the model writes it."""
    return glob_pattern(pattern, hidden=hidden).matches(path.split("/"))


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/deep/a.py", True),
        ("src/**", "src/a", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/y/c", False),
        ("**", "anything/at/all", True),
        ("*.{js,ts}", "a.ts", True),
        ("*.{js,ts}", "a.css", False),
        ("{src,test}/**/*.{a,b}", "test/x/y.b", True),
        ("a{b,c{d,e}}f", "acef", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[a-c].x", "b.x", True),
        ("[!a-c].x", "b.x", False),
        ("[]x]", "]", True),
        ("[a-]", "-", True),
        ("[[:digit:]_]x", "7x", True),
        ("[--a]", "5", True),
        ("./a/./b", "a/b", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("a**b", "axxb", True),
        ("{a}", "{a}", True),
        ("a{b", "a{b", True),
        ("A.py", "a.py", False),
        ("*", "new\nline", True),
    ],
)
def test_patterns_match_as_people_expect(pattern: str, path: str, expected: bool) -> None:
    """Stars stay in a name, ** crosses names, braces are alternatives, case counts."""
    assert matches(pattern, path) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "hidden", "expected"),
    [
        ("*", ".env", False, False),
        ("*", ".env", True, True),
        (".*", ".env", False, True),
        ("**/x", ".git/x", False, False),
        ("**/x", ".git/x", True, True),
        (".git/x", ".git/x", False, True),
    ],
)
def test_hidden_names_must_be_asked_for(pattern: str, path: str, hidden: bool, expected: bool) -> None:
    """A leading dot is matched by a leading dot, or when hidden names are wanted."""
    assert matches(pattern, path, hidden=hidden) is expected


@pytest.mark.parametrize(
    "pattern", ["", "/", "/etc/*", "../x", "a/../b", "{..,a}/b", "a[", "[z-a]", "[[:nope:]]", "x\\", "a/" * 100]
)
def test_what_cannot_be_a_pattern_is_refused(pattern: str) -> None:
    """Each of them is an error in words and not an odd match."""
    with pytest.raises(BadPattern):
        glob_pattern(pattern)


def test_the_number_of_alternatives_is_bounded() -> None:
    """Braces that multiply are refused before they are written out."""
    with pytest.raises(BadPattern, match=f"more than {ALTERNATIVES_MAX}"):
        expand_braces("{a,b}" * 30)
    assert len(expand_braces("{a,b}" * 6)) == ALTERNATIVES_MAX


def test_the_number_of_segments_is_bounded() -> None:
    """A pattern of very many parts is refused."""
    with pytest.raises(BadPattern, match=f"more than {SEGMENTS_MAX} parts"):
        path_pattern(["**"] * (SEGMENTS_MAX + 1))


@pytest.mark.parametrize("pattern", ["*a" * 100 + "b", "**/" * 60 + "x", "{*a,*b}" * 6 + "c"])
def test_hostile_patterns_take_no_time(pattern: str) -> None:
    """Many stars against a long name of the same letter do not explode."""
    started = time.monotonic()
    compiled = glob_pattern(pattern)
    assert not compiled.matches(["a" * 255] * 40)
    assert time.monotonic() - started < 5


def naive_name(pattern: str, name: str) -> bool:
    """Match one name by trying everything."""
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(naive_name(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return bool(name) and pattern[0] in ("?", name[0]) and naive_name(pattern[1:], name[1:])


def naive_path(segments: list[str], names: list[str]) -> bool:
    """Match a path by trying everything."""
    if not segments:
        return not names
    if segments[0] == "**":
        return any(naive_path(segments[1:], names[at:]) for at in range(len(names) + 1))
    return bool(names) and naive_name(segments[0], names[0]) and naive_path(segments[1:], names[1:])


short_name = st.text("ab", min_size=1, max_size=6)
short_pattern = st.text("ab*?", min_size=1, max_size=6).filter(lambda text: text != "**")


@given(short_pattern, short_name)
def test_names_match_as_by_brute_force(pattern: str, name: str) -> None:
    """The translation without backtracking gives the same answer as trying everything."""
    assert bool(name_regex(pattern).fullmatch(name)) is naive_name(pattern, name)


@given(st.lists(st.one_of(short_pattern, st.just("**")), min_size=1, max_size=5), st.lists(short_name, max_size=5))
def test_paths_match_as_by_brute_force(segments: list[str], names: list[str]) -> None:
    """The positions that move on give the same answer as trying everything."""
    meant = [*segments, "*"] if segments[-1] == "**" else segments
    assert path_pattern(segments).matches(names) is naive_path(meant, names)


@given(st.lists(st.one_of(short_pattern, st.just("**")), min_size=1, max_size=4), st.lists(short_name, max_size=4))
def test_a_directory_without_positions_has_no_matches_below(segments: list[str], names: list[str]) -> None:
    """Not walking into a directory never loses a match."""
    pattern = path_pattern(segments)
    states = pattern.start
    for at, name in enumerate(names):
        states = pattern.step(states, name)
        if not states:
            assert not any(pattern.matches([*names[: at + 1], *more]) for more in (["a"], ["a", "b"], names))


@given(st.text(st.sampled_from("{},ab"), max_size=12))
def test_braces_expand_without_loss(text: str) -> None:
    """Whatever the braces, every alternative is made of the text's own letters and none is left to expand."""
    try:
        alternatives = expand_braces(text)
    except BadPattern:
        return
    assert alternatives
    for each in alternatives:
        assert not re.search(r"\{[^{}]*,[^{}]*\}", each)
        assert set(each) <= set(text)
