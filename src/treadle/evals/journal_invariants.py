"""Checks the invariants that the journal of every run must satisfy, whatever the scenario. Does no I/O.

Each server call has one result, in call order, before the next model call; entries are numbered without gaps; there is
one end, with nothing after it; and subscribers received the same end.
"""

from collections.abc import Sequence

from treadle.core.events import RunEnded
from treadle.core.items import CallItem
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.evals.transcript import PlayedRun, Transcript, end_of


def log_problems(transcript: Transcript) -> list[str]:
    """Return the violated invariants, one sentence each."""
    if not transcript.runs:
        return ["there is no run"]
    return [
        f"run {number}: {problem}" for number, run in enumerate(transcript.runs, 1) for problem in _run_problems(run)
    ]


def _run_problems(run: PlayedRun) -> list[str]:
    problems: list[str] = []
    numbers = [entry.seq for entry in run.entries]
    if numbers != list(range(1, len(numbers) + 1)):
        problems.append(f"entries are not numbered 1, 2, 3 …: {numbers}")
    for calls, results in _rounds(run.entries):
        if calls != results:
            problems.append(f"the calls {calls} have the results {results}")
    ends = [position for position, entry in enumerate(run.entries) if end_of(entry) is not None]
    if ends != [len(run.entries) - 1]:
        problems.append(f"there must be one end, and last; found {len(ends)}")
    told = [event for event in run.events if isinstance(event, RunEnded)]
    if run.events and (len(told) != 1 or run.events[-1] is not told[0]):
        problems.append(f"one terminal event must be told, and last; {len(told)} were")
    return problems


def _rounds(entries: Sequence[Entry]) -> list[tuple[list[str], list[str]]]:
    """Return, for each model call, the ids of its server calls and of the results that followed."""
    rounds: list[tuple[list[str], list[str]]] = [([], [])]
    for entry in entries:
        if entry.kind == "plan":
            rounds.append(([], []))
        elif entry.kind == "tool_call" and not entry.is_input and _is_server_call(entry):
            rounds[-1][0].append(entry.call_id or "")
        elif entry.kind == "tool_result" and not entry.is_input:
            rounds[-1][1].append(entry.call_id or "")
    return rounds


def _is_server_call(entry: Entry) -> bool:
    item = item_of_entry(entry)
    return isinstance(item, CallItem) and item.side == "server"
