"""The types of tools: the spec that the model sees, the policy under which a tool runs, and the outcome of a call."""

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Literal, cast

import msgspec

from treadle.core.items import AnyPart, CallKind, Extra, Side
from treadle.core.json import BadJson, OptionalRaw, read_json, write_json

Effect = Literal["read", "idempotent", "write", "destructive"]
Approval = Literal["never", "always", "by_effect"]
ChoiceMode = Literal["auto", "none", "required", "named"]
RC = Literal[
    "ok",
    "invalid_arguments",
    "unknown_tool",
    "timeout",
    "denied",
    "expired",
    "failed",
    "too_large",
    "cancelled",
    "interrupted",
    "limit_reached",
    "skipped",
]
"""The closed list of result codes for tools that have no code of their own; a bounded metric label."""

PERSON_ONLY = ("facts", "commit")
"""The words of the one action that no model may do, whatever stands before or between them."""
_WORDS = re.compile(r"[^\W_]+")
NAME_CHARS_READ = 512
NAMES_KNOWN_MAX = 1_024
"""The size of the cache: the same few tools are called repeatedly."""

NAME_CHARS_COMPARED = 128
"""Names come from models and may be megabytes long."""
NAMES_COMPARED = 8
NAMES_BYTES_MAX = 2_048
"""How much of a result may list tool names."""

SANDBOXES = {
    "none": "in Treadle's own process, with the rights of its user",
    "root": "in Treadle's own process; every path is opened below one folder and cannot leave it",
    "guarded": "in Treadle's own process; connections go only to addresses that were checked",
    "process": "in a process of its own, with the rights of Treadle's user",
    "remote": "elsewhere, over HTTP",
    "wasm": "as WebAssembly, in a thread: it reaches only the functions that it is given",
    "wasm-process": "as WebAssembly, in a process of its own",
    "L0": "as a command that nothing confines: limits on resources and a short environment only",
    "L1": "as a command confined by an older Landlock and by seccomp",
    "L2": "as a command confined by Landlock and seccomp",
    "L3": "as L2, and in namespaces of its own",
}
"""Where a tool ran, as recorded in events and journal, with descriptions. A call that never ran has none."""

LEVELS = ("L0", "L1", "L2", "L3")
"""Those of commands, in this order also as texts."""

EMPTY_SCHEMA = msgspec.Raw(b'{"type":"object","properties":{}}')


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the model sees of a tool. `parameters` is a JSON Schema, verbatim."""

    name: str
    description: str = ""
    parameters: msgspec.Raw = EMPTY_SCHEMA
    strict: bool | None = None
    kind: CallKind = "function"
    format: OptionalRaw = None
    namespace: str | None = None
    extra: Extra | None = None


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How Treadle may run a server tool.

    `resources` name what a call works on (`file:{path}`, from its arguments; `*` is everything). What an `untrusted`
    tool returns may have been written by anyone. `rate_per_min` bounds the calls of one key; 0 is without bound.
    """

    effect: Effect = "write"
    approval: Approval = "by_effect"
    timeout_s: float = 10.0
    retries: int = 0
    output_bytes_max: int = 65_536
    parallel: bool = False
    resources: tuple[str, ...] = ()
    exec: bool = False
    egress: bool = False
    untrusted: bool = False
    rate_per_min: int = 0

    @property
    def needs_approval(self) -> bool:
        """Return whether a person must agree before this tool runs."""
        return self.approval == "always" or (self.approval == "by_effect" and self.effect == "destructive")

    @property
    def taints(self) -> bool:
        """Return whether the output of this tool may have been written by anyone."""
        return self.untrusted or self.egress

    @property
    def reaches_out(self) -> bool:
        """Return whether a call can do harm: change something, run a program, or send data out."""
        return self.effect != "read" or self.exec or self.egress


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that Treadle runs: its spec, its policy, and where it comes from (`python`, `local`, `mcp:name` …)."""

    spec: ToolSpec
    policy: ToolPolicy = ToolPolicy()
    source: str = "python"

    @property
    def name(self) -> str:
        """Return the name that the model calls it by."""
        return self.spec.name


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether and what the model must call; `allowed` narrows the offered tools by name."""

    mode: ChoiceMode = "auto"
    name: str | None = None
    allowed: tuple[str, ...] | None = None


AUTO = ToolChoice()
NONE = ToolChoice(mode="none")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that went wrong in a tool."""

    code: str
    message: str
    path: str | None = None


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave, in one shape whatever the tool: `data` is any JSON value."""

    ok: bool
    # A factory: a default of this type has no place in a JSON schema (msgspec 0.22).
    data: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    warnings: tuple[str, ...] = ()
    errors: tuple[Fault, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run of a tool: what the model reads (`text`, `parts`), what a person reads, and the bookkeeping.

    `sandbox` is one of SANDBOXES; empty when no tool ran.
    """

    text: str
    rc: str = "ok"
    summary: str | None = None
    envelope: Envelope | None = None
    parts: tuple[AnyPart, ...] = ()
    output_bytes: int = 0
    truncated: bool = False
    handle: str | None = None
    duration_s: float = 0.0
    sandbox: str = ""

    @property
    def is_error(self) -> bool:
        """Return whether the model should read this as a failure."""
        return self.rc not in ("ok", "0")


def failure(code: str, message: str) -> Outcome:
    """Return the outcome of a call that Treadle answers itself, in the error shape that the model reads."""
    text = write_json({"error": {"code": code, "message": message}}).decode()
    envelope = Envelope(ok=False, errors=(Fault(code=code, message=message),))
    return Outcome(text=text, rc=code, summary=message, envelope=envelope)


def flat_failure(outcome: Outcome) -> Outcome:
    """Return a failure in the shape of the local tools, `{"error": "…", "code": "…"}`."""
    try:
        body: Any = read_json(outcome.text)
        fields = cast("dict[str, Any]", body)
        error = cast("dict[str, Any]", fields["error"])
        flat = {"error": error["message"], **{name: value for name, value in error.items() if name != "message"}}
    except (BadJson, TypeError, KeyError):
        return outcome
    rest = {name: value for name, value in fields.items() if name != "error"}
    return msgspec.structs.replace(outcome, text=write_json({**flat, **rest}).decode())


def listed_names(wanted: str, names: Iterable[str]) -> str:
    """Return tool names for a model that called an unknown one: the nearest first, and how many more there are.

    As many as fit, and the count of the rest, since a model takes a list for complete.
    """
    known = sorted(names)
    near = get_close_matches(wanted[:NAME_CHARS_COMPARED], known, NAMES_COMPARED, cutoff=0.5)
    shown: list[str] = []
    size = 0
    for name in dict.fromkeys([*near, *known]):
        size += len(name.encode("utf-8", "replace")) + 2
        if size > NAMES_BYTES_MAX:
            break
        shown.append(name)
    left = len(known) - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def is_person_only(name: str) -> bool:
    """Return whether a name means the person-only action, in any spelling: `facts.commit`, `mcp__x__factsCommit`."""
    return _names_person_only(name[:NAME_CHARS_READ])


@lru_cache(NAMES_KNOWN_MAX)
def _names_person_only(name: str) -> bool:
    words = _WORDS.findall(unicodedata.normalize("NFKC", name).casefold())
    return tuple(words[-2:]) == PERSON_ONLY or words[-1:] == ["".join(PERSON_ONLY)]


def refuse_person_only(name: str) -> Outcome:
    """Return the outcome of a call of the person-only action."""
    words = "Facts are committed by a person only. Nothing was changed; propose the change with facts.propose."
    return failure("denied", f"{name[:64]} is refused. {words}")


LOCAL = "local"
"""The source of tools that work on local files."""
ASKED_BY_NAME = {"protected": "write protected paths: {}", "git": "write the git repository"}
"""Arguments of local tools that always need a person's approval, which no rule can give, and what they ask for.

The first is true for the call's own path, or a list of paths.
"""
OUTSIDE_ROOT = "outside_root"
"""The error code for a path outside the root."""
GUEST = "guest"
"""The source of tools that a session guest brings to its own run; they end with the guest."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as offered in a run: the spec the model sees, who runs it, and under which policy."""

    spec: ToolSpec
    side: Side
    policy: ToolPolicy | None = None
    source: str = "client"


def essence(name: str, policy: ToolPolicy, source: str) -> str:
    """Return what another process must have of a server tool to recover a run that was offered it."""
    return f"{name} {policy.effect} {source}"


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a call: what a tool may know of the run that makes it.

    `sandbox` is the level that a person was shown when they allowed it: at a lower one it must not run.
    """

    run_id: str
    call_id: str = ""
    session_id: str | None = None
    key_id: str = ""
    round: int = 0
    sandbox: str = ""

    @property
    def idempotency_key(self) -> str:
        """Return a key that stays the same when the call runs again after a crash, for the service it calls."""
        return f"{self.run_id}:{self.call_id}"
