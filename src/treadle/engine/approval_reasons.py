"""Approvals as the engine sees them: why a call needs one, what is journalled of it, and the words the model reads.

Pure. Who is asked, and how, is behind the Approver port.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

import msgspec

from treadle.core.events import ApprovalDecided, ApprovalRequested, Verdict
from treadle.core.items import AnyItem, CallItem, MessageItem, OpaqueItem, OpaquePart, TextPart
from treadle.core.journal_entries import Entry
from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import ASKED_BY_NAME, LOCAL, Effect, Offer, Outcome, ToolPolicy, failure

NEVER_READ = frozenset({"denied", "expired", "cancelled", "interrupted", "limit_reached", "skipped", "unknown_tool"})
"""Codes of results in which Treadle speaks and no tool."""

FROM_TEXT = ("recovered", "guessed")
HARMLESS = ("read", "idempotent")
TextRule = Literal["allow", "ask", "deny"]

HOSTED = "a tool of the provider's"
"""Who gave what Treadle does not read itself: the search, the code or the memory of a provider's own."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """That a person was asked about a call: the data of an `approval_request` entry.

    A call that an earlier run made is here too, with its `index` in this one.
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
    """What was decided about a call: the data of an `approval_decision` entry.

    A call that an earlier run made is here too, with its `index` in this one. `sandbox` is the level that a command was
    shown with: at a lower one it does not run.
    """

    approval_id: str
    status: Verdict
    by: str = ""
    reason: str = ""
    arguments: str | None = None
    call: CallItem | None = None
    index: int = 0
    sandbox: str = ""


def is_unread(item: AnyItem) -> bool:
    """Tell whether an item holds what the model was given elsewhere, so that nobody here knows whose words it has."""
    if type(item) is not MessageItem:
        return type(item) is OpaqueItem
    if item.role == "assistant":
        for part in item.content:
            if type(part) is OpaquePart:
                return True
    return False


def rule_for_text(call: CallItem, policy: ToolPolicy | None, recovered_effects: TextRule) -> TextRule:
    """Say whether a call that stood in text may run: one that does no harm, else as the limits say.

    What had not even a marker never runs a tool with effects, also none that can be repeated.
    """
    if policy is None:
        return "allow"
    harmless = ("read",) if call.origin == "guessed" else HARMLESS
    if policy.effect in harmless and not policy.exec:
        return "allow"
    return "deny" if call.origin == "guessed" else recovered_effects


def taint_for(offer: Offer, policy: ToolPolicy, tainted: Mapping[str, str]) -> tuple[str, ...]:
    """Return the tools whose untrusted output makes this one need approval; `tainted` has them with their sources.

    What only reads from the very MCP server that the output came from has nobody else to carry it to.
    """
    if not policy.reaches_out:
        return ()
    if policy.effect == "read" and not policy.exec and offer.source.startswith("mcp:"):
        return tuple(name for name, source in tainted.items() if source != offer.source)
    return tuple(tainted)


def reasons_for(call: CallItem, policy: ToolPolicy, tainted: tuple[str, ...], *, is_from_text: bool) -> tuple[str, ...]:
    """Say why a call needs a person's approval; nothing when it does not. `tainted` are the tools read before."""
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


def is_of_policy(reason: str, tool: str) -> bool:
    """Tell whether a reason says what the tool is, and not what was read or asked for.

    In full: a tool that is called `untrusted` or `it` begins like the other reasons.
    """
    return reason == f"{tool}{ALWAYS}" or reason in {f"{tool} is {effect}" for effect in get_args(Effect)}


def asked_by_name(call: CallItem, offer: Offer) -> tuple[str, ...]:
    """Return what a local tool's call asks for that only a person can allow, naming it, whatever its policy says."""
    # An escape (`\u0067it`) spells a name so that it does not stand in the text.
    if offer.source != LOCAL or not any(name in call.arguments for name in (*ASKED_BY_NAME, "\\u")):
        return ()
    try:
        value: Any = read_json(call.arguments)
    except BadJson:
        return ()
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    paths = ", ".join(protected_in(fields))
    return tuple(f"{BY_NAME}{words.format(paths)}" for name, words in ASKED_BY_NAME.items() if fields.get(name))


def protected_in(arguments: Mapping[str, Any]) -> list[str]:
    """Return the protected paths that a local tool's call asks to write."""
    asked: Any = arguments.get("protected")
    if isinstance(asked, list):
        return [str(each) for each in cast("list[Any]", asked)]
    return [str(arguments.get("path", ""))] if asked else []


BY_NAME = "it asks to "
"""How a reason begins that only the person who reads it can answer."""
TAINT = "untrusted output"
ALWAYS = " always needs approval"
POLICY = "policy "
"""How the name of whoever decided begins when it was a rule of theirs, and not they themselves."""


def request_step(index: int, call: CallItem, record: RequestRecord, at: float) -> tuple[ApprovalRequested, Entry]:
    """Return the event and the entry that say that a person is asked."""
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
    """Return the event and the entry that say what was decided."""
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


def as_run(call: CallItem, record: DecisionRecord | None) -> CallItem:
    """Return a call as it runs: with the arguments that a person put in the place of the model's."""
    if record is None or record.arguments is None:
        return call
    return msgspec.structs.replace(call, arguments=record.arguments)


def refusal_of(record: DecisionRecord) -> Outcome | None:
    """Return what a call gets that may not run, by the words of whoever decided."""
    if record.status == "denied" and not record.approval_id:
        return failure("denied", record.reason or "Not run: nobody could be asked.")
    said = f": {record.reason.rstrip('.')}" if record.reason else ""
    match record.status:
        case "approved":
            return None
        case "denied":
            who = record.by if record.by.startswith(POLICY) else "a person"
            return failure("denied", f"Not run: {who} denied this call{said}.")
        case "expired":
            return failure("expired", "Not run: nobody decided about this call in time. No person denied it.")
        case "cancelled":
            return failure("expired", "Not run: the question whether this call may run was not answered.")


def mark_changed(outcome: Outcome, record: DecisionRecord) -> Outcome:
    """Tell the model where its call ran with other arguments, in a field where the result is a JSON object.

    What a policy changes is how a call runs and not what it does; the tool itself tells the model of that.
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
