"""A run as a tree: what each round and each call came to, of runs that ended, go on, broke, or cannot be read."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import tool
from treadle.config import Settings, StoreSection
from treadle.core.events import RunEnded
from treadle.core.items import CallItem, ResultItem, TextPart, text_message
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.core.tool_definitions import Envelope, Fault
from treadle.core.usage import Usage
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.runs.views.trace_tree import TEXT_CHARS_MAX, Trace, trace_of
from treadle.runtime import Parts, RandomIds, Runtime

CALL = CallItem(id="fc_1", call_id="c1", name="delete", arguments='{"path":"a"}', side="server")


@tool(effect="read")
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@tool(effect="read")
def break_it() -> int:
    """Break."""
    raise ValueError("broken")


def free(model: str, usage: Usage | None) -> float | None:
    """Price a token at a dollar."""
    return None if usage is None else float(usage.total_tokens)


def raw(**fields: Any) -> msgspec.Raw:
    """Return the data of an entry."""
    return msgspec.Raw(msgspec.json.encode(fields))


def planned(at: float, items: int = 1, sha256: str = "a") -> Entry:
    """The plan of a round."""
    data = raw(round=1, fingerprint="f1", items=items, tools=1, tools_sha256=sha256)
    return Entry(kind="plan", name="m", data=data, at=at)


def replied(at: float, **fields: Any) -> Entry:
    """The end of a model call."""
    return Entry(kind="reply", data=raw(ending="finished", stop="calls", **fields), at=at)


async def traced(folder: Path, *turns: ScriptTurn) -> Trace:
    """Play a run and return its tree."""
    model = ScriptedModel(Script(turns=turns), ids=RandomIds())
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/t.db"), default_model="script")
    async with Runtime(settings, tools=[double, break_it], model=model, parts=Parts(env={})) as runtime:
        async for _ in runtime.run("Do it."):
            pass
        [row] = await runtime.store.list_runs()
        return trace_of(await runtime.store.entries(row.id), free)


async def test_a_run_is_a_tree_of_rounds_and_calls(tmp_path: Path) -> None:
    """Each round with its plan and what it adds, each call with its result; tokens and cost are summed upward."""
    calls = (ReplyCall(name="double", args={"number": 2}), ReplyCall(name="break_it"))
    usage = Usage(input_tokens=10, output_tokens=5)
    trace = await traced(
        tmp_path, ScriptTurn(text="Let me see.", calls=calls, usage=usage), ScriptTurn(text="Four.", usage=usage)
    )
    assert trace.question == "Do it."
    first, second = trace.rounds
    assert [(each.number, each.state, each.text, each.stop) for each in trace.rounds] == [
        (1, "finished", "Let me see.", "calls"),
        (2, "finished", "Four.", "done"),
    ]
    assert [(call.name, call.state, call.rc, call.source) for call in first.calls] == [
        ("double", "done", "ok", "python"),
        ("break_it", "failed", "failed", "python"),
    ]
    assert first.calls[0].output == "4"
    assert first.calls[0].arguments == '{"number":2}'
    assert first.calls[0].duration_s is not None
    assert second.items_added == second.items - first.items == 5
    assert (second.is_tools_changed, second.calls) == (False, ())
    assert first.fingerprint != second.fingerprint
    assert (trace.usage, trace.cost_usd, trace.errors) == (Usage(input_tokens=20, output_tokens=10), 30.0, 1)


async def test_a_model_call_that_failed_says_with_what(tmp_path: Path) -> None:
    """The error is in its round, and counts."""
    trace = await traced(tmp_path, ScriptTurn(faults=Faults(status=400, message="no", code="unwell")))
    [only] = trace.rounds
    assert (only.state, only.error is not None and only.error.code) == ("failed", "unwell")
    assert (trace.errors, trace.cost_usd, trace.usage) == (1, None, None)


def test_a_run_that_goes_on_shows_what_is_under_way() -> None:
    """A round without a reply is going; a call is open, waits for a person, or runs."""
    asked = Entry(kind="approval_request", call_id="c1", data=raw(approval_id="ap_1", reasons=["why"]), at=3.0)
    decided = Entry(
        kind="approval_decision", call_id="c1", data=raw(approval_id="ap_1", status="approved", by="Ada"), at=5.0
    )
    start = Entry(kind="tool_start", call_id="c1", data=raw(source="local", effect="write"), at=6.0)
    entries = [planned(1.0), entry_of_item(CALL, at=2.0), asked, decided, start]
    states = [trace_of(entries[:size], free).rounds[0] for size in range(1, 6)]
    assert [each.state for each in states] == ["going"] * 5
    assert [[call.state for call in each.calls] for each in states] == [
        [],
        ["open"],
        ["waiting"],
        ["open"],
        ["running"],
    ]
    approval = states[-1].calls[0].approval
    assert approval is not None
    assert (approval.status, approval.by, approval.asked_at, approval.decided_at) == ("approved", "Ada", 3.0, 5.0)


@pytest.mark.parametrize(("rc", "state"), [("denied", "denied"), ("expired", "expired"), ("timeout", "failed")])
def test_a_refused_call_is_told_from_a_failed_one(rc: str, state: str) -> None:
    """Nobody's time-out is a person's refusal."""
    result = ResultItem(call_id="c1", name="delete", output=(TextPart(text="no"),), is_error=True, rc=rc)
    ended = entry_of_item(result, at=4.0, extra={"sandbox": "L2", "bytes": 2, "duration_s": 0.5})
    trace = trace_of([planned(1.0), entry_of_item(CALL, at=2.0), ended], free)
    [call] = trace.rounds[0].calls
    assert (call.state, call.sandbox, call.duration_s, trace.errors) == (state, "L2", 0.5, 1)
    assert call.envelope == Envelope(ok=False, errors=(Fault(code=rc, message="no"),))


def test_a_model_call_that_was_made_again_counts_once() -> None:
    """The one that was cut off stays in the tree, and the numbers of the others are as if it had never been."""
    void = Entry(kind="void", data=raw(round=1, calls=["c1"]), at=3.0)
    entries = [planned(1.0), entry_of_item(CALL, at=2.0), void, planned(4.0), replied(5.0), planned(6.0, 3, "b")]
    trace = trace_of(entries, free)
    assert [(each.number, each.state) for each in trace.rounds] == [(1, "void"), (1, "finished"), (2, "going")]
    assert trace.rounds[2].is_tools_changed


def test_a_call_of_an_earlier_run_is_shown_where_it_is_carried_on() -> None:
    """It was decided before this run asked its model anything."""
    data = raw(approval_id="ap_1", status="approved", call=msgspec.to_builtins(CALL))
    result = ResultItem(call_id="c1", name="delete", output=(TextPart(text="gone"),))
    entries = [
        Entry(kind="approval_decision", call_id="c1", name="delete", data=data, at=1.0),
        entry_of_item(result, at=2.0),
        planned(3.0),
    ]
    trace = trace_of(entries, free)
    assert [(each.number, [call.state for call in each.calls]) for each in trace.rounds] == [(0, ["done"]), (1, [])]
    assert trace.rounds[0].calls[0].arguments == CALL.arguments


@pytest.mark.parametrize("data", [b"[]", b"\xff", b'{"round":"x"}', b"", b'{"item":{"type":"result"}}'])
@pytest.mark.parametrize("kind", ["plan", "reply", "tool_call", "tool_result", "note", "approval_request", "void"])
def test_an_entry_that_cannot_be_read_is_noted_and_the_rest_shown(kind: Any, data: bytes) -> None:
    """A journal of another version, or a damaged one, is no reason to show nothing."""
    odd = Entry(kind=kind, seq=7, data=msgspec.Raw(data), call_id="c9", at=2.0)
    said = entry_of_item(text_message("assistant", "Still here."), at=3.0)
    trace = trace_of([planned(1.0), odd, said], free)
    assert trace.rounds[-1].text == "Still here."


def test_a_long_text_is_cut_and_said_to_be() -> None:
    """What a page cannot show is in the journal."""
    result = ResultItem(call_id="c1", name="delete", output=(TextPart(text="x" * (TEXT_CHARS_MAX + 9)),))
    trace = trace_of([planned(1.0), entry_of_item(CALL, at=2.0), entry_of_item(result, at=3.0)], free)
    [call] = trace.rounds[0].calls
    assert (len(call.output or ""), call.is_cut, call.output_bytes) == (TEXT_CHARS_MAX, True, TEXT_CHARS_MAX + 9)
    assert call.envelope is not None
    assert len(msgspec.json.decode(call.envelope.data, type=str)) == TEXT_CHARS_MAX


def test_what_was_noted_before_the_first_round_belongs_to_the_run() -> None:
    """Later notes belong to their round; ends of runs add nothing."""
    note = Entry(kind="note", data=raw(code="x", action="dropped", message="m"), at=1.0)
    end = Entry(kind="status", data=msgspec.Raw(msgspec.json.encode(RunEnded(status="completed"))), at=9.0)
    trace = trace_of([note, planned(2.0), note, end], free)
    assert ([each.code for each in trace.notes], [each.code for each in trace.rounds[0].notes]) == (["x"], ["x"])
