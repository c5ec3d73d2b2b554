"""What `.gitignore` files leave out: rules of one file, and the decision over the files above an entry. Pure.

A walk asks for every entry it sees, so an entry's own name is looked at first: few rules can speak of it.
"""

import re
from collections.abc import Sequence

import msgspec

from treadle.tools.local.glob_pattern import DEEP, BadPattern, Pattern, name_regex, path_pattern

RULES_MAX = 2_000
_ANY = name_regex("*").pattern
_NOTHING = "(?!)"


class IgnoreRule(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what an entry's own name must look like, and its path below the file unless the name is enough."""

    name: re.Pattern[str]
    path: Pattern | None
    is_negated: bool
    is_folder_only: bool


class IgnoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one file, and how many names deep below the root its directory is.

    `wide` are those that speak of any name (`build/**`); `names` matches whatever the others can speak of.
    """

    depth: int
    rules: tuple[IgnoreRule, ...]
    wide: tuple[IgnoreRule, ...]
    names: re.Pattern[str]


_SPECIAL = re.compile(r"[*?\[\\]")


def read_ignore(text: str, depth: int) -> IgnoreFile:
    """Read a `.gitignore`; a line that cannot be a pattern matches nothing, as in git."""
    rules: list[IgnoreRule] = []
    for line in text.removeprefix("\ufeff").split("\n"):
        rules += _rules_of(line)
        if len(rules) >= RULES_MAX:
            break
    narrow = dict.fromkeys(f"(?:{rule.name.pattern})" for rule in rules if rule.name.pattern != _ANY)
    return IgnoreFile(
        depth=depth,
        rules=tuple(rules),
        wide=tuple(rule for rule in rules if rule.name.pattern == _ANY),
        names=re.compile("|".join(narrow) or _NOTHING, re.DOTALL),
    )


def is_ignored(files: Sequence[IgnoreFile], names: Sequence[str], *, is_folder: bool) -> bool:
    """Tell whether an entry is left out: the deepest file that speaks of it decides, and in it the last rule.

    Directories above the entry must have been asked before; what is in an ignored one stays out, as in git.
    """
    for file in reversed(files):
        rules = file.rules if file.names.fullmatch(names[-1]) else file.wide
        for rule in reversed(rules):
            if _speaks(rule, names[file.depth :], is_folder):
                return not rule.is_negated
    return False


def _speaks(rule: IgnoreRule, names: Sequence[str], is_folder: bool) -> bool:
    if (rule.is_folder_only and not is_folder) or not rule.name.fullmatch(names[-1]):
        return False
    return rule.path is None or rule.path.matches(names)


def _rules_of(line: str) -> list[IgnoreRule]:
    text = _trimmed(line)
    is_negated = text.startswith("!")
    if is_negated:
        text = text[1:]
    elif not text or text.startswith("#"):
        return []
    is_folder_only = text.endswith("/")
    body = text.rstrip("/") if is_folder_only else text
    # git's wildmatch takes any run of two stars or more that is a whole segment for `**`.
    names = [DEEP if len(name) > len(DEEP) and not name.strip("*") else name for name in body.split("/") if name]
    rules: list[IgnoreRule] = []
    for segments in _readings(names) if "/" in body else [names] if names else []:
        try:
            name = name_regex(segments[-1])
            path = path_pattern(segments) if "/" in body else None
        except BadPattern:
            return []
        rules.append(IgnoreRule(name=name, path=path, is_negated=is_negated, is_folder_only=is_folder_only))
    return rules


def _readings(names: list[str]) -> list[list[str]]:
    """Return what git reads a path as.

    It cuts off what stands before the first wildcard, so `a**` that is the first with one also crosses folders:
    `a**/b` is `ab` and `a*/**/b`.
    """
    at = next((number for number, name in enumerate(names) if _SPECIAL.search(name)), len(names))
    if at == len(names) or not names:
        return [names] if names else []
    head = names[at].rstrip("*")
    if not head or _SPECIAL.search(head) or len(names[at]) - len(head) < len(DEEP):
        return [names]
    before, rest = names[:at], names[at + 1 :]
    deep = [*before, f"{head}*", DEEP, *rest]
    return [deep, [*before, head + rest[0], *rest[1:]] if rest else deep[:-1]]


def _trimmed(line: str) -> str:
    """Drop trailing spaces, but not one that a backslash protects."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not _is_escaped(text):
        text = text[:-1]
    return text


def _is_escaped(text: str) -> bool:
    before = text[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
