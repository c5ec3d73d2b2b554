"""What is read out of a sentence."""

import pytest

from treadle.providers.demo_model.prompt_parsing import PROMPT_CHARS_MAX, read_prompt, words_of


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("What is the weather in Paris?", ("Paris",)),
        ("weather in Paris and Rome", ("Paris", "Rome")),
        ("weather in Paris, New York and São Paulo today", ("Paris", "New York", "São Paulo")),
        ("weather in new york right now", ("New York",)),
        ("weather for paris, oslo & rome please", ("Paris", "Oslo", "Rome")),
        ("trains from Paris to Rome", ("Paris", "Rome")),
        ("the weather of L'Aquila", ("L'Aquila",)),
        ("in Paris and tell me a joke", ("Paris",)),
        ("in Paris, in Paris", ("Paris",)),
        ("hello there", ()),
        ("what is in it for me", ()),
        ("in", ()),
        ("weather in 東京", ("東京",)),
    ],
)
def test_places_follow_their_prepositions(text, places):
    """Names with capitals, lists of them, and names typed in haste."""
    assert read_prompt(text).places == places


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ("add 2 and -3.5", "numbers", ("2", "-3.5")),
        ("on 2026-01-02 add 7", "numbers", ("7",)),
        ("on 2026-01-02 add 7", "dates", ("2026-01-02",)),
        ("v2 of A4", "numbers", ()),
        ("say \"hello there\" and 'good bye'", "quoted", ("hello there", "good bye")),
        ("it's Ada's", "quoted", ()),
        ("read `a b` and “c”", "quoted", ("a b", "c")),
        ("see https://example.org/a?b=1.", "urls", ("https://example.org/a?b=1",)),
        ("see https://example.org/a?b=1.", "paths", ()),
        ("write to ada@example.org!", "emails", ("ada@example.org",)),
        ("read README.md and src/a.py", "paths", ("README.md", "src/a.py")),
        ("read src/.", "paths", ("src/",)),
        ("it is 18.5 degrees. Thanks", "paths", ()),
        ("list src/*.py, please", "patterns", ("src/*.py",)),
        ("list all python files", "patterns", ("**/*.py",)),
        ("python is nice", "patterns", ()),
        ("what is 12 * (3 + 4)?", "sums", ("12 * (3 + 4)",)),
        ("what is 12*7", "patterns", ()),
        ("call 12 people", "sums", ()),
    ],
)
def test_values_are_found_by_their_form(text, field, found):
    """Numbers, dates, quotes, addresses, paths, patterns and sums, each only where it is one."""
    assert getattr(read_prompt(text), field) == found


def test_words_are_those_that_mean_something():
    """Singular, lower case, names split at their seams, small words dropped."""
    assert words_of("Get the getWeather of file_names, glass") == frozenset({"weather", "file", "name", "glass"})


@pytest.mark.parametrize(
    "text", ["a" * 1_000_000, "1+" * 500_000, "in A, " * 200_000, "/" * 1_000_000, "'" * 1_000_000]
)
def test_a_monstrous_prompt_is_read_only_in_part(text):
    """Only the start is looked at, so that no text takes long."""
    assert len(read_prompt(text).text) <= PROMPT_CHARS_MAX
