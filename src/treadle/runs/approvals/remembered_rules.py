"""The digest that an approval is bound to, and the matching of calls against remembered rules. Pure."""

import hashlib
import re
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.json import BadJson, canonical_json, read_json
from treadle.engine.approval_reasons import BY_NAME
from treadle.journal.approvals_interface import ApprovalQuestion, ApprovalRule, RuleRow

_SHELL = re.compile(r"[;&|<>`$(){}\n\r\\!#*?~\[\]]")
"""Characters that let one command line contain another: a pattern never matches them."""

_CONTROL_CHARS = re.compile(r"[\x00-\x1f\x7f]")
PATTERN_CHARS_MAX = 1_000
PATTERNS_MAX = 20


def canonical_arguments(arguments: str) -> str:
    """Return arguments as canonical JSON, the form that digests are computed from; other text is unchanged."""
    try:
        return canonical_json(read_json(arguments)).decode() if arguments.strip() else "{}"
    except (BadJson, UnicodeError):
        return arguments.encode("utf-8", "replace").decode()


def digest_of(tool: str, source: str, arguments: str, run_id: str = "") -> str:
    """Return the sha256 of a call: of one call in a run, or without a run of every equal call."""
    fields = {"tool": tool, "source": source, "arguments": arguments, "run": run_id}
    return hashlib.sha256(canonical_json(fields)).hexdigest()


def agrees(row: RuleRow, question: ApprovalQuestion) -> bool:
    """Return whether a rule approves a request.

    After untrusted output only a rule for this exact call does, or one that was given for tainted calls. Arguments that
    only a person may allow need a rule for this exact call, or a pattern that equals its path.
    """
    rule = row.rule
    if (rule.tool, rule.source) != (question.tool, question.source):
        return False
    if rule.sandbox > question.sandbox:
        return False
    if row.session_id is None and rule.project != question.project:
        return False
    if row.session_id is not None and row.session_id != question.session_id:
        return False
    if rule.kind == "call":
        return rule.digest == digest_of(question.tool, question.source, question.arguments)
    if any(reason.startswith(BY_NAME) for reason in question.reasons) and not _names_path(rule.patterns, question):
        return False
    if question.is_tainted and not rule.covers_taint:
        return False
    return rule.kind == "tool" or _fits(rule.patterns, question)


def make_rule(kind: str, question: ApprovalQuestion, patterns: dict[str, str], *, is_everywhere: bool) -> ApprovalRule:
    """Make the rule that is stored with a decision.

    Raises: ProtocolError, naming the field.
    """
    rule = ApprovalRule(
        kind="tool",
        tool=question.tool,
        source=question.source,
        project=question.project if is_everywhere else "",
        covers_taint=question.is_tainted,
        sandbox=question.sandbox,
    )
    if kind == "call":
        digest = digest_of(question.tool, question.source, question.arguments)
        return msgspec.structs.replace(rule, kind="call", digest=digest)
    if question.is_exec and is_everywhere:
        raise ProtocolError(
            f"{question.tool} runs programs: everywhere only the very same call can be remembered.",
            param="remember.scope",
            hint='scope "session", or kind "call"',
        )
    if kind == "tool":
        return rule
    _check_patterns(patterns, question)
    return msgspec.structs.replace(rule, kind="pattern", patterns=patterns)


def _check_patterns(patterns: dict[str, str], question: ApprovalQuestion) -> None:
    if not patterns:
        raise ProtocolError("A rule by pattern names at least one argument.", param="remember.patterns")
    if len(patterns) > PATTERNS_MAX or any(len(glob) > PATTERN_CHARS_MAX for glob in patterns.values()):
        message = f"At most {PATTERNS_MAX} patterns of {PATTERN_CHARS_MAX} characters are kept."
        raise ProtocolError(message, param="remember.patterns")
    if not _fits(patterns, question):
        raise ProtocolError("The patterns do not fit the call that they are remembered for.", param="remember.patterns")


def _fits(patterns: dict[str, str], question: ApprovalQuestion) -> bool:
    """Return whether every named argument is a string that matches its pattern; other arguments are not restricted."""
    try:
        values: Any = read_json(question.arguments)
    except BadJson:
        return False
    if not isinstance(values, dict) or not patterns:
        return False
    fields = cast("dict[str, Any]", values)
    return all(_is_fit(fields.get(name), glob, is_exec=question.is_exec) for name, glob in patterns.items())


def _names_path(patterns: dict[str, str], question: ApprovalQuestion) -> bool:
    """Return whether the patterns name exactly the path of a call that needs no other person-only argument."""
    try:
        values: Any = read_json(question.arguments)
    except BadJson:
        return False
    if not isinstance(values, dict):
        return False
    fields = cast("dict[str, Any]", values)
    path = fields.get("path")
    return (
        fields.get("protected") is True and not fields.get("git") and path is not None and path == patterns.get("path")
    )


def _is_fit(value: Any, glob: str, *, is_exec: bool) -> bool:
    """Match one argument; path traversal, control characters and a second command never match."""
    if not isinstance(value, str) or not fnmatchcase(value, glob):
        return False
    if value == glob:
        return True
    if ".." in re.split(r"[/\\]", value) or _CONTROL_CHARS.search(value):
        return False
    return not (is_exec and _SHELL.search(value))
