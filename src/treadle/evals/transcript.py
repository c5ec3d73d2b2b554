"""What happened in a scenario, as graders see it: the journal of each of its runs, and views of it.

Everything is read from journal entries, so a stored transcript can be graded again at any time. Pure.
"""

import msgspec

from treadle.core.events import Noted, RunEnded, RunEvent, read_event
from treadle.core.items import CallItem, ResultItem, Side, text_of
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.core.request import Note
from treadle.core.result_envelope import error_in
from treadle.core.tool_definitions import ServerTool, ToolSpec
from treadle.core.usage import Usage, add_usage


class PlayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: its journal entries, and the events published while it ran."""

    entries: tuple[Entry, ...]
    events: tuple[RunEvent, ...] = ()


class MadeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call with its result, if it has one. `codes` are the ways in which the result names its outcome."""

    name: str
    arguments: str
    call_id: str
    side: Side
    output: str | None = None
    codes: tuple[str, ...] = ()


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a scenario in order, the server tools they could use, and those of the client."""

    runs: tuple[PlayedRun, ...] = ()
    tools: tuple[ServerTool, ...] = ()
    client_tools: tuple[ToolSpec, ...] = ()

    @property
    def calls(self) -> list[MadeCall]:
        """Return every call the model made, in order."""
        results = {item.call_id: item for item in self._items() if isinstance(item, ResultItem)}
        return [_made(item, results.get(item.call_id)) for item in self._items() if isinstance(item, CallItem)]

    @property
    def rounds(self) -> int:
        """Return how many model calls were made that could call tools."""
        return sum(run.rounds for run in self.endings)

    @property
    def endings(self) -> list[RunEnded]:
        """Return the end of each run that has one."""
        ends = (end_of(entry) for run in self.runs for entry in run.entries)
        return [end for end in ends if end is not None]

    @property
    def usage(self) -> Usage | None:
        """Return the tokens of all runs together, as far as they are known."""
        total: Usage | None = None
        for end in self.endings:
            total = add_usage(total, end.usage)
        return total

    @property
    def notes(self) -> list[Note]:
        """Return what was repaired, coerced or dropped on the way, in order."""
        return [event.note for run in self.runs for event in run.events if isinstance(event, Noted)]

    @property
    def answer(self) -> str:
        """Return what the model said last, in the last run: what it said to an earlier turn answers nothing later."""
        last = self.runs[-1:]
        texts = [entry.content or "" for run in last for entry in run.entries if _is_said(entry)]
        return texts[-1] if texts else ""

    @property
    def marks(self) -> list[str]:
        """Return what milestones and mines can name, in the order it happened.

        `call:NAME` when a call is made; `call:NAME CODE` and `result:CODE` when it is answered;
        `limit:NAME` and `status:STATUS` when a run ends.
        """
        marks: list[str] = []
        for run in self.runs:
            for entry in run.entries:
                marks += _marks(entry)
        return marks

    def effect_of(self, name: str) -> str:
        """Return the effect class of a tool; one that is not known counts as writing."""
        return next((tool.policy.effect for tool in self.tools if tool.name == name), "write")

    def _items(self) -> list[CallItem | ResultItem]:
        kept = [entry for run in self.runs for entry in run.entries if _is_of_play(entry)]
        items = [item_of_entry(entry) for entry in kept if entry.kind in ("tool_call", "tool_result")]
        return [item for item in items if isinstance(item, CallItem | ResultItem)]


def _is_said(entry: Entry) -> bool:
    return entry.kind == "assistant" and not entry.is_input


def end_of(entry: Entry) -> RunEnded | None:
    """Return the end of a run if the entry is one."""
    if entry.kind != "status" or entry.data is None:
        return None
    event = read_event(bytes(entry.data))
    return event if isinstance(event, RunEnded) else None


def _is_of_play(entry: Entry) -> bool:
    """Return whether an entry was made in the play: by the run itself, or as what the client's own tool gave."""
    return not entry.is_input or entry.kind == "tool_result"


def codes_of(result: ResultItem) -> tuple[str, ...]:
    """Return the result's own code, and the one its text tells the model where that is another."""
    fault = error_in(text_of(result.output))
    return (result.rc,) if fault is None or fault.code == result.rc else (result.rc, fault.code)


def _made(call: CallItem, result: ResultItem | None) -> MadeCall:
    return MadeCall(
        name=call.name,
        arguments=call.arguments,
        call_id=call.call_id,
        side=call.side,
        output=None if result is None else text_of(result.output),
        codes=() if result is None else codes_of(result),
    )


def _marks(entry: Entry) -> list[str]:
    if not _is_of_play(entry) or entry.data is None:
        return []
    match entry.kind:
        case "tool_call":
            return [f"call:{entry.name}"]
        case "tool_result":
            item = item_of_entry(entry)
            assert isinstance(item, ResultItem)
            return [mark for code in codes_of(item) for mark in (f"call:{entry.name} {code}", f"result:{code}")]
        case _:
            end = end_of(entry)
            limits = [f"limit:{end.limit}"] if end is not None and end.limit else []
            return [] if end is None else [*limits, f"status:{end.status}"]
