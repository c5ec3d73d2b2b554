"""What an answer amounts to for a client, so that any protocol can be judged by our own decoder of it."""

import json
from typing import Any

import msgspec

from treadle.core.events import Failed, Finished, ItemDone, ModelEvent
from treadle.core.items import CallItem, MessageItem, ReasoningItem, RefusalPart, text_of
from treadle.core.usage import Usage


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an answer amounts to; calls as (kind, name, arguments)."""

    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    stop: str = ""
    usage: Usage | None = None
    error: str = ""


def function(name: str, arguments: str = "{}") -> tuple[str, str, str]:
    """Return a function call as it is seen."""
    return ("function", name, canonical(arguments))


def canonical(arguments: str) -> str:
    """Return arguments in one spelling, where they are JSON at all."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def seen_of(events: list[ModelEvent]) -> Seen:
    """Fold the events of one model call."""
    last = events[-1]
    if isinstance(last, Failed):
        return Seen(error="failed")
    assert isinstance(last, Finished)
    items = [event.item for event in events if isinstance(event, ItemDone)]
    messages = [item for item in items if isinstance(item, MessageItem)]
    calls = [item for item in items if isinstance(item, CallItem)]
    assert len({call.call_id for call in calls} - {""}) == len(calls)
    return Seen(
        text="\n\n".join(text for item in messages if (text := text_of(item.content))),
        refusal="".join(part.text for item in messages for part in item.content if isinstance(part, RefusalPart)),
        reasoning="".join(
            text for item in items if isinstance(item, ReasoningItem) for text in (*item.summary, *item.text)
        ),
        calls=tuple((call.kind, call.name, _arguments(call)) for call in calls),
        stop=last.stop,
        usage=last.usage,
    )


def _arguments(call: CallItem) -> str:
    return call.arguments if call.kind == "custom" else canonical(call.arguments)


def strays(seen: dict[Any, Seen], wanted: dict[Any, Seen]) -> dict[Any, tuple[Seen, Seen]]:
    """Return what differs from what was wanted, by pair: a diff of all of them shows nothing."""
    return {key: (seen[key], wanted[key]) for key in wanted if seen[key] != wanted[key]}
