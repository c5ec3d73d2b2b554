"""Runs of scenarios as `treadle eval` leaves them on disk."""

from pathlib import Path
from typing import Any

import msgspec

from treadle.core.items import CallItem, text_message
from treadle.core.journal_entries import Entry, entry_of_item
from treadle.evals.graders import GraderEvidence, GraderVerdict
from treadle.evals.results.result_folder import EvalRunInfo, RunFolder
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.transcript import PlayedRun, Transcript

PLAN = Entry(kind="plan", name="m", data=msgspec.Raw(b'{"round":1,"fingerprint":"f","items":1}'), at=1.0)
CALL = CallItem(id="fc_1", call_id="c1", name="draft.patch", arguments='{"path":"/a"}', side="server")


def evidence() -> GraderEvidence:
    """What was kept of one play."""
    entries = (
        entry_of_item(text_message("user", "Set foo."), at=0.5, is_input=True),
        PLAN,
        entry_of_item(text_message("assistant", "Done."), at=2.0),
        entry_of_item(CALL, at=2.5),
    )
    return GraderEvidence(
        transcript=Transcript(runs=(PlayedRun(entries=entries),)), before={"foo": ""}, after={"foo": "bar"}
    )


def write(folder: Path, name: str, started_at: float, *outcomes: Any, **info: Any) -> None:
    """Write a run as `treadle eval` does."""
    run = RunFolder(folder / name)
    run.create(EvalRunInfo(name=name.partition("-")[2], started_at=started_at, models=("m",), **info))
    for number, outcome in enumerate(outcomes):
        verdict = GraderVerdict(grader="state", passed=outcome == "pass", reason="/foo")
        row = SampleRow(
            key=f"s{number}/x.{number}", scenario=f"s{number}", outcome=outcome, verdicts=(verdict,), cost_usd=0.5
        )
        run.add(row, None if outcome == "broken" else evidence())
