"""Decides why a call needs approval, and builds the journal records and model-facing messages of approvals.

Pure. Asking a person is behind the Approver port.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from treadle.core.events import ApprovalDecided, ApprovalRequested, DecisionStatus
from treadle.core.items import AnyItem, CallItem, MessageItem, OpaqueItem, OpaquePart, TextPart
from treadle.core.journal_entries import Entry
from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import ASKED_BY_NAME, LOCAL, Effect, Offer, Outcome, ToolPolicy, failure

NEVER_READ = frozenset({"denied", "expired", "cancelled", "interrupted", "limit_reached", "skipped", "unknown_tool"})
"""Codes of results that Treadle wrote without running a tool, so they hold no untrusted content."""

FROM_TEXT = ("recovered", "guessed")
HARMLESS = ("read", "idempotent")
TextRule = Literal["allow", "ask", "deny"]

HOSTED = "a tool of the provider's"
"""The taint source of items made by a provider's own tools (search, code, memory), which Treadle cannot inspect."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An approval request: the data of an `approval_request` entry.

    `call` and its `index` are set for a call that was carried over from an earlier run.
    """

    approval_id: str
    source: str = ""
    digest: str = ""
    reasons: tuple[str, ...] = ()
    expires_at: float = 0.0
    is_deferred: bool = False
    call: CallItem | None = None
    index: int = 0


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision about a call: the data of an `approval_decision` entry.

    `call` and its `index` are set for a call that was carried over from an earlier run. `sandbox` is the level that a
    command was shown with: at a lower one it does not run.
    """

    approval_id: str
    status: DecisionStatus
    by: str = ""
    reason: str = ""
    arguments: str | None = None
    call: CallItem | None = None
    index: int = 0
    sandbox: str = ""


def is_unread(item: AnyItem) -> bool:
    """Return whether an item holds content that the provider added, so that its author is unknown here."""
    if type(item) is not MessageItem:
        return type(item) is OpaqueItem
    if item.role == "assistant":
        for part in item.content:
            if type(part) is OpaquePart:
                return True
    return False


def rule_for_text_call(call: CallItem, policy: ToolPolicy | None, recovered_effects: TextRule) -> TextRule:
    """Decide whether a call found in text may run: a harmless one may, others follow the limits.

    A call that was guessed without a marker never runs a tool with effects, not even an idempotent one.
    """
    if policy is None:
        return "allow"
    harmless = ("read",) if call.origin == "guessed" else HARMLESS
    if policy.effect in harmless and not policy.exec:
        return "allow"
    return "deny" if call.origin == "guessed" else recovered_effects


def tainting_tools(offer: Offer, policy: ToolPolicy, tainted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tools whose untrusted output makes this call need approval; `tainted` maps them to their sources.

    A read from the same MCP server that the output came from cannot leak it to anyone else.
    """
    if not policy.reaches_out:
        return ()
    if policy.effect == "read" and not policy.exec and offer.source.startswith("mcp:"):
        return tuple(name for name, source in tainted.items() if source != offer.source)
    return tuple(tainted)


def reasons_for(call: CallItem, policy: ToolPolicy, tainted: tuple[str, ...], *, is_from_text: bool) -> tuple[str, ...]:
    """Return why a call needs a person's approval, empty if it does not. `tainted` are the tools read before."""
    reasons: list[str] = []
    if policy.approval == "always":
        reasons.append(f"{call.name}{ALWAYS}")
    elif policy.needs_approval:
        reasons.append(f"{call.name} is {policy.effect}")
    if is_from_text:
        reasons.append("the call stood in the model's text and has effects")
    if tainted:
        reasons.append(f"{TAINT} of {', '.join(tainted)} was read before")
    return tuple(reasons)


def is_policy_reason(reason: str, tool: str) -> bool:
    """Return whether a reason is about the tool itself, and not about content read before or its arguments.

    Compares whole reasons: the name of a tool may be a prefix of the other kinds (`untrusted`, `it`).
    """
    return reason == f"{tool}{ALWAYS}" or reason in {f"{tool} is {effect}" for effect in get_args(Effect)}


def person_only_arguments(call: CallItem, offer: Offer) -> tuple[str, ...]:
    """Return reasons for arguments of a local tool that only a person may allow, whatever its policy."""
    # JSON may escape a name (`\u0067it`), so that the text search below would not find it.
    if offer.source != LOCAL or not any(name in call.arguments for name in (*ASKED_BY_NAME, "\\u")):
        return ()
    try:
        value: Any = read_json(call.arguments)
    except BadJson:
        return ()
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    paths = ", ".join(protected_paths(fields))
    return tuple(f"{BY_NAME}{words.format(paths)}" for name, words in ASKED_BY_NAME.items() if fields.get(name))


def protected_paths(arguments: Mapping[str, Any]) -> list[str]:
    """Return the protected paths that a local tool's call asks to write."""
    asked: Any = arguments.get("protected")
    if isinstance(asked, list):
        return [str(each) for each in cast("list[Any]", asked)]
    return [str(arguments.get("path", ""))] if asked else []


BY_NAME = "it asks to "
"""The prefix of reasons that no rule can answer."""
TAINT = "untrusted output"
ALWAYS = " always needs approval"
POLICY = "policy "
"""The prefix of `by` when a person's rule decided."""


def request_step(index: int, call: CallItem, record: RequestRecord, at: float) -> tuple[ApprovalRequested, Entry]:
    """Return the event and the entry of an approval request."""
    event = ApprovalRequested(
        index=index,
        call=call,
        approval_id=record.approval_id,
        source=record.source,
        digest=record.digest,
        reasons=record.reasons,
        expires_at=record.expires_at,
        is_deferred=record.is_deferred,
    )
    return event, _entry("approval_request", call, "; ".join(record.reasons), record, at)


def decision_step(index: int, call: CallItem, record: DecisionRecord, at: float) -> tuple[ApprovalDecided, Entry]:
    """Return the event and the entry of a decision."""
    event = ApprovalDecided(
        index=index,
        call=call,
        approval_id=record.approval_id,
        status=record.status,
        by=record.by,
        reason=record.reason,
        arguments=record.arguments,
    )
    return event, _entry("approval_decision", call, record.status, record, at)


def _entry(kind: Any, call: CallItem, content: str, record: msgspec.Struct, at: float) -> Entry:
    data = msgspec.Raw(msgspec.json.encode(record))
    return Entry(kind=kind, name=call.name, call_id=call.call_id, content=content, data=data, at=at)


def with_decided_arguments(call: CallItem, record: DecisionRecord | None) -> CallItem:
    """Return the call with the arguments that it runs with: a person may have changed the model's."""
    if record is None or record.arguments is None:
        return call
    return msgspec.structs.replace(call, arguments=record.arguments)


def refusal_of(record: DecisionRecord) -> Outcome | None:
    """Return the outcome of a call that was not approved, with the reason given."""
    if record.status == "denied" and not record.approval_id:
        return failure("denied", record.reason or "Not run: nobody could be asked.")
    reason = f": {record.reason.rstrip('.')}" if record.reason else ""
    match record.status:
        case "approved":
            return None
        case "denied":
            who = record.by if record.by.startswith(POLICY) else "a person"
            return failure("denied", f"Not run: {who} denied this call{reason}.")
        case "expired":
            return failure("expired", "Not run: nobody decided about this call in time. No person denied it.")
        case "cancelled":
            return failure("expired", "Not run: the question whether this call may run was not answered.")


def mark_changed(outcome: Outcome, record: DecisionRecord) -> Outcome:
    """Add a notice for the model that its call ran with changed arguments, as a field if the result is a JSON object.

    A policy changes how a call runs and not what it does; the tool itself reports that.
    """
    arguments = record.arguments
    if arguments is None or record.by.startswith(POLICY):
        return outcome
    line = f"[arguments_changed] A person changed the arguments of this call before it ran: {arguments}"
    if outcome.parts:
        return msgspec.structs.replace(outcome, parts=(*outcome.parts, TextPart(text=line)))
    try:
        value: Any = read_json(outcome.text)
        changed: Any = read_json(arguments)
    except BadJson:
        value = changed = None
    if not isinstance(value, dict):
        return msgspec.structs.replace(outcome, text=f"{outcome.text}\n\n{line}")
    fields = {**cast("dict[str, Any]", value), "arguments_changed": changed}
    return msgspec.structs.replace(outcome, text=write_json(fields).decode())
