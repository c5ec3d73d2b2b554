"""Builds journals by hand, so that graders can be tested on what no real run would write."""

from typing import Any

import msgspec

from treadle.core.events import RunEnded, RunEvent
from treadle.core.items import AnyItem, CallItem, text_message, text_result
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.json import write_json
from treadle.core.tool_definitions import Effect, ServerTool, ToolPolicy, ToolSpec
from treadle.evals.transcript import PlayedRun, Transcript

PLAN = Entry(kind="plan", at=0.0, data=msgspec.Raw(b'{"round":1,"fingerprint":"f"}'))


def call(name: str, call_id: str, /, *, raw: str | None = None, **arguments: Any) -> CallItem:
    """Return a server call with these arguments, or with this text as arguments."""
    text = write_json(arguments).decode() if raw is None else raw
    return CallItem(call_id=call_id, name=name, arguments=text, side="server")


def said(text: str) -> AnyItem:
    """Return something the model said."""
    return text_message("assistant", text)


def ended(**values: Any) -> RunEnded:
    """Return the end of a run."""
    return RunEnded(**{"status": "completed", "rounds": 1, **values})


def play(*steps: AnyItem | Entry | RunEnded, events: tuple[RunEvent, ...] = ()) -> PlayedRun:
    """Return a run of these steps, numbered."""
    entries = [PLAN, *(_entry(step) for step in steps)]
    numbered = (msgspec.structs.replace(entry, seq=number) for number, entry in enumerate(entries, 1))
    return PlayedRun(entries=tuple(numbered), events=events)


def transcript(*steps: AnyItem | Entry | RunEnded, tools: tuple[ServerTool, ...] = ()) -> Transcript:
    """Return a transcript of one run of these steps and a good end."""
    return Transcript(runs=(play(*steps, ended()),), tools=tools)


def answered(made: CallItem, text: str = "ok", rc: str = "ok") -> tuple[AnyItem, AnyItem]:
    """Return a call and its result."""
    return made, text_result(made, text, is_error=rc != "ok", rc=rc)


def tool(name: str, *, effect: Effect = "write", schema: bytes = b'{"type":"object"}') -> ServerTool:
    """Return a tool of that effect class and schema."""
    return ServerTool(spec=ToolSpec(name=name, parameters=msgspec.Raw(schema)), policy=ToolPolicy(effect=effect))


def _entry(step: AnyItem | Entry | RunEnded) -> Entry:
    if isinstance(step, Entry):
        return step
    if isinstance(step, RunEnded):
        return Entry(kind="status", at=0.0, data=msgspec.Raw(msgspec.json.encode(step)))
    return entry_of_item(step, at=0.0)
