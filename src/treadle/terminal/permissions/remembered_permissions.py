"""Stores remembered permissions: an exact command line or a tool, for the session or for the project.

Rules of a project are stored in the user's data directory, never in the project: a repository's content may come from
anyone. `permission_policy` applies them.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

Scope = Literal["session", "project"]
POLICY = "policy "
"""Prefix of the decider's name when a rule decided, and not the person."""
RULES_MAX = 500
FILE_NAME = "allowed.json"


class Allowed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rule: a whole command line as written in a folder, a protected path, or (with neither) any call of a tool.

    `sandbox` is the level that the command was shown with. A rule without one is of an older version and does not hold.
    """

    tool: str
    command: str = ""
    cwd: str = ""
    sandbox: str = ""
    path: str = ""

    @property
    def words(self) -> str:
        """Return the rule as text."""
        if self.path:
            return f"writing the protected path {self.path}"
        if not self.command:
            return f"{self.tool}, whatever its arguments"
        where = "" if self.cwd in ("", ".") else f" in {self.cwd}"
        return f"exactly `{self.command}`{where}" + (f", sandbox {self.sandbox}" if self.sandbox else "")


class Allowances:
    """The rules of one terminal: of this session, and of the project."""

    def __init__(self, project: str, file: Path | None = None) -> None:
        self._project = project
        self._file = file
        self.session: list[Allowed] = []
        self.project: list[Allowed] = self._read().get(project, []) if file is not None else []

    def __contains__(self, rule: Allowed) -> bool:
        return rule in self.session or rule in self.project

    def add(self, rule: Allowed, scope: Scope) -> None:
        """Store a rule.

        Raises: OSError, when it can not be written.
        """
        if rule in self:
            return
        if scope == "session":
            self.session.append(rule)
            return
        self.project = [*self.project, rule][-RULES_MAX:]
        self._write()

    def forget(self) -> None:
        """Remove the rules of the session, for a new conversation."""
        self.session = []

    def remove(self, rule: Allowed) -> None:
        """Remove one rule.

        Raises: OSError.
        """
        self.session = [each for each in self.session if each != rule]
        if rule in self.project:
            self.project = [each for each in self.project if each != rule]
            self._write()

    def _read(self) -> dict[str, list[Allowed]]:
        assert self._file is not None
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, list[Allowed]])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _write(self) -> None:
        """Rewrite the file atomically; other terminals may have added rules of other projects."""
        if self._file is None:
            return
        rules = {**self._read(), self._project: self.project}
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, temporary = tempfile.mkstemp(dir=self._file.parent, prefix=f".{FILE_NAME}")
        try:
            with open(fd, "wb") as file:
                file.write(msgspec.json.encode({name: each for name, each in rules.items() if each}))
            os.replace(temporary, self._file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
