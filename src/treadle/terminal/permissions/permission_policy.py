"""Decides in the terminal whether a call may run: yes, no, or ask the person.

Pure except for its rules. A command is run read-only (not asked about, and the sandbox prevents it from changing
anything), asked about, or denied. A call that follows untrusted output, or stood in text, is always asked about.
"""

import os
from typing import Any, Literal, cast

import msgspec

from treadle.core.events import ApprovalRequested
from treadle.core.json import BadJson, read_json, write_json
from treadle.engine.approval_reasons import BY_NAME, is_policy_reason, protected_paths
from treadle.terminal.conversation.host_interface import CallDecision
from treadle.terminal.permissions.remembered_permissions import Allowances, Allowed, Scope
from treadle.terminal.permissions.shell_command_analysis import Parsed, parse

Mode = Literal["plan", "ask", "auto-edit", "trust"]
CYCLE: tuple[Mode, ...] = ("plan", "ask", "auto-edit")
MODES: dict[Mode, str] = {
    "plan": "nothing is changed: commands run read-only, every other call that needs approval is denied",
    "ask": "a person is asked before files are written and commands run, unless they run read-only",
    "auto-edit": "files are written without asking; commands are asked about",
    "trust": "nothing is asked",
}
SHELL = "bash"
READ_ONLY = "read_only"
"""The argument of a command by which the decision travels to whichever process runs it."""
BY_READ_ONLY = "policy read-only"
EDITS = frozenset({"file_write", "file_edit"})
LOCAL = "local"
PROTECTED = "protected"
"""What stands for the tool in a rule for a protected path."""
CONFINED_LEVEL = 1
"""The lowest sandbox level that can prevent a command from changing anything."""
REMEMBERED_LEVEL = 2


class PermissionQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A pending call, with its arguments and command line parsed as far as possible."""

    approval_id: str
    tool: str
    source: str
    arguments: dict[str, Any]
    raw: str
    reasons: tuple[str, ...] = ()
    digest: str = ""
    parsed: Parsed | None = None

    @property
    def is_shell(self) -> bool:
        """Return whether it is a command line."""
        return self.tool == SHELL and self.source == LOCAL

    @property
    def is_edit(self) -> bool:
        """Return whether it writes one file inside the workspace."""
        return self.tool in EDITS and self.source == LOCAL

    @property
    def is_plain(self) -> bool:
        """Return whether it is asked for what the tool is, and not for what was read or how it came to be."""
        return all(is_policy_reason(reason, self.tool) for reason in self.reasons)

    @property
    def protected(self) -> tuple[str, ...]:
        """Return the protected paths that it asks to write."""
        return tuple(os.path.normpath(each) for each in protected_paths(self.arguments)) if self.source == LOCAL else ()

    @property
    def is_git_write(self) -> bool:
        """Return whether it is a command that asks to write the git repository."""
        return self.is_shell and bool(self.arguments.get("git"))

    @property
    def named_rules(self) -> list[Allowed]:
        """Return the rule for the one protected path that it writes, where nothing else must be asked about."""
        is_plain = all(is_policy_reason(reason, self.tool) or reason.startswith(BY_NAME) for reason in self.reasons)
        is_one = is_plain and self.is_edit and len(self.protected) == 1
        return [Allowed(tool=PROTECTED, path=self.protected[0])] if is_one else []

    @property
    def command(self) -> str:
        """Return the command line."""
        return str(self.arguments.get("command", ""))

    @property
    def cwd(self) -> str:
        """Return the folder the command runs in."""
        return os.path.normpath(str(self.arguments.get("cwd") or "."))


def question_of(event: ApprovalRequested, root: str) -> PermissionQuestion:
    """Read the question that an event asks."""
    try:
        value: Any = read_json(event.call.arguments)
    except BadJson:
        value = None
    arguments = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    question = PermissionQuestion(
        approval_id=event.approval_id,
        tool=event.call.name,
        source=event.source,
        arguments=arguments,
        raw=event.call.arguments,
        reasons=event.reasons,
        digest=event.digest,
    )
    if not question.is_shell:
        return question
    folder = os.path.normpath(os.path.join(root or "/", question.cwd))
    return msgspec.structs.replace(question, parsed=parse(question.command, root=folder if root else ""))


class PermissionPolicy:
    """Decides calls without a person where the mode and the rules allow it."""

    def __init__(self, mode: Mode, allowances: Allowances, *, sandbox: int | None = None) -> None:
        self.mode: Mode = mode
        self.allowances = allowances
        self.sandbox = sandbox

    def cycle(self) -> Mode:
        """Switch to the next mode; after `trust` to the strictest."""
        self.mode = CYCLE[(CYCLE.index(self.mode) + 1) % len(CYCLE)] if self.mode in CYCLE else CYCLE[0]
        return self.mode

    def decide(self, question: PermissionQuestion) -> CallDecision | None:
        """Return the answer that needs no person; None when one must be asked."""
        if question.protected and self.mode != "plan":
            # Allowed by its name or not at all: neither a mode nor a rule for the tool answers this.
            rules = question.named_rules
            is_known = bool(rules) and all(rule in self.allowances for rule in rules)
            by = f"policy: remembered {rules[0].path}" if is_known else ""
            return CallDecision(approve=True, by=by, digest=question.digest) if by else None
        if self.mode == "trust":
            return CallDecision(approve=True, by="policy trust", digest=question.digest)
        if question.is_plain and (rule := self._rule_for(question)):
            return CallDecision(approve=True, by=rule, digest=question.digest)
        # In plan mode too: the sandbox, and not this decision, prevents the command from changing anything.
        if question.is_plain and self.is_tried_read_only(question):
            arguments = write_json({**question.arguments, READ_ONLY: True}).decode()
            return CallDecision(approve=True, by=BY_READ_ONLY, digest=question.digest, arguments=arguments)
        if self.mode == "plan":
            reason = "the terminal is in plan mode: say what you would do; nothing is changed now"
            if question.is_shell and (self.sandbox or 0) >= CONFINED_LEVEL:
                reason += f". A command that only reads runs with {READ_ONLY} = true"
            return CallDecision(approve=False, by="policy plan", reason=reason, digest=question.digest)
        return None

    def _rule_for(self, question: PermissionQuestion) -> str:
        """Return by which rule a call may run unasked."""
        if question.is_shell:
            rule = None if self.mode == "plan" else self._line_rule(question)
            return "policy: remembered command" if rule is not None and rule in self.allowances else ""
        if question.is_edit and self.mode == "auto-edit":
            return "policy: auto-edit"
        if self.mode != "plan" and Allowed(tool=question.tool) in self.allowances:
            return f"policy: remembered {question.tool}"
        return ""

    def is_tried_read_only(self, question: PermissionQuestion) -> bool:
        """Return whether a command is run read-only: the model asks for it, or it probably only reads."""
        if question.parsed is None or (self.sandbox or 0) < CONFINED_LEVEL or question.arguments.get("network"):
            return False
        wanted = question.arguments.get(READ_ONLY)
        if wanted is not None:
            return wanted is True
        return bool(question.parsed.commands) and all(each.reads for each in question.parsed.commands)

    def rules_for(self, question: PermissionQuestion, scope: Scope) -> list[Allowed]:
        """Return what "always" would remember; nothing where nothing may be remembered."""
        if question.protected:
            return question.named_rules
        if not question.is_plain:
            return []
        if question.parsed is None:
            # Whatever its arguments may be: that is granted for a session, and never for good.
            return [] if question.is_shell or scope == "project" else [Allowed(tool=question.tool)]
        rule, parsed = self._line_rule(question), question.parsed
        if rule is None or parsed.hazards or not parsed.commands:
            return []
        return [] if scope == "project" and any(each.is_far for each in parsed.commands) else [rule]

    def _line_rule(self, question: PermissionQuestion) -> Allowed | None:
        """Return the rule that agrees to exactly this command line, in its folder and at the level it is shown with."""
        level = self.sandbox or 0
        if level < REMEMBERED_LEVEL or question.arguments.get("network"):
            return None
        return Allowed(tool=question.tool, command=question.command, cwd=question.cwd, sandbox=f"L{level}")

    def remember(self, question: PermissionQuestion, scope: Scope) -> list[Allowed]:
        """Store the rules for a call that a person agreed to.

        Raises: OSError.
        """
        rules = self.rules_for(question, scope)
        for rule in rules:
            self.allowances.add(rule, scope)
        return rules
