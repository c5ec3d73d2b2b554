"""What a canonical noun means where it says nothing: the journal leaves defaults out, so they can never change."""

import importlib
import pkgutil

import msgspec

from treadle import core

DEFAULTS: dict[str, object] = {
    "ErrorInfo.status": 500,
    "ErrorInfo.retryable": False,
    "ApprovalRequested.expires_at": 0.0,
    "ApprovalRequested.is_deferred": False,
    "Numbered.seq": 0,
    "Numbered.stands": True,
    "Numbering.number": 0,
    "ReasoningDelta.part": 0,
    "ReasoningDelta.is_summary": False,
    "RefusalDelta.part": 0,
    "RoundStarted.tools": 0,
    "RoundStarted.final": False,
    "RunRecovered.after": 0,
    "RunEnded.stop": "done",
    "RunEnded.rounds": 0,
    "RunEnded.calls": 0,
    "RunEnded.ended_at": 0.0,
    "TextDelta.part": 0,
    "ToolFinished.duration_s": 0.0,
    "ToolFinished.output_bytes": 0,
    "ToolFinished.truncated": False,
    "CountingIds.count": 0,
    "SeededIds.count": 0,
    "CallItem.kind": "function",
    "CallItem.side": "client",
    "CallItem.origin": "model",
    "MessageItem.is_partial": False,
    "ResultItem.is_error": False,
    "ResultItem.kind": "function",
    "ResultItem.rc": "ok",
    "Entry.seq": 0,
    "Entry.is_input": False,
    "Plan.is_closing": False,
    "Plan.is_strict": False,
    "Assent.field": "approval_request_id",
    "Note.count": 1,
    "Request.store": True,
    "Request.background": False,
    "Request.inherits": False,
    "Request.strict_fidelity": False,
    "Request.is_fresh": False,
    "Surface.stream": False,
    "Surface.include_usage": False,
    "Surface.legacy_functions": False,
    "Surface.extended_events": False,
    "Surface.tool_status": False,
    "Surface.is_array": False,
    "Surface.choices": 1,
    "CallContext.round": 0,
    "Offer.source": "client",
    "Outcome.rc": "ok",
    "Outcome.output_bytes": 0,
    "Outcome.truncated": False,
    "Outcome.duration_s": 0.0,
    "ServerTool.source": "python",
    "ToolChoice.mode": "auto",
    "ToolPolicy.effect": "write",
    "ToolPolicy.approval": "by_effect",
    "ToolPolicy.timeout_s": 10.0,
    "ToolPolicy.retries": 0,
    "ToolPolicy.output_bytes_max": 65536,
    "ToolPolicy.parallel": False,
    "ToolPolicy.exec": False,
    "ToolPolicy.egress": False,
    "ToolPolicy.untrusted": False,
    "ToolPolicy.rate_per_min": 0,
    "ToolSpec.kind": "function",
    "Usage.input_tokens": 0,
    "Usage.output_tokens": 0,
    "Usage.cached_tokens": 0,
    "Usage.cache_write_tokens": 0,
    "Usage.reasoning_tokens": 0,
    "Usage.estimated": False,
}
"""Every default that is a number, a truth or a word. All others are None or empty."""


def _structs() -> list[type[msgspec.Struct]]:
    found: list[type[msgspec.Struct]] = []
    for info in pkgutil.iter_modules(core.__path__):
        module = importlib.import_module(f"{core.__name__}.{info.name}")
        for thing in vars(module).values():
            if isinstance(thing, type) and issubclass(thing, msgspec.Struct) and thing.__module__ == module.__name__:
                found.append(thing)
    return found


def test_what_was_left_out_of_a_journal_still_means_the_same():
    """A row written by an earlier release is read with today's defaults."""
    defaults = {
        f"{cls.__name__}.{field.name}": field.default for cls in _structs() for field in msgspec.structs.fields(cls)
    }
    told = {
        name: value for name, value in defaults.items() if isinstance(value, (bool, int, float, str)) and value != ""
    }
    assert told == DEFAULTS
    assert {name for name, value in told.items() if type(value) is not type(DEFAULTS[name])} == set()


def test_nothing_that_a_noun_leaves_out_is_written():
    """A noun that the journal keeps says only what differs from its defaults, and reads back as it was."""
    for cls in _structs():
        needed = {field.name: _some(field.type) for field in msgspec.structs.fields(cls) if field.required}
        if cls.__struct_config__.omit_defaults and None not in needed.values():
            noun = cls(**needed)
            written = msgspec.json.decode(msgspec.json.encode(noun))
            written.pop(cls.__struct_config__.tag_field, None)
            assert written == needed, cls.__name__


def _some(kind: object) -> object:
    """Return a value of a simple type, or None."""
    return {str: "x", int: 3, float: 1.5, bool: True}.get(kind) if isinstance(kind, type) else None
