"""Checks that the calls and results in a client's history match.

A result without its call is rejected, as providers do. What can be repaired without guessing is repaired and noted.
The shapes that common clients send are listed in docs/http.md.
"""

import logging
from collections.abc import Collection, Sequence

from treadle.core.errors import ProtocolError
from treadle.core.items import AnyItem, CallItem, MessageItem, ResultItem
from treadle.core.json import cut_text
from treadle.core.request import Note, Request
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation_notes import HISTORY

log = logging.getLogger("treadle.runs")

ID_BYTES_SHOWN = 128


def check_results(request: Request, items: Sequence[AnyItem], known: Collection[str]) -> None:
    """Refuse results among a client's items whose call is neither there nor `known` from before.

    Raises: ProtocolError, which names the first one.
    """
    called = {item.call_id for item in items if type(item) is CallItem}
    for item in items:
        if type(item) is not ResultItem or item.call_id in called or item.call_id in known:
            continue
        shown = cut_text(item.call_id, ID_BYTES_SHOWN)
        of_tool = f" of the tool {cut_text(item.name, ID_BYTES_SHOWN)!r}" if item.name else ""
        row = PROTOCOLS.get(request.protocol)
        field = "input" if row is None else row.input_field
        raise ProtocolError(
            f"Invalid {field!r}: there is no call with the id {shown!r}, but a result{of_tool} for it.",
            param=field,
            hint="Send the call with its result, or name the response that made it.",
        )


def note_repairs(items: Sequence[AnyItem]) -> tuple[Note, ...]:
    """Return notes on the repairs that these items need before a model reads them.

    The order of results within a turn has no meaning in any API, so reordering them is noted as harmless.
    """
    open_calls: dict[str, None] = {}
    late: set[str] = set()
    seen: set[str] = set()
    twice = moved = turned = 0
    is_answering = False
    for item in items:
        if type(item) is ResultItem:
            if item.call_id in late:
                moved += 1
                late.discard(item.call_id)
            elif item.call_id in open_calls:
                turned += next(iter(open_calls)) != item.call_id
                del open_calls[item.call_id]
                is_answering = True
            continue
        is_call = type(item) is CallItem
        is_next = type(item) is MessageItem and item.role != "assistant"
        if is_next or (is_answering and (is_call or type(item) is MessageItem)):
            # The turn is over: a result for one of its calls that comes later must be moved.
            late.update(open_calls)
            open_calls.clear()
            is_answering = False
        if type(item) is CallItem:
            twice += item.call_id in seen
            seen.add(item.call_id)
            open_calls[item.call_id] = None
    return tuple(note for note in _notes(twice, moved, turned) if note.count)


def log_pairs(run_id: str, items: Sequence[AnyItem]) -> None:
    """Log the calls and results in a client's input, at level debug."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for item in items:
        if isinstance(item, CallItem | ResultItem):
            event = "input call attached" if type(item) is CallItem else "input result added"
            log.debug(event, extra={"run_id": run_id, "tool_name": item.name, "tool_call_id": item.call_id})


def _notes(twice: int, moved: int, turned: int) -> tuple[Note, ...]:
    return (
        Note(
            code="duplicate_call_id",
            action="repaired",
            message="calls with the id of an earlier one get their own",
            field=HISTORY,
            count=twice,
        ),
        Note(
            code="result_moved",
            action="repaired",
            message="results that came after something else go behind their calls",
            field=HISTORY,
            count=moved,
        ),
        Note(
            code="results_reordered",
            action="kept",
            message="results of one turn go in the order of its calls",
            field=HISTORY,
            count=turned,
        ),
    )
