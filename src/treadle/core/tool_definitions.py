"""Tools as nouns: what the model is told of one, how Treadle may run it, and what a run of it gave."""

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
"""The words of the one deed that is never a model's, whatever stands before them or between them."""
_WORDS = re.compile(r"[^\W_]+")
NAME_CHARS_READ = 512
NAMES_KNOWN_MAX = 1_024
"""The same few tools are called again and again."""

NAME_CHARS_COMPARED = 128
"""Names come from models: one of a megabyte is neither compared nor shown whole."""
NAMES_COMPARED = 8
NAMES_BYTES_MAX = 2_048
"""How much of a result may be names of the tools there are."""

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
"""Where a tool ran: the words in every finished call, in events and journal. A call that never ran has none."""

LEVELS = ("L0", "L1", "L2", "L3")
"""Those of commands, in this order also as texts."""

EMPTY_SCHEMA = msgspec.Raw(b'{"type":"object","properties":{}}')


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the model is told of a tool. `parameters` is a JSON Schema, kept as it was written."""

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
    tool gives may have been written by anybody. `rate_per_min` bounds the calls of one key; 0 is without bound.
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
        """Tell whether a person must agree before this tool runs."""
        return self.approval == "always" or (self.approval == "by_effect" and self.effect == "destructive")

    @property
    def taints(self) -> bool:
        """Tell whether what this tool gives may have been written by anybody."""
        return self.untrusted or self.egress

    @property
    def reaches_out(self) -> bool:
        """Tell whether a call can do harm: change something, run something, or carry something away."""
        return self.effect != "read" or self.exec or self.egress


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that Treadle runs: its spec, its policy, and where it comes from (`python`, `local`, `mcp:name` …)."""

    spec: ToolSpec
    policy: ToolPolicy = ToolPolicy()
    source: str = "python"

    @property
    def name(self) -> str:
        """Return the name the model calls it by."""
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
        """Tell whether the model should read this as a failure."""
        return self.rc not in ("ok", "0")


def failure(code: str, message: str) -> Outcome:
    """Return the outcome of a call that Treadle itself answers: the one shape in which a model reads such an error."""
    text = write_json({"error": {"code": code, "message": message}}).decode()
    envelope = Envelope(ok=False, errors=(Fault(code=code, message=message),))
    return Outcome(text=text, rc=code, summary=message, envelope=envelope)


def flat_failure(outcome: Outcome) -> Outcome:
    """Return a failure in the shape of the local tools, `{"error": "…", "code": "…"}`, whoever answered the call."""
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
    """Return names of tools for a model that called another: the nearest first, and how many more there are.

    All of them, as long as they fit: a model takes a list that ends for the whole one.
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
    """Tell whether a name is that of a deed no model may do, in any spelling: `facts.commit`, `mcp__x__factsCommit`."""
    return _names_person_only(name[:NAME_CHARS_READ])


@lru_cache(NAMES_KNOWN_MAX)
def _names_person_only(name: str) -> bool:
    words = _WORDS.findall(unicodedata.normalize("NFKC", name).casefold())
    return tuple(words[-2:]) == PERSON_ONLY or words[-1:] == ["".join(PERSON_ONLY)]


def refuse_person_only(name: str) -> Outcome:
    """Return what a model reads that called such a name: nothing has changed."""
    words = "Facts are committed by a person only. Nothing was changed; propose the change with facts.propose."
    return failure("denied", f"{name[:64]} is refused. {words}")


LOCAL = "local"
"""The source of tools on the files of this machine."""
ASKED_BY_NAME = {"protected": "write protected paths: {}", "git": "write the git repository"}
"""Arguments of local tools that a person is always asked about, by no rule's leave, and what they ask for.

The first is true for the call's own path, or a list of paths.
"""
OUTSIDE_ROOT = "outside_root"
"""The code of a path that no local tool may touch."""
GUEST = "guest"
"""The source of tools that a session guest brings to its own run: they are gone when the guest is."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as offered in a run: the spec the model sees, who runs it, and under which policy."""

    spec: ToolSpec
    side: Side
    policy: ToolPolicy | None = None
    source: str = "client"


def essence(name: str, policy: ToolPolicy, source: str) -> str:
    """Write what must be the same of a server tool for a run that was offered it to go on elsewhere."""
    return f"{name} {policy.effect} {source}"


class CallContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a call stands: what a tool may know of the run that asks for it.

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
        """Return what stays the same when a crash makes the call run again: hand it to whatever has the effect."""
        return f"{self.run_id}:{self.call_id}"
