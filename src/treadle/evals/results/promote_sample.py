"""Turns a sample of a run into an offline scenario: the model's replies become the script, the outcome is expected.

World, tools and limits stay those of the scenario, so the tools give the same results. The title names what the sample
failed; the promoted scenario pins how Treadle handled it. Does no I/O.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from treadle.core.errors import RequestError
from treadle.core.items import CallItem, MessageItem, ReasoningItem, ResultItem, text_of
from treadle.core.journal_entries import ITEM_KINDS, Entry, item_of_entry
from treadle.core.json import BadJson, read_json
from treadle.evals.graders import GraderEvidence
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.scenario_file import LIVE_TAG, Scenario
from treadle.evals.toml_writer import write_toml, write_value
from treadle.evals.transcript import PlayedRun

_ODD = re.compile(r"[^a-z0-9_]+")
_KEPT = ("tools", "tool", "client_tool", "distractors", "instructions", "limits", "world", "turn", "repair")


def promote(row: SampleRow, scenario: Scenario, evidence: GraderEvidence) -> str:
    """Write the scenario as TOML.

    Raises: RequestError, when the sample broke before the model had said anything.
    """
    script = [turn for run in evidence.transcript.runs for turn in _script(run)]
    if not script:
        raise RequestError(f"{row.key} has nothing that the model said", param="sample")
    told = " ".join(row.reason.split())[:160]
    plain = msgspec.to_builtins(scenario)
    default = msgspec.to_builtins(Scenario(id="a.b", title="t", turn=(), script=(), expect=()))
    document: dict[str, Any] = {
        "id": f"promoted.{_ODD.sub('_', row.key.lower()).strip('_')}",
        "title": f"{scenario.title} (as {row.model} did it{f': {told}' if told else ''})",
        "tags": ["promoted", *(tag for tag in scenario.tags if tag != LIVE_TAG)],
        **{name: _changed(plain[name], default[name]) for name in _KEPT if plain[name] != default[name]},
        "script": script,
        "expect": list(_expectations(evidence)),
    }
    return write_toml(document)


def _changed(value: Any, default: Any) -> Any:
    """Leave out what is as it is by default: TOML has no word for null, and nobody wants to read it."""
    if isinstance(value, dict):
        usual = cast("dict[str, Any]", default)
        pairs = cast("dict[str, Any]", value).items()
        return {name: each for name, each in pairs if name not in usual or each != usual[name]}
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in cast("list[Any]", value)]
    return value


def _without_nulls(value: Any) -> Any:
    """Leave out what is null or empty, however deep."""
    if isinstance(value, list | tuple):
        return [_without_nulls(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    pairs = cast("dict[str, Any]", value).items()
    return {name: _without_nulls(each) for name, each in pairs if each is not None and each not in ([], ())}


def _script(run: PlayedRun) -> Iterator[dict[str, Any]]:
    """Return what the model said in each of its calls: a plan begins one, a result ends it."""
    said: list[Entry] | None = None
    for entry in run.entries:
        if entry.kind == "plan":
            if said is not None:
                yield _turn(said)
            said = []
        elif said is not None and entry.kind in ITEM_KINDS and entry.kind != "tool_result" and not entry.is_input:
            said.append(entry)
    if said is not None:
        yield _turn(said)


def _turn(said: Sequence[Entry]) -> dict[str, Any]:
    items = [item_of_entry(entry) for entry in said]
    thoughts = [text for item in items if isinstance(item, ReasoningItem) for text in item.text or item.summary]
    turn: dict[str, Any] = {
        "reasoning": "\n\n".join(thoughts),
        "text": "".join(text_of(item.content) for item in items if isinstance(item, MessageItem)),
        "calls": [{"name": item.name, "raw": item.arguments} for item in items if isinstance(item, CallItem)],
    }
    return {name: value for name, value in turn.items() if value}


def _expectations(evidence: GraderEvidence) -> Iterator[dict[str, Any]]:
    transcript = evidence.transcript
    yield {"calls_max": len(transcript.calls)}
    written = [_call(call.name, call.arguments) for call in transcript.calls]
    if written and None not in written:
        yield {"calls": written}
    answered = [entry for run in transcript.runs for entry in run.entries if entry.kind == "tool_result"]
    results = [item_of_entry(entry) for entry in answered]
    if marks := [f"call:{item.name} {item.rc}" for item in results if isinstance(item, ResultItem) and item.name]:
        yield {"milestones": marks}
    if ends := transcript.endings:
        limit = {"limit": ends[-1].limit} if ends[-1].limit else {}
        if ends[-1].status in ("completed", "incomplete"):
            yield {"ended": {"status": ends[-1].status, **limit}}


def _call(name: str, arguments: str) -> dict[str, Any] | None:
    try:
        args: Any = read_json(arguments or "{}")
        write_value(args)
    except (BadJson, ValueError):
        return None
    return {"name": name, "args": args} if isinstance(args, dict) else None
