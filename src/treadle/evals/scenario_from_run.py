"""Converts a stored conversation to a scenario: the model's replies become the script, the results canned tools.

The scenario plays offline and expects what happened: the calls, their outcomes, the answer and the end. Client tools
are played as server tools, so a conversation over several requests becomes one turn for each question.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from treadle.core.events import Stop, TextDelta
from treadle.core.items import (
    AnyItem,
    CallItem,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    text_message,
    text_of,
)
from treadle.core.json import BadJson, read_json
from treadle.core.result_envelope import error_in
from treadle.core.tool_definitions import Offer
from treadle.evals.scenario_file import CannedResult
from treadle.evals.toml_writer import write_toml, write_value
from treadle.protocols.protocol_registry import CHAT
from treadle.providers.fakes.reply_rendering import write_frames
from treadle.providers.fakes.scripted_reply import Reply
from treadle.runs.views.recorded_rounds import ModelCall, StoredRun

NO_QUESTION = "(nothing was asked)"
NO_ANSWER = "(the recorded conversation goes on without an answer)"
TITLE_CHARS_MAX = 100
_DEFAULT_ROUNDS = 8
_DEFAULT_CALLS = 32
_OWN_CODES = frozenset({"invalid_arguments", "unknown_tool", "limit_reached"})
"""Results that Treadle itself gives before a tool runs, and will give again."""
_FINISHES = frozenset({"length", "filtered", "stop_sequence"})
_ODD = re.compile(r"[^a-z0-9_]+")


class RecordedSpeech(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the model: what it holds and, where it did not end by itself, what cut it."""

    items: tuple[AnyItem, ...]
    stop: Stop | None = None
    call: ModelCall | None = None

    @property
    def calls(self) -> list[CallItem]:
        """Return its calls."""
        return [item for item in self.items if isinstance(item, CallItem)]

    @property
    def is_cut(self) -> bool:
        """Return whether the reply was cut off."""
        return self.call is not None and self.call.ending != "finished"

    @property
    def continues(self) -> bool:
        """Return whether the run calls the model again after this reply: it has calls, and they are run."""
        return bool(self.calls) and not self.is_cut and self.stop not in ("length", "filtered")


Happening = str | RecordedSpeech | ResultItem
"""A user message, a reply of the model, or a result."""


def scenario_of(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Return the runs of one conversation, oldest first, as the document of a scenario."""
    happened = _completed(_joined([each for run in runs for each in _happenings(run)]))
    last = runs[-1].row
    questions = [each for each in happened if isinstance(each, str)]
    title = " ".join(questions[-1].split())[:TITLE_CHARS_MAX]
    script = list(_script(happened))
    return {
        "id": f"recorded.{_ODD.sub('_', last.id.lower()).strip('_')}",
        "title": f"As recorded: {title}",
        "tags": ["recorded"],
        "protocols": [CHAT] if any(map(_is_of_chat, script)) else [],
        "limits": _limits(runs),
        "turn": [{"user": question} for question in questions],
        "tool": list(_tools(runs, happened)),
        "script": script,
        "expect": _expectations(runs, happened),
    }


def _is_of_chat(turn: dict[str, Any]) -> bool:
    """Return whether a turn is only the same where it is spelled as here: cut after so many bytes, or refused."""
    return "refusal" in turn or "disconnect_after" in turn.get("faults", {})


def write_scenario(document: dict[str, Any]) -> str:
    """Write the document of a scenario as TOML."""
    return write_toml({name: value for name, value in document.items() if value})


def _happenings(run: StoredRun) -> Iterator[Happening]:
    """List a run's events in order: its input first, which may contain earlier turns, then its model calls."""
    replied: list[AnyItem] = []
    for item in run.added:
        match item:
            case MessageItem() if item.role in ("system", "developer"):
                continue
            case MessageItem() if item.role == "user":
                yield from _flush(replied)
                yield text_of(item.content) or NO_QUESTION
            case ResultItem():
                yield from _flush(replied)
                yield item
            case _:
                replied.append(item)
    yield from _flush(replied)
    for call in run.calls:
        yield RecordedSpeech(items=call.items or _partial(call), stop=call.reply.stop, call=call)
        yield from call.results


def _flush(replied: list[AnyItem]) -> Iterator[RecordedSpeech]:
    if replied:
        yield RecordedSpeech(items=tuple(replied))
        replied.clear()


def _partial(call: ModelCall) -> tuple[AnyItem, ...]:
    """Return the received text of a reply that was cut off before any message was complete."""
    text = "".join(event.text for event in call.events if isinstance(event, TextDelta))
    return (text_message("assistant", text),) if text else ()


def _joined(happened: Sequence[Happening]) -> list[Happening]:
    """Start with a question, and join consecutive questions without an answer in between."""
    joined: list[Happening] = []
    for each in happened if happened and isinstance(happened[0], str) else [NO_QUESTION, *happened]:
        if isinstance(each, str) and joined and isinstance(joined[-1], str):
            joined[-1] = f"{joined[-1]}\n\n{each}"
        else:
            joined.append(each)
    return joined


def _completed(happened: Sequence[Happening]) -> list[Happening]:
    """Let every reply that calls tools be followed by another: the runtime always asks again."""
    completed: list[Happening] = []
    waits = False
    for each in happened:
        if isinstance(each, str) and waits:
            completed.append(RecordedSpeech(items=(text_message("assistant", NO_ANSWER),)))
        completed.append(each)
        if not isinstance(each, ResultItem):
            waits = isinstance(each, str) or each.continues
    if waits:
        completed.append(RecordedSpeech(items=(text_message("assistant", NO_ANSWER),)))
    return completed


def _script(happened: Sequence[Happening]) -> Iterator[dict[str, Any]]:
    """Return every reply, each with the last input that the model must have received."""
    sees: dict[str, Any] = {}
    for each in happened:
        match each:
            case str():
                sees = {"last_role": "user"}
            case ResultItem():
                sees = {"last_role": "tool", "result_code": each.rc}
            case RecordedSpeech():
                yield _turn(each, sees)
                sees = {"last_role": "tool"}


def _turn(said: RecordedSpeech, sees: dict[str, Any]) -> dict[str, Any]:
    messages = [item for item in said.items if isinstance(item, MessageItem)]
    reasoning = [text for item in said.items if isinstance(item, ReasoningItem) for text in item.text or item.summary]
    refusals = [part.text for item in messages for part in item.content if isinstance(part, RefusalPart)]
    turn: dict[str, Any] = {
        "sees": sees,
        "reasoning": "\n\n".join(reasoning),
        "text": "".join(text_of(item.content) for item in messages),
        "refusal": "".join(refusals),
        "calls": [{"name": call.name, "raw": call.arguments} for call in said.calls],
        "finish": said.stop if said.stop in _FINISHES else None,
        "faults": _faults(said),
    }
    return {name: value for name, value in turn.items() if value}


def _faults(said: RecordedSpeech) -> dict[str, Any]:
    """Break a reply that broke: refused if nothing had come, else cut before its end."""
    if not said.is_cut or said.call is None:
        return {}
    error = said.call.error
    text = "".join(text_of(item.content) for item in said.items if isinstance(item, MessageItem))
    if error is not None and not text and not said.calls:
        return {"status": max(400, error.status), "message": error.message, "code": error.code}
    frames = write_frames(Reply(text=text), model="script")
    whole = next((n for n, frame in enumerate(frames) if b'"finish_reason":"' in frame), len(frames))
    return {"disconnect_after": sum(map(len, frames[:whole]))}


def _tools(runs: Sequence[StoredRun], happened: Sequence[Happening]) -> Iterator[dict[str, Any]]:
    """Return every offered tool with its results; a tool that was not offered stays unknown."""
    offers: dict[str, Offer] = {}
    for run in runs:
        offers.update(run.offers)
    given = _given(happened, offers)
    for name in dict.fromkeys([*offers, *given]):
        offer = offers.get(name)
        tool: dict[str, Any] = {"name": name}
        if offer is not None:
            tool["description"] = offer.spec.description
            if offer.side == "server":
                tool["parameters"] = bytes(offer.spec.parameters).decode()
                tool["effect"] = offer.policy.effect if offer.policy is not None else "write"
        tool["results"] = given.get(name, [])
        yield {key: value for key, value in tool.items() if value}


def _given(happened: Sequence[Happening], offers: dict[str, Offer]) -> dict[str, list[dict[str, Any]]]:
    """Return the results of each tool in the order of its calls."""
    results = {each.call_id: each for each in happened if isinstance(each, ResultItem)}
    given: dict[str, list[dict[str, Any]]] = {}
    for each in happened:
        if not isinstance(each, RecordedSpeech) or not each.continues:
            continue
        for call in each.calls:
            result = results.get(call.call_id)
            is_own = result is not None and result.rc in _OWN_CODES and call.side == "server"
            if is_own or (call.name not in offers and call.side == "server"):
                continue
            given.setdefault(call.name, []).append(_canned(result))
    return given


def _canned(result: ResultItem | None) -> dict[str, Any]:
    if result is None:
        return {"error": "No result was recorded.", "code": "interrupted"}
    text = text_of(result.output)
    if not result.is_error:
        return {"output": text}
    if (fault := error_in(text)) is None:
        return {"error": text, "code": CannedResult().code}
    return {"error": fault.message, "code": fault.code}


def _limits(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Return limits under which the conversation goes as it went: reached where they were, and nowhere else."""
    limits: dict[str, Any] = {}
    for key, default, used in (
        ("max_iterations", _DEFAULT_ROUNDS, [run.row.rounds for run in runs]),
        ("max_total_tool_calls", _DEFAULT_CALLS, [run.row.calls for run in runs]),
    ):
        if runs[-1].row.limit == key:
            limits[key] = max(1, used[-1])
        elif sum(used) >= default:
            limits[key] = sum(used) + 1
    return limits


def _expectations(runs: Sequence[StoredRun], happened: Sequence[Happening]) -> list[dict[str, Any]]:
    calls = [call for each in happened if isinstance(each, RecordedSpeech) for call in each.calls]
    marks = [f"call:{each.name} {each.rc}" for each in happened if isinstance(each, ResultItem) and each.name]
    told = [each for each in happened if isinstance(each, RecordedSpeech)]
    answer = "".join(text_of(item.content) for item in told[-1].items if isinstance(item, MessageItem))
    row = runs[-1].row
    expected: dict[str, Any] = {"calls_max": len(calls)}
    if calls and (written := _expected_calls(calls)) is not None:
        expected["calls"] = written
    if not calls:
        expected["no_calls"] = True
    if marks:
        expected["milestones"] = marks
    if answer.strip():
        expected["text"] = {"contains": [answer]}
    status = "completed" if row.status == "requires_action" else row.status
    if status in ("completed", "incomplete", "failed") and not _is_expired(told[-1]):
        expected["ended"] = {"status": status, **({"limit": row.limit} if row.limit else {})}
    return [{name: value} for name, value in expected.items()]


def _is_expired(said: RecordedSpeech) -> bool:
    return said.call is not None and said.call.ending in ("expired", "aborted", "interrupted")


def _expected_calls(calls: Sequence[CallItem]) -> list[dict[str, Any]] | None:
    """Return the calls as expectations; None where one has arguments that TOML cannot say."""
    expected: list[dict[str, Any]] = []
    for call in calls:
        try:
            args: Any = read_json(call.arguments) if call.arguments.strip() else {}
            write_value(args)
        except (BadJson, ValueError):
            return None
        if not isinstance(args, dict):
            return None
        expected.append({"name": call.name, **({"args": args} if args else {})})
    return expected
