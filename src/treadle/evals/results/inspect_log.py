"""Exports a run as Inspect logs, one for each model, in the JSON form of its log format (version 2). Does no I/O.

A verdict becomes the score of its grader, `C` or `I`; a sample that could not be graded has an error and no score.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from treadle.core.items import AnyItem, CallItem, MessageItem, ResultItem, text_of
from treadle.core.journal_entries import ITEM_KINDS, item_of_entry
from treadle.core.json import BadJson, read_json, write_json
from treadle.evals.graders import GraderEvidence
from treadle.evals.results.html_report import Find
from treadle.evals.results.result_folder import EvalRunInfo
from treadle.evals.results.sample_rows import SampleRow, by
from treadle.evals.results.terminal_table import ArmSummary, summarise

VERSION = 2
SCORER = "treadle"


def write_logs(info: EvalRunInfo, rows: Sequence[SampleRow], find: Find) -> dict[str, bytes]:
    """Return a log for each model and strategy, by its name."""
    summaries = {each.arm: each for each in summarise(rows)}
    return {
        arm: write_json(_log(info, group, summaries[arm], find)) + b"\n"
        for arm, group in by(rows, lambda row: row.arm).items()
    }


def _log(info: EvalRunInfo, rows: Sequence[SampleRow], summary: ArmSummary, find: Find) -> dict[str, Any]:
    created = datetime.fromtimestamp(info.started_at, UTC).isoformat()
    model = f"treadle/{summary.model}"
    names = list(dict.fromkeys(row.scenario for row in rows))
    usage = {
        "input_tokens": sum(row.input_tokens for row in rows),
        "output_tokens": sum(row.output_tokens for row in rows),
    }
    usage["total_tokens"] = usage["input_tokens"] + usage["output_tokens"]
    return {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": f"{info.name}-{summary.arm}",
            "run_id": info.name,
            "task_id": f"{info.name}-{summary.arm}",
            "created": created,
            "task": "treadle_eval",
            "task_version": info.grader_version,
            "dataset": {"name": "scenarios", "samples": len(names), "sample_ids": names, "shuffled": False},
            "model": model,
            "config": {"epochs": max(row.trial for row in rows)},
            "packages": {"treadle": info.fingerprints.get("treadle", "")},
            "metadata": {"strategy": summary.strategy, "fingerprints": info.fingerprints, **info.sampling},
            "scorers": [{"name": SCORER}],
        },
        "plan": {"name": "plan", "steps": [{"solver": "treadle_gateway", "params": {}}], "config": {}},
        "results": _results(rows, summary),
        "stats": {"started_at": created, "completed_at": created, "model_usage": {model: usage}},
        "samples": [_sample(row, model, find(row.key)) for row in rows],
    }


def _results(rows: Sequence[SampleRow], summary: ArmSummary) -> dict[str, Any]:
    values: dict[str, float | None] = {
        "accuracy": summary.rate,
        "wilson_low": summary.wilson[0],
        "wilson_high": summary.wilson[1],
        "scenario_mean": summary.mean,
    }
    return {
        "total_samples": len(rows),
        "completed_samples": summary.judged,
        "scores": [
            {
                "name": SCORER,
                "scorer": SCORER,
                "scored_samples": summary.judged,
                "unscored_samples": summary.broken,
                "metrics": {name: {"name": name, "value": each} for name, each in values.items() if each is not None},
            }
        ],
    }


def _sample(row: SampleRow, model: str, evidence: GraderEvidence | None) -> dict[str, Any]:
    messages = [] if evidence is None else list(_messages(evidence))
    answer = "" if evidence is None else evidence.transcript.answer
    sample: dict[str, Any] = {
        "id": row.scenario,
        "epoch": row.trial,
        "input": next((str(each["content"]) for each in messages if each["role"] == "user"), ""),
        "target": "",
        "messages": messages,
        "output": {
            "model": model,
            "choices": [{"message": {"role": "assistant", "content": answer}, "stop_reason": "stop"}],
        },
        "metadata": {"key": row.key, "title": row.title, "quirks": row.quirks, "protocol": row.protocol},
        "model_usage": {
            model: {
                "input_tokens": row.input_tokens,
                "output_tokens": row.output_tokens,
                "total_tokens": row.input_tokens + row.output_tokens,
            }
        },
        "total_time": row.duration_s,
        "uuid": row.key,
    }
    if row.outcome == "broken":
        sample["error"] = {"message": row.reason, "traceback": row.reason, "traceback_ansi": row.reason}
    else:
        sample["scores"] = {
            SCORER: {"value": "C" if row.outcome == "pass" else "I", "answer": answer, "explanation": row.reason},
            **{
                each.grader: {"value": "C" if each.passed else "I", "explanation": each.reason} for each in row.verdicts
            },
        }
    return sample


def _messages(evidence: GraderEvidence) -> Iterator[dict[str, Any]]:
    """Return the conversation as Inspect's messages: the calls of one reply go with its text."""
    said: list[AnyItem] = []
    for run in evidence.transcript.runs:
        for entry in run.entries:
            if entry.kind not in ITEM_KINDS:
                continue
            item = item_of_entry(entry)
            if isinstance(item, CallItem) or (isinstance(item, MessageItem) and item.role == "assistant"):
                said.append(item)
                continue
            yield from _assistant(said)
            said = []
            if isinstance(item, MessageItem):
                yield {"role": "user" if item.role == "user" else "system", "content": text_of(item.content)}
            elif isinstance(item, ResultItem):
                yield _result(item)
        yield from _assistant(said)
        said = []


def _assistant(said: Sequence[AnyItem]) -> Iterator[dict[str, Any]]:
    if not said:
        return
    text = "".join(text_of(item.content) for item in said if isinstance(item, MessageItem))
    calls = [
        {"id": item.call_id, "function": item.name, "arguments": _arguments(item), "type": "function"}
        for item in said
        if isinstance(item, CallItem)
    ]
    yield {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}


def _result(item: ResultItem) -> dict[str, Any]:
    error = {"error": {"type": "unknown", "message": text_of(item.output)}} if item.is_error else {}
    return {
        "role": "tool",
        "content": text_of(item.output),
        "tool_call_id": item.call_id,
        "function": item.name or "",
        **error,
    }


def _arguments(call: CallItem) -> dict[str, Any]:
    """Return the arguments as an object: Inspect has no place for others, so those go under `raw`."""
    try:
        value: Any = read_json(call.arguments or "{}")
    except BadJson:
        value = None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"raw": call.arguments}
