"""Code in colours: every character stays, and what a line ends in goes on in the next."""

import re

import pytest

from treadle.terminal.rendering import code_highlighting as code
from treadle.terminal.rendering.code_highlighting import HighlightedCode, language_of
from treadle.terminal.rendering.styles import THEMES, TextStyle

LOOK = TextStyle(rich=True, colour=True)
SAMPLES = {
    "python": 'def f(x):\n\t"""Two\n\tlines."""\n\treturn f"{x!r}" + 1  # why\n',
    "js": "/** a\n * b\n */\nconst x = `t ${y}\nmore`; // end\n",
    "json": '{"a": [1, true, null],\n "b": "日本語"}\n',
    "bash": "if x=$(ls | grep 'a b'); then\n  echo \"$x\"\nfi\n",
    "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n same\n",
    "html": "<!-- a\n b -->\n<p class='x'>text</p>\n",
    "c": '/* a\n "b */\nint main(void) { return 0; }\n',
    "sql": "SELECT a, 'b' FROM t -- why\nWHERE x = 1;\n",
}


def painted(language: str, text: str, look: TextStyle = LOOK) -> list[str]:
    """Return the lines of a code with their colours."""
    block = HighlightedCode(language, look)
    return [block.line(line) for line in text.split("\n")]


def plain(lines: list[str]) -> str:
    """Take the colours away."""
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


@pytest.mark.parametrize("language", SAMPLES)
def test_nothing_but_colours_is_added(language: str) -> None:
    """The text can be copied as the model wrote it, and something of it is painted."""
    lines = painted(language, SAMPLES[language])
    assert plain(lines) == SAMPLES[language]
    assert "\x1b[" in "".join(lines)


def test_a_string_and_a_comment_go_on_in_the_next_line() -> None:
    """Each line is read once; where the one before ended is known."""
    quote = painted("python", SAMPLES["python"])
    assert quote[2] == '\x1b[32m\tlines."""\x1b[0m'
    comment = painted("c", SAMPLES["c"])
    assert comment[:2] == ["\x1b[2m/* a\x1b[0m", '\x1b[2m "b */\x1b[0m']
    assert comment[2].startswith("\x1b[35mint\x1b[0m ")


def test_what_is_not_known_has_one_colour() -> None:
    """A fence without a language, or one of a language that is not in the table."""
    assert painted("", "x = 1") == painted("klingon", "x = 1") == ["\x1b[36mx = 1\x1b[0m"]
    assert not HighlightedCode("klingon", LOOK).is_known


def test_a_very_long_line_is_not_read() -> None:
    """What a model writes must not be able to keep the screen busy."""
    line = "x = '" + "a" * code.LINE_CHARS_MAX
    assert painted("python", line) == [line]


@pytest.mark.parametrize("theme", THEMES)
def test_every_theme_paints_code(theme: str) -> None:
    """And `none`, like a terminal without colours, paints nothing."""
    lines = painted("python", SAMPLES["python"], TextStyle(rich=True, colour=True, theme=theme))
    assert ("\x1b[" in "".join(lines)) is (theme != "none")
    assert painted("python", "x = 1", TextStyle(rich=True)) == ["x = 1"]


@pytest.mark.parametrize(
    ("fence", "language"),
    [
        ("```python", "python"),
        ("~~~ JS title", "js"),
        ("```", ""),
        ("```{.rust}", "rust"),
        ("```ts:file.ts", "ts"),
        ("```c++", "c++"),
    ],
)
def test_a_fence_names_its_language(fence: str, language: str) -> None:
    """In all the ways that models write it."""
    assert language_of(fence) == language
