"""Writes the answer of a run that a limit ended before the model gave one: the limit, and the calls made so far.

Pure: it returns model events. The loop feeds them after the model's own, so they are journalled and replayed alike.
"""

from collections.abc import Sequence

from treadle.core.errors import ErrorInfo, NoAnswer
from treadle.core.events import ItemAdded, ItemDone, ModelEvent, Noted, RefusalDelta, RunEvent, TextDelta
from treadle.core.items import AnyItem, CallItem, MessageItem, RefusalPart, ResultItem, TextPart, text_of
from treadle.core.request import Note

LIMIT_ANSWER = "limit_answer"
CALLS_SHOWN = 10
ARGUMENTS_CHARS_SHOWN = 120
RESULT_CHARS_SHOWN = 300

_NOTE = Note(
    code=LIMIT_ANSWER, action="emulated", message="the model gave no answer at the limit; this one is Treadle's"
)


def limit_answer(reason: str, items: Sequence[AnyItem]) -> str:
    """Return the text of an answer: the limit, and the calls in these items with their results."""
    names = {item.call_id: item for item in items if type(item) is CallItem}
    results = [item for item in items if type(item) is ResultItem]
    if not results:
        return f"{reason} No tool had been called."
    count = f"{len(results)} tool calls were" if len(results) > 1 else "One tool call was"
    lines = [f"{reason} The model gave no final answer. {count} answered before that:"]
    left = len(results) - CALLS_SHOWN
    if left > 0:
        lines.append(f"- {left} earlier, not shown here")
    lines += [_line(names.get(result.call_id), result) for result in results[-CALLS_SHOWN:]]
    return "\n".join(lines)


def no_answer(reason: str, items: Sequence[AnyItem]) -> ErrorInfo:
    """Return the error of a run that a limit ended before its answer, when that must be JSON.

    The client could not parse a text answer, and a JSON answer would be invented.
    """
    results = sum(type(item) is ResultItem for item in items)
    done = "No tool had been called." if not results else f"Tool calls answered before that: {results}."
    return NoAnswer(
        f"{reason} The model gave no final answer in the form that was asked for. {done}",
        hint="raise the limit, or ask without a form for the answer: then it says what was done so far",
    ).info


def has_text(events: Sequence[RunEvent], done: Sequence[AnyItem]) -> bool:
    """Return whether a model call produced any text for a person."""
    return any(type(event) in (TextDelta, RefusalDelta) and _text_of(event).strip() for event in events) or any(
        type(item) is MessageItem and _content_of(item).strip() for item in done
    )


def closing_message(text: str, index: int, item_id: str) -> list[ModelEvent]:
    """Return the model events of a message written by Treadle."""
    started = MessageItem(id=item_id, role="assistant")
    done = MessageItem(id=item_id, role="assistant", content=(TextPart(text=text),))
    return [
        Noted(note=_NOTE),
        ItemAdded(index=index, item=started),
        TextDelta(index=index, text=text),
        ItemDone(index=index, item=done),
    ]


def closing_line(text: str, index: int, part: int) -> list[ModelEvent]:
    """Return the model events of a paragraph appended to a message that was cut off."""
    return [Noted(note=_NOTE), TextDelta(index=index, text=f"\n\n{text}", part=part)]


def _line(call: CallItem | None, result: ResultItem) -> str:
    arguments = "" if call is None else _cut(call.arguments, ARGUMENTS_CHARS_SHOWN)
    outcome = _cut(text_of(result.output), RESULT_CHARS_SHOWN)
    failed = "failed: " if result.is_error else ""
    return f"- {result.name}({arguments}): {failed}{outcome}"


def _cut(text: str, chars_max: int) -> str:
    """Return the start of a text on one line."""
    # Sliced before splitting: results may be megabytes.
    line = " ".join(text[: 4 * chars_max].split())
    return line if len(line) <= chars_max and len(text) <= 4 * chars_max else f"{line[:chars_max].rstrip()}…"


def _text_of(event: RunEvent) -> str:
    assert isinstance(event, TextDelta | RefusalDelta)
    return event.text


def _content_of(item: MessageItem) -> str:
    return "".join(part.text for part in item.content if isinstance(part, TextPart | RefusalPart))
