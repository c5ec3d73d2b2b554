"""Evaluates `.gitignore` files: the rules of one file, and the decision for an entry. Does no I/O.

A walk evaluates every entry, so the entry's own name is matched first: for most names few rules apply.
"""

import re
from collections.abc import Sequence

import msgspec

from treadle.tools.local.glob_pattern import DEEP, BadPattern, Pattern, name_regex, path_pattern

RULES_MAX = 2_000
_ANY = name_regex("*").pattern
_NOTHING = "(?!)"


class IgnoreRule(msgspec.Struct, frozen=True, kw_only=True):
    """One line: the pattern of an entry's name, and of its path below the file unless the name is enough."""

    name: re.Pattern[str]
    path: Pattern | None
    is_negated: bool
    is_folder_only: bool


class IgnoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one file, and the depth of its directory below the root.

    `wide` are the rules that can match any name (`build/**`); `names` matches all names the other rules can match.
    """

    depth: int
    rules: tuple[IgnoreRule, ...]
    wide: tuple[IgnoreRule, ...]
    names: re.Pattern[str]


_SPECIAL = re.compile(r"[*?\[\\]")


def read_ignore(text: str, depth: int) -> IgnoreFile:
    """Parse a `.gitignore`; an invalid line matches nothing, as in git."""
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
    """Return whether an entry is ignored: the last matching rule of the deepest file with a match decides.

    The caller must have checked the directories above: entries of an ignored one stay ignored, as in git.
    """
    for file in reversed(files):
        rules = file.rules if file.names.fullmatch(names[-1]) else file.wide
        for rule in reversed(rules):
            if _matches(rule, names[file.depth :], is_folder):
                return not rule.is_negated
    return False


def _matches(rule: IgnoreRule, names: Sequence[str], is_folder: bool) -> bool:
    if (rule.is_folder_only and not is_folder) or not rule.name.fullmatch(names[-1]):
        return False
    return rule.path is None or rule.path.matches(names)


def _rules_of(line: str) -> list[IgnoreRule]:
    text = _trim_spaces(line)
    is_negated = text.startswith("!")
    if is_negated:
        text = text[1:]
    elif not text or text.startswith("#"):
        return []
    is_folder_only = text.endswith("/")
    body = text.rstrip("/") if is_folder_only else text
    # git's wildmatch treats a segment of two or more stars as `**`.
    names = [DEEP if len(name) > len(DEEP) and not name.strip("*") else name for name in body.split("/") if name]
    rules: list[IgnoreRule] = []
    for segments in _git_interpretations(names) if "/" in body else [names] if names else []:
        try:
            name = name_regex(segments[-1])
            path = path_pattern(segments) if "/" in body else None
        except BadPattern:
            return []
        rules.append(IgnoreRule(name=name, path=path, is_negated=is_negated, is_folder_only=is_folder_only))
    return rules


def _git_interpretations(names: list[str]) -> list[list[str]]:
    """Return the patterns equivalent to git's interpretation of a path.

    git removes the literal prefix before the first wildcard, so an `a**` with the first wildcard also crosses folders:
    `a**/b` is equivalent to `ab` and `a*/**/b`.
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


def _trim_spaces(line: str) -> str:
    """Remove trailing spaces, except one escaped by a backslash."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not _is_escaped(text):
        text = text[:-1]
    return text


def _is_escaped(text: str) -> bool:
    before = text[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1
