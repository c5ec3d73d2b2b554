"""Extracts places, numbers, paths, quotes and words from a prompt with regular expressions.

Pure and linear; only the first characters of a long text are read.
"""

import re
from collections.abc import Iterable

import msgspec

PROMPT_CHARS_MAX = 2_000

_TOKEN = re.compile(r"[^\W_][\w'’-]*|[^\w\s]")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_URL = re.compile(r"https?://[^\s\"'<>]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_PATH = re.compile(r"(?:[\w.~-]*/)+[\w.-]*\w|(?:[\w.~-]*/)+|\b[\w-]+\.[A-Za-z]\w{0,9}\b")
_SUM = re.compile(r"[-(]*\d[\d\s.()]*(?:[-+*/%^][\s(-]*\d[\d\s.()]*)+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SPLIT = re.compile(r"[^\w]+|_")


def _vocabulary(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BEFORE_PLACE = frozenset({"in", "for", "of", "at", "near", "from", "to", "around"})
_JOINS = frozenset({",", "and", "&", "or"})
_AFTER_PLACE = _vocabulary(
    "a about again an be by can could do i is it like look me my now on please right should show "
    "tell that the there this to today tomorrow tonight using what will with would you"
)
_STOP_WORDS = _vocabulary(
    "a about an and any are at be by can could current currently do does for from get give given has have hello hey "
    "hi how i if in is it its me my of on one or please return returns run show some tell that the their then "
    "there these they this to tool use using want was we what when where which who will with would you your"
)
_SYNONYMS = {
    "plus": "add",
    "sum": "add",
    "forecast": "weather",
    "temperature": "weather",
    "rain": "weather",
    "raining": "weather",
    "hot": "weather",
    "cold": "weather",
    "warm": "weather",
    "sunny": "weather",
    "file": "glob",
    "folder": "glob",
    "directory": "glob",
    "open": "read",
    "cat": "read",
}
"""Words that people use for the names of the demo tools."""
_KINDS_OF_FILE = {"python": "**/*.py", "markdown": "**/*.md", "toml": "**/*.toml", "json": "**/*.json"}


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed prompt."""

    text: str
    words: frozenset[str]
    places: tuple[str, ...]
    numbers: tuple[str, ...]
    quoted: tuple[str, ...]
    paths: tuple[str, ...]
    patterns: tuple[str, ...]
    urls: tuple[str, ...]
    emails: tuple[str, ...]
    dates: tuple[str, ...]
    sums: tuple[str, ...]


def read_prompt(text: str) -> Prompt:
    """Parse a prompt."""
    text = text[:PROMPT_CHARS_MAX].strip()
    urls = tuple(url.rstrip(".,;:!?)") for url in _URL.findall(text))
    bare = _EMAIL.sub(" ", _URL.sub(" ", text))
    dates = tuple(_DATE.findall(bare))
    undated = _DATE.sub(" ", bare)
    patterns = _patterns(bare)
    sums = tuple(found.strip() for found in _SUM.findall(undated))
    return Prompt(
        text=text,
        words=_asked(words_of(text), sums),
        places=tuple(_places(_TOKEN.findall(bare))),
        numbers=tuple(_NUMBER.findall(undated)),
        quoted=tuple("".join(groups) for groups in _QUOTED.findall(text)),
        paths=tuple(path for path in _PATH.findall(bare) if path not in patterns),
        patterns=patterns,
        urls=urls,
        emails=tuple(_EMAIL.findall(text)),
        dates=dates,
        sums=sums,
    )


def words_of(text: str) -> frozenset[str]:
    """Return the meaningful words in lower case and singular; identifiers are split into their words."""
    words = _SPLIT.split(_CAMEL.sub(" ", text[:PROMPT_CHARS_MAX]))
    return frozenset(_singular(word.lower()) for word in words) - _STOP_WORDS - {""}


def _asked(words: frozenset[str], sums: tuple[str, ...]) -> frozenset[str]:
    plus = {"add"} if any("+" in one for one in sums) else set[str]()
    return (
        words
        | plus
        | ({"calculate"} if sums else set[str]())
        | {_SYNONYMS[word] for word in words if word in _SYNONYMS}
    )


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _patterns(text: str) -> tuple[str, ...]:
    """Find file patterns such as `src/*.py`, else the pattern of a mentioned file type."""
    tokens = [token.strip("\"'`“”‘’,;:!?()") for token in text.split()]
    found = [token for token in tokens if "*" in token and any(char.isalpha() or char in "./" for char in token)]
    found = found or [token for token in tokens if token in ("*", "**")]
    lowered = text.lower()
    if not found and "file" in lowered:
        found = [pattern for kind, pattern in _KINDS_OF_FILE.items() if kind in lowered]
    return tuple(found)


def _places(tokens: list[str]) -> Iterable[str]:
    seen: set[str] = set()
    for position, token in enumerate(tokens):
        if token.lower() in _BEFORE_PLACE:
            for name in _names(tokens[position + 1 : position + 40]):
                if name not in seen:
                    seen.add(name)
                    yield name


def _names(tokens: list[str]) -> list[str]:
    """Read names such as `Paris, New York and Rome` up to the first word that cannot be part of one.

    If the first name is capitalised, all are; otherwise a name is at most three words in lower case.
    """
    names: list[list[str]] = [[]]
    is_upper = bool(tokens) and tokens[0][0].isupper()
    for token in tokens:
        if token.lower() in _JOINS:
            names.append([])
        elif token.lower() in _AFTER_PLACE or not token[0].isalpha() or (is_upper and not token[0].isupper()):
            break
        else:
            names[-1].append(token)
    complete = [" ".join(words) for words in names if 1 <= len(words) <= (6 if is_upper else 3)]
    return complete if is_upper else [name.title() for name in complete]
