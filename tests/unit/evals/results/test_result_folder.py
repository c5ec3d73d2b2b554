"""The folder of a run: written piece by piece, read strictly, graded again without a model."""

from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.evals.graders import GRADER_VERSION
from treadle.evals.results.fingerprint import code_fingerprints, scenario_fingerprint
from treadle.evals.results.result_folder import SAMPLES, RunFolder, file_name
from treadle.evals.results.sample_rows import SampleRow, counts, row_of
from treadle.evals.scenario_file import Expect, ExpectedText
from treadle.evals.suite_report import SuiteSample
from treadle.server.api import eval_routes as scores
from unit.evals.results.samples import EVIDENCE, SCENARIO, folder, row


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    """The run, its samples in order, and their transcripts; only its owner may read them."""
    rows = [row("a.add"), row("a.add", "fail", 2), row("a.add", "broken", 3)]
    made = folder(tmp_path / "run", *rows)
    again = RunFolder(made.path)
    assert again.info().scenarios == (SCENARIO,)
    assert again.rows() == rows
    assert again.evidence(rows[0].key) == EVIDENCE
    assert again.evidence(rows[2].key) is None
    assert (made.path / SAMPLES).stat().st_mode & 0o077 == 0


def test_the_console_can_read_it(tmp_path: Path) -> None:
    """It knows the files by their names and fields, and does not import what wrote them."""
    rows = [row("a.add", cost_usd=0.5, quirks={"no_index": 1}), row("a.add", "fail", 2)]
    made = folder(tmp_path / "run", *rows)
    lines = (made.path / scores.SAMPLES).read_bytes().splitlines()
    samples = [msgspec.json.decode(line, type=scores.Sample) for line in lines]
    assert [(each.key, each.outcome, each.cost_usd, each.quirks) for each in samples] == [
        (each.key, each.outcome, each.cost_usd, each.quirks) for each in rows
    ]
    run = msgspec.json.decode((made.path / scores.RUN).read_bytes())
    shown = set(scores.EvalRun.__struct_fields__) - {"id", "outcomes", "cost_usd"}
    assert shown <= run.keys()
    assert run["grader_version"] == GRADER_VERSION
    assert (made.path / scores.TRANSCRIPTS / file_name(rows[0].key)).is_file()


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    """Every attempt is kept."""
    folder(tmp_path / "run")
    with pytest.raises(ConfigError, match="holds a run already"):
        folder(tmp_path / "run")


def test_a_run_that_was_killed_loses_at_most_its_last_line(tmp_path: Path) -> None:
    """A line that was cut off does not count; one in the middle that is wrong is an error that names it."""
    made = folder(tmp_path / "run", row("a.add"), row("a.add", "pass", 2))
    file = made.path / SAMPLES
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert [each.trial for each in made.rows()] == [1]
    file.write_bytes(b"{\n" + whole)
    with pytest.raises(ConfigError, match=r"samples\.jsonl, line 1"):
        made.rows()


def test_what_is_no_run_says_so(tmp_path: Path) -> None:
    """And a transcript that cannot be read too."""
    with pytest.raises(ConfigError, match="is no run of scenarios"):
        RunFolder(tmp_path).info()
    made = folder(tmp_path / "run", row("a.add"))
    (made.path / "transcripts" / file_name(row("a.add").key)).write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        made.evidence(row("a.add").key)


def test_a_run_is_graded_again_without_being_played_again(tmp_path: Path) -> None:
    """By the expectations of then, or by others; what was broken stays so."""
    made = folder(tmp_path / "run", row("a.add", "fail"), row("a.add", "broken", 2))
    assert [each.outcome for each in made.regrade()] == ["pass", "broken"]
    stricter = msgspec.structs.replace(SCENARIO, expect=(Expect(text=ExpectedText(contains=("42",))),))
    regraded = made.regrade({"a.add": stricter})
    assert [each.outcome for each in regraded] == ["fail", "broken"]
    assert "does not say '42'" in regraded[0].reason


def test_an_offline_sample_has_no_time_in_its_row() -> None:
    """The same play makes the same row."""
    sample = SuiteSample(scenario="a.b", protocol="gemini", chunk_bytes=7, duration_s=1.5)
    assert row_of(sample) == SampleRow(
        key="a.b.gemini.7",
        scenario="a.b",
        outcome="broken",
        protocol="gemini",
        chunk_bytes=7,
        reason="nothing was graded",
    )


def test_what_could_not_be_judged_is_not_counted() -> None:
    """Neither as passed nor as run."""
    assert counts([row("a.b"), row("a.b", "fail", 2), row("a.b", "broken", 3)]) == {"a.b": (1, 2)}


def test_fingerprints_follow_what_is_said_and_not_how() -> None:
    """Another expectation is another scenario; the code's are the same within one checkout."""
    changed = msgspec.structs.replace(SCENARIO, title="Other")
    assert scenario_fingerprint(SCENARIO) == scenario_fingerprint(SCENARIO)
    assert scenario_fingerprint(SCENARIO) != scenario_fingerprint(changed)
    assert code_fingerprints().keys() == {"graders", "toolkit", "quirks", "source", "treadle"}


def test_every_key_is_a_file_name() -> None:
    """Models have slashes and colons in their names."""
    assert file_name("openrouter/a:b.full.x.1") == "openrouter_a_b.full.x.1.json"


def test_a_line_that_was_cut_off_does_not_spoil_what_comes_after(tmp_path: Path) -> None:
    """A run that was killed while writing is gone on with: the half line goes, nothing else does."""
    made = folder(tmp_path / "run", row("a.add"))
    for cut in (b'{"key":"m.full.a', b"\xc3", b"x" * 70_000):
        with (made.path / SAMPLES).open("ab") as out:
            out.write(cut)
        assert len(made.rows()) >= 1
        before = made.rows()
        made.add(row("a.add", "fail", len(before) + 1), None)
        assert made.rows() == [*before, row("a.add", "fail", len(before) + 1)]


def test_samples_are_written_anew_at_once_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption in between leaves the samples of before."""
    made = folder(tmp_path / "run", row("a.add"), row("a.add", "broken", 2))

    def die(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        made.rewrite([row("a.add")])
    assert len(made.rows()) == 2


def test_a_run_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    """Not a traceback."""
    made = folder(tmp_path / "run", row("a.add"))
    for damaged in (b"{", b"[]", b'{"name":"\xff"}'):
        made.write("run.json", damaged)
        with pytest.raises(ConfigError, match=r"run\.json"):
            made.info()
