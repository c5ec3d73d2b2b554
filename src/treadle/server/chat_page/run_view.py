"""A run as the chat page shows it: parts (text, reasoning, tool cards, status lines), and the operations that build it.

Pure. Every change may be applied twice: a part is put whole, text is put at a place, counted as browsers count.
So a page that joins late, or receives an operation twice, shows the same result.
"""

from typing import Any, Literal

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunRecovered,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from treadle.core.items import (
    AnyItem,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    TextPart,
)
from treadle.core.json import cut_text

Mode = Literal["cards", "text"]
"""`text` shows one line per tool, without arguments and results."""

Part = dict[str, Any]
Op = dict[str, Any]
SHOWN_BYTES_MAX = 65_536
"""How much of a call's arguments and result a page gets; the run's journal has the rest."""

_STATES = {"ok": "done", "denied": "denied", "expired": "expired", "cancelled": "stopped", "skipped": "stopped"}
"""The state of a card by its result's code; any other code is an error."""
_OPEN = frozenset({"writing", "ready", "asking", "approved", "running"})
_LINES = {
    "writing": "Calling {name}…",
    "ready": "Calling {name}…",
    "approved": "Calling {name}…",
    "running": "Calling {name}…",
    "asking": "{name} waits for approval.",
    "done": "Called {name}.",
    "error": "{name} failed.",
    "denied": "{name} was denied.",
    "expired": "Nobody decided about {name} in time.",
    "stopped": "{name} was stopped.",
}
CUT_SHORT = {
    "length": "The model reached the length it may write.",
    "filtered": "The model's provider withheld the rest.",
}


class ChatRunView:
    """The current view of one run."""

    def __init__(self, mode: Mode = "cards") -> None:
        self._mode = mode
        self._parts: dict[int, Part] = {}
        self._sizes: dict[tuple[int, str], int] = {}
        self._tools: dict[int, Part] = {}
        self._round: set[int] = set()

    @property
    def parts(self) -> list[Part]:
        """Return the parts in order."""
        return list(self._parts.values())

    def feed(self, event: RunEvent) -> list[Op]:
        """Apply an event and return the operations that show it."""
        match event:
            case ItemAdded():
                return self._begin(event.index, event.item)
            case TextDelta() | RefusalDelta() | ReasoningDelta():
                return self._grow(event.index, "text", event.text)
            case ArgumentsDelta():
                return self._grow(event.index, "arguments", event.text)
            case ItemDone():
                return self._finish(event.index, event.item)
            case ToolStarted():
                state = "running" if self._tool(event.index, event.call).get("state") in _OPEN else None
                return self._change(event.index, state=state, source=event.source)
            case ToolFinished():
                return self._result(event)
            case ApprovalRequested():
                return self._ask(event)
            case ApprovalDecided():
                return self._decided(event)
            case RoundStarted():
                self._round.clear()
                return []
            case RoundBroken():
                return self._break(event)
            case RunRecovered():
                # A page may show pieces that the journal never had, of parts that are not here: it gets what there is.
                return [{"op": "parts", "parts": [dict(part) for part in self._parts.values()]}]
            case RunEnded():
                return self._close()
            case _:
                return []

    def _begin(self, index: int, item: AnyItem) -> list[Op]:
        match item:
            case MessageItem():
                return self._put(index, {"kind": "text", "text": "", "done": False})
            case ReasoningItem():
                return self._put(index, {"kind": "reasoning", "text": "", "done": False})
            case CallItem():
                return self._card(index, item, "writing")
            case _:
                return []

    def _card(self, index: int, call: CallItem, state: str) -> list[Op]:
        tool: Part = {
            "kind": "tool",
            "call_id": call.call_id,
            "name": call.name,
            "side": call.side,
            "state": state,
            "arguments": cut_text(call.arguments, SHOWN_BYTES_MAX),
            "output": "",
        }
        self._tools[index] = tool
        self._sizes[index, "arguments"] = _units(tool["arguments"])
        return self._put(index, tool if self._mode == "cards" else _line(tool))

    def _put(self, index: int, part: Part) -> list[Op]:
        part["id"] = index
        if index not in self._parts:
            self._round.add(index)
        self._parts[index] = part
        self._sizes[index, "text"] = _units(part.get("text", ""))
        return [{"op": "part", "part": dict(part)}]

    def _grow(self, index: int, field: str, text: str) -> list[Op]:
        part = self._tools.get(index) if field == "arguments" else self._parts.get(index)
        if part is None or not text:
            return []
        at = self._sizes.get((index, field), 0)
        part[field] += text
        self._sizes[index, field] = at + _units(text)
        if field == "arguments" and (self._mode == "text" or at > SHOWN_BYTES_MAX):
            return []
        return [{"op": "text", "id": index, "field": field, "at": at, "text": text}]

    def _finish(self, index: int, item: AnyItem) -> list[Op]:
        match item:
            case MessageItem() | ReasoningItem():
                whole = _whole(item)
                if index not in self._parts:
                    return self._put(index, {"kind": _kind(item), "text": whole, "done": True})
                part = self._parts[index]
                part["done"] = True
                if whole == part["text"]:
                    return [{"op": "set", "id": index, "done": True}]
                return self._put(index, {**part, "text": whole})
            case CallItem():
                if index not in self._tools:
                    return self._card(index, item, "ready")
                return self._change(index, state="ready", arguments=cut_text(item.arguments, SHOWN_BYTES_MAX))
            case _:
                return []

    def _result(self, event: ToolFinished) -> list[Op]:
        result = event.result
        fields: Part = {
            "state": "error" if result.is_error and result.rc == "ok" else _STATES.get(result.rc, "error"),
            "output": cut_text(shown_output(result), SHOWN_BYTES_MAX),
            "source": event.source,
            "duration_ms": round(event.duration_s * 1000, 3),
            "truncated": event.truncated or None,
            "sandbox": getattr(event, "sandbox", "") or None,
            "approval": None,
        }
        known = self._tool(event.index, event.call)
        if event.call.arguments != known.get("arguments"):
            fields["arguments"] = cut_text(event.call.arguments, SHOWN_BYTES_MAX)
        return self._change(event.index, **fields)

    def _ask(self, event: ApprovalRequested) -> list[Op]:
        self._tool(event.index, event.call)
        approval = {
            "id": event.approval_id,
            "digest": event.digest,
            "reasons": list(event.reasons),
            "expires_at": event.expires_at,
        }
        return self._change(event.index, state="asking", approval=approval, source=event.source)

    def _decided(self, event: ApprovalDecided) -> list[Op]:
        self._tool(event.index, event.call)
        state = "approved" if event.status == "approved" else "denied" if event.status == "denied" else "expired"
        fields: Part = {"state": state, "approval": None, "by": event.by or None, "reason": event.reason or None}
        if event.arguments is not None:
            fields |= {"arguments": cut_text(event.arguments, SHOWN_BYTES_MAX), "is_edited": True}
        return self._change(event.index, **fields)

    def _tool(self, index: int, call: CallItem | None = None) -> Part:
        """Return the card of a call, created here if an earlier run made the call."""
        if index not in self._tools and call is not None:
            self._card(index, call, "ready")
        return self._tools.get(index, {})

    def _change(self, index: int, **fields: Any) -> list[Op]:
        """Change a card's fields; None is skipped for a field that the card does not have."""
        tool = self._tools.get(index)
        if tool is None:
            return []
        fields = {name: value for name, value in fields.items() if value is not None or name in tool}
        if fields.get("state", "") is None:
            del fields["state"]
        tool |= fields
        if "arguments" in fields:
            self._sizes[index, "arguments"] = _units(tool["arguments"])
        return self._put(index, tool if self._mode == "cards" else _line(tool))

    def _break(self, event: RoundBroken) -> list[Op]:
        """Remove all parts of a model call that was cut off and is repeated, including finished ones."""
        ids = sorted(self._round.union(event.indexes))
        self._round.clear()
        for index in ids:
            self._parts.pop(index, None)
            self._tools.pop(index, None)
        return [{"op": "drop", "ids": ids}] if ids else []

    def _close(self) -> list[Op]:
        """Finish the parts that got no end."""
        ops: list[Op] = []
        for index, part in list(self._parts.items()):
            if index in self._tools:
                is_open = self._tools[index]["state"] in _OPEN and self._tools[index]["side"] == "server"
                ops += self._change(index, state="stopped", approval=None) if is_open else []
            elif not part["done"]:
                part["done"] = True
                ops.append({"op": "set", "id": index, "done": True})
        return ops


def merge(ops: list[Op]) -> list[Op]:
    """Join consecutive text operations on the same part."""
    merged: list[Op] = []
    for op in ops:
        last = merged[-1] if merged else None
        if last and op["op"] == last["op"] == "text" and (op["id"], op["field"]) == (last["id"], last["field"]):
            merged[-1] = {**last, "text": last["text"] + op["text"]}
        else:
            merged.append(op)
    return merged


def ending(ended: RunEnded) -> Part:
    """Return the operation that ends a run: its status, and a note if there is something to explain."""
    return {"status": ended.status, "ended_at": ended.ended_at, **note_of(ended.status, ended.stop, ended)}


def note_of(status: str, stop: str | None, ended: Any) -> Part:
    """Return a text that explains how a run ended; empty if it completed normally."""
    limit, error = ended.limit, ended.error
    if status == "failed":
        message = error.message if error is not None else "The run failed."
        return {"note": message, "advice": (error.hint or "") if error is not None else ""}
    if limit:
        return {"note": f"A limit of the run was reached ({limit}).", "advice": ""}
    if status == "cancelled":
        return {"note": "This answer was stopped before it was complete.", "advice": ""}
    if status == "incomplete":
        return {"note": CUT_SHORT.get(stop or "", "The answer is incomplete."), "advice": ""}
    return {"note": "", "advice": ""}


def shown_output(result: ResultItem) -> str:
    """Return a result as readable text; an image or a file is named, never fetched."""
    pieces: list[str] = []
    for part in result.output:
        match part:
            case TextPart() | RefusalPart():
                pieces.append(part.text)
            case ImagePart():
                pieces.append("[picture]")
            case FilePart():
                pieces.append(f"[file {part.filename or ''}]".replace(" ]", "]"))
            case _:
                pieces.append("[something this page cannot show]")
    return "\n".join(pieces)


def _line(tool: Part) -> Part:
    return {
        "kind": "status",
        "text": _LINES[tool["state"]].format(name=tool["name"]),
        "done": tool["state"] not in _OPEN,
    }


def _kind(item: MessageItem | ReasoningItem) -> str:
    return "text" if isinstance(item, MessageItem) else "reasoning"


def _whole(item: MessageItem | ReasoningItem) -> str:
    if isinstance(item, ReasoningItem):
        return "\n\n".join(item.summary or item.text)
    return "".join(part.text for part in item.content if isinstance(part, TextPart | RefusalPart))


def _units(text: str) -> int:
    """Return a text's length in UTF-16 units, as JavaScript counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
