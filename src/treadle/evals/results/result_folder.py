"""The folder of a run: `run.json`, `samples.jsonl`, `transcripts/`, and the pages made from them.

Samples are appended one by one, so an interrupted run keeps its samples and can be continued. A transcript contains
everything that graders need, so grading again needs no model.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from treadle.core.errors import ConfigError
from treadle.evals.graders import GRADER_VERSION, GraderEvidence, grade
from treadle.evals.results.sample_rows import SampleRow, regraded
from treadle.evals.scenario_file import Scenario

RUN = "run.json"
SAMPLES = "samples.jsonl"
TRANSCRIPTS = "transcripts"
CASSETTES = "cassettes"
_BLOCK_BYTES = 65_536
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


class EvalRunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was: under which name, on what, and the fingerprints that say whether another can be compared.

    `scenarios` are those that were played, whole, so that they can be graded again after they have changed.
    """

    name: str
    mode: str = "offline"
    version: int = 1
    started_at: float = 0.0
    models: tuple[str, ...] = ()
    strategies: tuple[str, ...] = ()
    trials: int = 1
    sampling: dict[str, Any] = {}
    endpoints: dict[str, str] = {}
    grader_version: int = GRADER_VERSION
    fingerprints: dict[str, str] = {}
    scenario_fingerprints: dict[str, str] = {}
    scenarios: tuple[Scenario, ...] = ()

    @property
    def by_id(self) -> dict[str, Scenario]:
        """Return the scenarios by their ids."""
        return {scenario.id: scenario for scenario in self.scenarios}


class RunFolder:
    """A run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self, info: EvalRunInfo) -> None:
        """Begin a new run.

        Raises: ConfigError, when there is one already, or the folder cannot be made.
        """
        if (self.path / RUN).exists():
            raise ConfigError(
                f"{self.path} holds a run already", param="out", hint="name another folder, or go on with --resume"
            )
        try:
            (self.path / TRANSCRIPTS).mkdir(parents=True, exist_ok=True)
            self.write(RUN, msgspec.json.format(msgspec.json.encode(info, order="deterministic"), indent=1) + b"\n")
            self.write(SAMPLES, b"")
        except OSError as error:
            raise ConfigError(f"can not write {self.path}: {error.strerror or error}", param="out") from None

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the run, readable only by its owner: transcripts contain conversations."""
        descriptor = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)

    def add(self, row: SampleRow, evidence: GraderEvidence | None) -> None:
        """Add a sample, its transcript first. A partial line left by a killed run is removed before."""
        if evidence is not None:
            self.write(f"{TRANSCRIPTS}/{file_name(row.key)}", msgspec.json.encode(evidence) + b"\n")
        with (self.path / SAMPLES).open("r+b") as out:
            out.seek(_whole_bytes(out))
            out.truncate()
            out.write(msgspec.json.encode(row) + b"\n")

    def rewrite(self, rows: Sequence[SampleRow]) -> None:
        """Rewrite all samples atomically; an interruption leaves the old ones."""
        self.write(f"{SAMPLES}.new", b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        (self.path / f"{SAMPLES}.new").replace(self.path / SAMPLES)

    def info(self) -> EvalRunInfo:
        """Read what the run was.

        Raises: ConfigError, when this is no run.
        """
        try:
            return msgspec.json.decode(self._read(RUN), type=EvalRunInfo)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path / RUN} is not what a run says of itself: {error}", param="run") from None

    def rows(self) -> list[SampleRow]:
        """Read the samples; a last line that was cut off does not count.

        Raises: ConfigError.
        """
        rows: list[SampleRow] = []
        lines = self._read(SAMPLES).split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                rows += [msgspec.json.decode(line, type=SampleRow)] if line else []
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                if number < len(lines):
                    raise ConfigError(f"{self.path / SAMPLES}, line {number}: {error}", param="run") from None
        return rows

    def evidence(self, key: str) -> GraderEvidence | None:
        """Read the transcript of a sample; None when it has none.

        Raises: ConfigError, when it cannot be read.
        """
        file = self.path / TRANSCRIPTS / file_name(key)
        if not file.is_file():
            return None
        try:
            return msgspec.json.decode(file.read_bytes(), type=GraderEvidence)
        except (OSError, msgspec.MsgspecError) as error:
            raise ConfigError(f"{file} cannot be read: {error}", param="run") from None

    def regrade(self, scenarios: dict[str, Scenario] | None = None) -> list[SampleRow]:
        """Grade the rows again with the current graders, by the recorded expectations unless others are given."""
        known = {**self.info().by_id, **(scenarios or {})}
        return [self._regraded(row, known.get(row.scenario)) for row in self.rows()]

    def _regraded(self, row: SampleRow, scenario: Scenario | None) -> SampleRow:
        evidence = None if row.outcome == "broken" else self.evidence(row.key)
        if scenario is None or evidence is None:
            return row
        return regraded(row, grade(scenario.expect, evidence))

    def _read(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{self.path} is no run of scenarios: {name} cannot be read ({error.strerror or error})", param="run"
            ) from None


def _whole_bytes(file: BinaryIO) -> int:
    """Return how many bytes of a file of lines are whole lines."""
    end = file.seek(0, os.SEEK_END)
    start = end
    while start > 0:
        start = max(0, start - _BLOCK_BYTES)
        file.seek(start)
        if (place := file.read(_BLOCK_BYTES).rfind(b"\n")) >= 0:
            return start + place + 1
    return 0


def file_name(key: str) -> str:
    """Return the name of a sample's file."""
    return f"{_ODD.sub('_', key)}.json"
