"""Highlights streaming code: each line is coloured once, when it is complete.

What a line ends in (a string, a comment) is carried to the next, so that nothing is read twice. Pygments reads the
code; only languages of the table are painted, and only lines of a bounded length: the text comes from a model, and a
pattern can be slow.
"""

import re
from typing import Any

from treadle.terminal.rendering.styles import TextStyle

LINE_CHARS_MAX = 400
_NAMES: dict[str, str] = {
    "bash": "bash sh shell zsh",
    "c": "c h",
    "cpp": "cpp c++ cc hpp",
    "csharp": "csharp cs c#",
    "css": "css scss",
    "diff": "diff patch",
    "docker": "docker dockerfile",
    "go": "go golang",
    "html": "html svg vue",
    "ini": "ini cfg conf",
    "java": "java",
    "javascript": "javascript js mjs jsx json jsonc json5 jsonl",
    "kotlin": "kotlin kt",
    "lua": "lua",
    "php": "php",
    "python": "python py python3",
    "rust": "rust rs",
    "sql": "sql",
    "swift": "swift",
    "toml": "toml",
    "typescript": "typescript ts tsx",
    "xml": "xml",
    "zig": "zig",
}
_LANGUAGES = {name: lexer for lexer, names in _NAMES.items() for name in names.split()}
"""Lexers by the language name of a code fence. All of them know their state at the end of a line."""

_COMMENTED = frozenset(
    "c cpp csharp css go java javascript kotlin php rust sql swift typescript zig".split()  # noqa: SIM905
)
"""Languages with comments that continue for several lines; their lexers want to see such a comment whole."""

_STYLES: dict[str, str] = {
    "Keyword.Constant": "number",
    "Keyword": "keyword",
    "Name.Builtin": "name",
    "Name.Class": "name",
    "Name.Decorator": "name",
    "Name.Function": "name",
    "Name.Tag": "keyword",
    "Name.Attribute": "name",
    "Literal.String": "string",
    "Literal.Number": "number",
    "Comment": "comment",
    "Operator.Word": "keyword",
    "Generic.Inserted": "added",
    "Generic.Deleted": "removed",
    "Generic.Heading": "comment",
    "Generic.Subheading": "comment",
}
"""Token types, narrow before wide, and the text style of each."""


class HighlightedCode:
    """One block of code, highlighted line by line."""

    def __init__(self, language: str, text_style: TextStyle) -> None:
        self._look = text_style
        self._lexer = _lexer_of(language) if text_style.colour else None
        self._stack = ["root"]
        self._has_blocks = _LANGUAGES.get(language) in _COMMENTED
        self._is_comment = False

    @property
    def is_known(self) -> bool:
        """Return whether the language is one that is painted."""
        return self._lexer is not None

    def plain(self, line: str) -> str:
        """Return a line that is not finished yet, or can not be read."""
        return line if self.is_known else self._look.style("code", line)

    def line(self, line: str) -> str:
        """Return the next line with its colours. The text itself stays as it is."""
        if self._lexer is None or len(line) > LINE_CHARS_MAX or not line.strip():
            return self.plain(line)
        if self._is_comment or (self._has_blocks and line.lstrip().startswith("/*")):
            self._is_comment = "*/" not in line
            return self._look.style("comment", line)
        return "".join(self._look.style(style, text) for style, text in self._runs(line))

    def _runs(self, line: str) -> list[tuple[str, str]]:
        """Return the line as pieces of one style each."""
        from pygments.lexer import ExtendedRegexLexer, LexerContext

        context = LexerContext(f"{line}\n", 0, stack=list(self._stack))
        runs: list[tuple[str, str]] = []
        read: Any = ExtendedRegexLexer.get_tokens_unprocessed
        for _, kind, text in read(self._lexer, context=context):
            style = _style_of(kind)
            if runs and runs[-1][0] == style:
                runs[-1] = (style, runs[-1][1] + text)
            elif text:
                runs.append((style, text))
        self._stack = list(context.stack)
        whole = "".join(text for _, text in runs)
        return _without_newline(runs) if whole == f"{line}\n" else [("plain", line)]


def language_of(fence: str) -> str:
    """Return the language that a fence names; nothing where it names none."""
    found = re.search(r"[\w+#-]+", fence.strip().lstrip("`~"))
    return found[0].lower() if found else ""


def _lexer_of(language: str) -> Any:
    name = _LANGUAGES.get(language)
    if name is None:
        return None
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]

    return get_lexer_by_name(name)


def _style_of(kind: object) -> str:
    name = str(kind).removeprefix("Token.")
    return next((style for prefix, style in _STYLES.items() if name.startswith(prefix)), "plain")


def _without_newline(runs: list[tuple[str, str]]) -> list[tuple[str, str]]:
    style, text = runs[-1]
    return [*runs[:-1], (style, text.removesuffix("\n"))]
