"""Renders a call that waits for approval as a card: the whole command, its parts, and the change it makes.

The whole command is shown before anything is asked: a first line can hide what follows it.
"""

import os
from collections.abc import Callable
from difflib import unified_diff
from typing import TYPE_CHECKING

import msgspec

from treadle.core.json import write_json
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import reveal
from treadle.tools.sandbox.protected_paths import SHOWN, find_protected

if TYPE_CHECKING:
    from treadle.terminal.permissions.permission_policy import PermissionPolicy, PermissionQuestion
    from treadle.terminal.permissions.remembered_permissions import Allowed, Scope

DIFF_LINES_MAX = 80
RULES_CHARS_MAX = 240
DIFFED_BYTES_MAX = 2_097_152
INDENT = "    "
Line = tuple[str, str]
"""A style and a text."""


class CardChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a person may give: its key, its word, and what it means for this call."""

    key: str
    word: str
    meaning: str


def choices_for(
    policy: "PermissionPolicy", question: "PermissionQuestion", *, is_cut: bool = False
) -> list[CardChoice]:
    """Return the answers that this call allows; "always" only where something may be remembered, and what exactly.

    `is_cut` is for a card that does not show the whole change.
    """
    found = [CardChoice(key="y", word="yes", meaning="once")]
    scopes: tuple[tuple[str, Scope, str], ...] = (("s", "session", "this session"), ("p", "project", "this project"))
    for key, scope, where in scopes:
        if rules := policy.rules_for(question, scope):
            found.append(CardChoice(key=key, word=scope, meaning=f"always in {where}: {_rules_text(rules)}"))
    if is_cut:
        found.append(CardChoice(key="d", word="diff", meaning="show the whole diff first"))
    found.append(CardChoice(key="e", word="edit", meaning="change it first"))
    found.append(CardChoice(key="n", word="no", meaning="not this"))
    found.append(CardChoice(key="N", word="why", meaning="no, and say why"))
    return found


def _rules_text(rules: "list[Allowed]") -> str:
    """Name what would be remembered; text too long to repeat is shown above, marked as new."""
    what = reveal(", ".join(rule.words for rule in rules)).replace("\n", "⏎")
    if len(what) <= RULES_CHARS_MAX:
        return what
    return "exactly this command"


def card_lines(
    policy: "PermissionPolicy",
    question: "PermissionQuestion",
    read: Callable[[str], str | None],
    *,
    is_whole: bool = False,
) -> list[Line]:
    """Return the card; `read` gives the text of a file of the workspace, where that can be read from here.

    A change is shown up to a number of lines, or as a whole.
    """
    title = f"{question.tool} wants to run{_conditions(policy, question)}"
    lines: list[Line] = [("ask", title), *_protection(question)]
    if question.is_shell:
        lines += [("plain", f"{INDENT}{reveal(line)}") for line in question.command.split("\n")]
        lines += _commands(question)
    elif question.is_edit:
        lines += _scripts(question, read)
        lines += _change(question, read, None if is_whole else DIFF_LINES_MAX)
    else:
        shown = write_json(question.arguments) if question.arguments else question.raw.encode("utf-8", "replace")
        pretty = msgspec.json.format(shown, indent=2) if question.arguments else shown
        lines += [("plain", f"{INDENT}{line}") for line in pretty.decode().split("\n")]
    return [*lines, *(("dim", f"  why: {reason}") for reason in question.reasons)]


def _protection(question: "PermissionQuestion") -> list[Line]:
    """Name what is protected, and what runs although it is not."""
    lines: list[Line] = []
    for path in question.protected:
        row = find_protected(path)
        lines.append(("ask", f"{INDENT}protected path {reveal(path)}{'' if row is None else f': {row.why}'}"))
    if question.is_git_write:
        lines.append(("ask", f"{INDENT}git write: the repository may be changed, not its settings; no hooks run"))
    if question.is_edit:
        path = str(question.arguments.get("path", ""))
        if (why := SHOWN.get(os.path.basename(path).casefold())) is not None:
            lines.append(("ask", f"{INDENT}{reveal(path)}: {why}"))
    return lines


def _scripts(question: "PermissionQuestion", read: Callable[[str], str | None]) -> list[Line]:
    """Show which scripts of a package.json change, wherever in the diff they stand."""
    path = str(question.arguments.get("path", ""))
    if os.path.basename(path).casefold() != "package.json":
        return []
    old_text = read(path)
    old, new = _scripts_of(old_text), _scripts_of(_written(question, old_text))
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    lines: list[Line] = []
    for name in names:
        for style, sign, scripts in (("removed", "-", old), ("added", "+", new)):
            if name in scripts:
                lines.append((style, f"{INDENT}{sign} script {reveal(name)}: {reveal(scripts[name])}"))
    return lines


def _scripts_of(text: str | None) -> dict[str, str]:
    try:
        return msgspec.json.decode(text or "{}", type=_Package).scripts
    except msgspec.MsgspecError:
        return {}


class _Package(msgspec.Struct, frozen=True):
    scripts: dict[str, str] = {}


def _conditions(policy: "PermissionPolicy", question: "PermissionQuestion") -> str:
    if not question.is_shell:
        return ""
    level = "unknown" if policy.sandbox is None else f"L{policy.sandbox}"
    network = "on" if question.arguments.get("network") else "off"
    rights = "read-only, " if question.arguments.get("read_only") is True else ""
    timeout = question.arguments.get("timeout_s", 120)
    where = "" if question.cwd == "." else f", in {question.cwd}"
    return f" (sandbox {level}, {rights}network {network}, timeout {timeout} s{where})"


def _commands(question: "PermissionQuestion") -> list[Line]:
    """Name the commands of a line, where they are all that it does; the line itself stands above in any case."""
    parsed = question.parsed
    if parsed is None:
        return []
    texts = [reveal(each.text).replace("\n", "⏎") for each in parsed.commands]
    width = min(max(map(len, texts), default=0), 50)
    lines: list[Line] = []
    if len(texts) > 1 and parsed.is_explained:
        for number, (text, each) in enumerate(zip(texts, parsed.commands, strict=True), 1):
            style, status = ("dim", "usually only reads") if each.reads else ("plain", "NEW")
            lines.append((style, f"  {number} {text:<{width}}  {status}"))
    return [*lines, *(("dim", f"  can not be remembered: {hazard}") for hazard in parsed.hazards)]


def _change(question: "PermissionQuestion", read: Callable[[str], str | None], lines_max: int | None) -> list[Line]:
    path = str(question.arguments.get("path", ""))
    old = read(path)
    new = _written(question, old)
    if new is None:
        edits = [("removed", "-", "old"), ("added", "+", "new")]
        return [
            (style, f"{INDENT}{sign}{line}")
            for style, sign, name in edits
            for line in str(question.arguments.get(name, "")).split("\n")
        ]
    return diff_of(path, old or "", new, is_new=old is None, lines_max=lines_max)


def _written(question: "PermissionQuestion", old: str | None) -> str | None:
    """Return the new content of a file; None when that cannot be computed here."""
    arguments = question.arguments
    if question.tool == "file_write":
        return str(arguments.get("content", ""))
    before = str(arguments.get("old", ""))
    if old is None or not before or before not in old:
        return None
    return old.replace(before, str(arguments.get("new", "")), -1 if arguments.get("replace_all") else 1)


def diff_of(
    path: str, old: str, new: str, *, is_new: bool = False, lines_max: int | None = DIFF_LINES_MAX
) -> list[Line]:
    """Return a change as a diff of at most so many lines, and its counts."""
    if len(old) + len(new) > DIFFED_BYTES_MAX:
        return [("dim", f"{INDENT}{path}: {len(old)} → {len(new)} characters, too large to compare here")]
    names = ("(new file)" if is_new else f"a/{path}", f"b/{path}")
    lines = list(unified_diff(old.splitlines(), new.splitlines(), *names, lineterm=""))
    if not lines:
        return [("dim", f"{INDENT}{path}: nothing changes")]
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    shown = styled_diff(lines[:lines_max])
    left = len(lines) - len(shown)
    more = f", {plural(left, 'line')} of it not shown" if left > 0 else ""
    return [*shown, ("dim", f"{INDENT}+{added} -{removed}{more}")]


def styled_diff(lines: list[str]) -> list[Line]:
    """Return the lines of a diff with their styles."""
    return [(_diff_style(number, line), f"{INDENT}{line}") for number, line in enumerate(lines)]


def _diff_style(number: int, line: str) -> str:
    if number < 2 and line.startswith(("---", "+++")):
        return "dim"
    return {"+": "added", "-": "removed", "@": "dim"}.get(line[:1], "plain")


def file_reader(root: str) -> Callable[[str], str | None]:
    """Return what reads a file below a root, for showing only: nothing outside, no link, nothing large."""
    top = os.path.realpath(root)

    def read(path: str) -> str | None:
        whole = os.path.realpath(os.path.join(top, path))
        if not whole.startswith(top.rstrip("/") + "/") or not os.path.isfile(whole):
            return None
        try:
            with open(whole, encoding="utf-8", errors="replace", newline="") as file:
                return file.read(DIFFED_BYTES_MAX + 1)
        except OSError:
            return None

    return read
