"""`treadle eval`: its actions and exit codes, as a person and as CI use them."""

import argparse
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from treadle.cli.eval_flags import positive, words
from treadle.cli.eval_live import print_gate
from treadle.cli.eval_progress import SampleProgress
from treadle.cli.main import main
from treadle.core.errors import ConfigError
from treadle.evals.live.prices import read_price
from treadle.evals.live.spending_ledger import SpendingLedger
from treadle.evals.results.result_folder import RUN, RunFolder
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.results.trend import append_history
from treadle.evals.scenario_file import write_schema
from unit.evals.bfcl.archives import write_archive
from unit.evals.results.samples import folder, row

GOOD = """
id = "a.good"
title = "Good"
tags = ["live"]
tools = ["add"]
[[turn]]
user = "1 + 1?"
[[script]]
calls = [{ name = "add", args = { a = 1, b = 1 } }]
[[script]]
text = "2"
[[expect]]
text = { contains = ["2"] }
"""


@pytest.fixture
def scenarios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one scenario, in a place without any configuration."""
    for name in ("OPENROUTER_API_KEY", "OPENROUTER_MODEL", "OPENROUTER_MODELS", "TREADLE_EVAL_LIVE", "TREADLE_BFCL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "good.toml").write_text(GOOD)
    return tmp_path / "mine"


def test_a_run_is_kept_with_everything_in_it(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run, the samples, a transcript of each, the page, and JUnit; passing is 0."""
    out = scenarios.parent / "run"
    assert main(["eval", str(scenarios), "-o", str(out), "--junit", str(out) + ".xml", "--jobs", "1"]) == 0
    assert "1 scenarios, 4 plays" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {
        RUN,
        "samples.jsonl",
        "summary.json",
        "transcripts",
        "report.html",
        "junit.xml",
    }
    assert len(list((out / "transcripts").iterdir())) == 4
    assert Path(f"{out}.xml").exists()
    assert main(["eval", str(scenarios), "-o", str(out), "--jobs", "1"]) == 2


def test_plays_are_chosen_by_flags(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Protocols, cuts and scenarios; what is not there is an error that names it."""
    assert main(["eval", str(scenarios), "--protocols", "gemini", "--cuts", "1,whole", "--json", "--jobs", "1"]) == 0
    samples = json.loads(capsys.readouterr().out)["samples"]
    assert [(each["protocol"], each["chunk_bytes"]) for each in samples] == [("gemini", 1), ("gemini", None)]
    assert main(["eval", str(scenarios), "--scenarios", "none.*", "--jobs", "1"]) == 2
    for flags, word in ((["--protocols", "smtp"], "smtp"), (["--cuts", "x"], "--cuts"), (["--models", "m"], "--live")):
        assert main(["eval", str(scenarios), *flags]) == 2
        assert word in capsys.readouterr().err


def test_a_failing_scenario_is_1_and_a_broken_one_2(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As CI needs it."""
    (scenarios / "good.toml").write_text(GOOD.replace('["2"]', '["3"]'))
    assert main(["eval", str(scenarios), "--jobs", "1"]) == 1
    (scenarios / "good.toml").write_text(GOOD.replace("[[turn]]", "[[trun]]"))
    assert main(["eval", str(scenarios), "--jobs", "1"]) == 2
    assert "unknown field `trun`" in capsys.readouterr().out


def test_scenarios_and_their_schema_are_listed(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for editors."""
    assert main(["eval", "list", str(scenarios)]) == 0
    assert capsys.readouterr().out == "a.good  Good [live]\n"
    assert main(["eval", "schema"]) == 0
    assert capsys.readouterr().out.encode() == write_schema()


def test_runs_are_compared_and_graded_again(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Worse is 1; other yardsticks are refused until both are graded again."""
    one = folder(scenarios / "one", *(row("a.add", "pass", trial) for trial in range(1, 4)))
    bad = [row(f"a.s{number}", "fail") for number in range(8)]
    two = folder(scenarios / "two", *bad)
    three = folder(scenarios / "three", *(msgspec.structs.replace(each, outcome="pass") for each in bad))
    assert main(["eval", "compare", str(three.path), str(two.path)]) == 1
    assert "lost    a.s0" in capsys.readouterr().out
    other = folder(scenarios / "other", row("a.add", "fail"), fingerprints={"graders": "x"})
    assert main(["eval", "compare", str(one.path), str(other.path)]) == 1
    assert "--regrade" in capsys.readouterr().err
    assert main(["eval", "compare", str(one.path), str(other.path), "--regrade", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["after"] == 1.0
    assert main(["eval", "regrade", str(other.path)]) == 0
    assert "fail → pass" in capsys.readouterr().out
    assert [each.outcome for each in RunFolder(other.path).rows()] == ["pass"]
    assert main(["eval", "compare", str(one.path)]) == 2


def test_a_sample_is_promoted_by_its_name(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The scenario that is written passes; what is not there is said."""
    out = scenarios.parent / "run"
    main(["eval", str(scenarios), "-o", str(out), "--protocols", "chat", "--jobs", "1"])
    file = scenarios.parent / "promoted.toml"
    assert main(["eval", "promote", f"{out}/a.good.chat.11", "-o", str(file)]) == 0
    assert main(["eval", str(file), "--jobs", "1"]) == 0
    assert main(["eval", "promote", f"{out}/a.other.1"]) == 1
    assert "has no sample 'a.other.1'" in capsys.readouterr().err
    assert main(["eval", "promote", "nowhere/x"]) == 2


def test_reports_history_and_exports_are_written_again(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each from the folder alone."""
    made = folder(scenarios / "runs" / "one", row("a.add"), row("a.add", "fail", 2))
    append_history(made.path.parent, made.info(), made.rows())
    assert main(["eval", "report", str(made.path)]) == 0
    assert (made.path / "report.html").read_text().startswith("<!doctype html>")
    assert main(["eval", "history", str(made.path.parent)]) == 0
    assert "1/2" in capsys.readouterr().out
    assert main(["eval", "export", str(made.path), "-o", str(scenarios / "logs")]) == 0
    assert json.loads((scenarios / "logs" / "m.json").read_text())["version"] == 2
    assert main(["eval", "quirks", str(made.path / "none")]) == 2
    assert main(["eval", "quirks"]) == 2


def test_a_live_run_without_a_model_says_what_is_missing(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And one with a price prints its plan, and with --dry-run nothing more."""
    assert main(["eval", "--live", str(scenarios)]) == 2
    assert "no model is named" in capsys.readouterr().err
    config = scenarios.parent / "treadle.toml"
    config.write_text('[[upstream]]\nname = "local"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["m"]\n')
    assert main(["trust", str(config)]) == 0
    assert main(["eval", "--live", "--dry-run", "--price", "m=1/2", "--trials", "2", str(scenarios)]) == 0
    err = capsys.readouterr().err
    assert "1 models × 1 scenarios × 2 trials × 1 strategies: 2 samples to make" in err
    assert "m: 1/2 USD for a million tokens" in err
    priced = config.read_text() + '[[price]]\nmodel = "m"\ninput = 3.0\noutput = 4.0\n'
    (scenarios.parent / "priced.toml").write_text(priced)
    assert main(["eval", "--live", "--dry-run", "--config", "priced.toml", "--budget-usd", "1", str(scenarios)]) == 0
    assert "m: 3/4 USD for a million tokens" in capsys.readouterr().err
    assert main(["eval", "--live", "--dry-run", "--budget-usd", "1", str(scenarios)]) == 2
    assert "the price of m is not known" in capsys.readouterr().err


def test_openrouters_models_are_asked_through_it(
    scenarios: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """OPENROUTER_MODELS or OPENROUTER_MODEL with its key are enough; the switch may be a variable too."""

    async def nothing(*_: object) -> dict[str, object]:
        return {}

    monkeypatch.setattr("treadle.cli.eval_live._listed", nothing)
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-test-key")
    monkeypatch.setenv("OPENROUTER_MODELS", "openai/a, anthropic/b")
    monkeypatch.setenv("TREADLE_EVAL_LIVE", "1")
    assert main(["eval", "--dry-run", str(scenarios)]) == 0
    err = capsys.readouterr().err
    assert "openrouter/openai/a: no price" in err
    assert "openrouter/anthropic/b: no price" in err


def test_the_gate_of_a_live_run_explains_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The budget, samples that could not be judged, failures, and a rate below the baseline's, each in words."""
    good = [row("a.add", "pass", trial) for trial in range(1, 5)]
    bad = [row("a.add", "fail", trial) for trial in range(1, 5)]
    made, before = folder(tmp_path / "run", *bad), folder(tmp_path / "before", *good)

    def gate(rows: list[SampleRow], *, is_exhausted: bool = False, **flags: object) -> tuple[int, str]:
        args = argparse.Namespace(**{"at_least": None, "baseline": None, "allow_drop": 0.0, "json": False, **flags})
        code = print_gate(args, made, rows, unread=[], is_exhausted=is_exhausted)
        return code, capsys.readouterr().err

    assert gate(good) == (0, "")
    assert gate(bad) == (
        1,
        "failed  m  a.add  4 of 4: text: says nothing\ntreadle: m: 4 of 4 samples failed\n",
    )
    assert gate(bad, is_exhausted=True)[0] == 3
    assert gate([]) == (2, "treadle: no scenario was played\n")
    assert gate([*good, row("a.add", "broken", 5)])[0] == 2
    code, err = gate(bad, baseline=before.path)
    assert (code, err.splitlines()[-1]) == (1, "treadle: m: 1.000 in the baseline, 0.000 now")
    assert gate(good, baseline=before.path) == (0, "")
    assert gate(bad[:1], baseline=made.path)[0] == 0
    code, err = gate([row("a.add", "broken", 1)], baseline=before.path)
    assert (code, err.splitlines()[-1]) == (2, "treadle: m: 1 of 1 samples could not be judged")


def test_bfcl_is_played_with_the_truth(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And refuses what it does not know."""
    wheel = str(write_archive(scenarios))
    assert main(["eval", "bfcl", "--wheel", wheel, "--sets", "simple_python", "--apis", "chat"]) == 0
    assert re.search(r"truth via chat: simple_python  (\d+)/\1 \[", capsys.readouterr().out)
    assert main(["eval", "bfcl", "--wheel", wheel, "--sets", "parallel,irrelevance", "--max-requests", "1"]) == 3
    assert main(["eval", "bfcl", "--wheel", wheel, "--budget-usd", "1"]) == 2
    assert main(["eval", "bfcl", "--wheel", wheel, "--sets", "nothing"]) == 2
    assert main(["eval", "bfcl", "--wheel", wheel, "--models", "m"]) == 2
    assert main(["eval", "bfcl"]) == 2
    assert "pip download" in capsys.readouterr().err


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


def test_progress_is_one_line_on_a_terminal_and_few_elsewhere() -> None:
    """Counts, requests and money."""
    drawn, written = Terminal(), io.StringIO()
    ledger = SpendingLedger()
    ledger.spent_usd = 0.5
    for out in (drawn, written):
        bar = SampleProgress(20, out)
        for trial in range(20):
            bar.update(row("a.add", "pass" if trial else "fail", trial), ledger)
        bar.close()
    assert drawn.getvalue().count("\n") == 1
    assert drawn.getvalue().count("\r") == 20
    assert written.getvalue().count("\n") == 10
    assert written.getvalue().splitlines()[-1] == (
        "[########################] 20/20  19 pass, 1 fail  0 requests, 0.5000 USD"
    )


def test_flags_are_read_strictly() -> None:
    """Lists by commas, counts above zero."""
    assert words(" a, b ,,c") == ["a", "b", "c"]
    assert positive("3") == 3
    with pytest.raises(ValueError, match="0"):
        positive("0")


@pytest.mark.parametrize(
    "flags",
    [["--cuts", "0"], ["--cuts", "-3"], ["--budget-usd", "nan"], ["--budget-usd", "-1"], ["--at-least", "90"]],
)
def test_numbers_that_mean_nothing_are_refused(flags: list[str], scenarios: Path) -> None:
    """A budget that is no number would never be reached."""
    try:
        code: object = main(["eval", *flags, str(scenarios)])
    except SystemExit as ended:
        code = ended.code
    assert code == 2


def test_a_price_must_be_a_number_to_be_kept() -> None:
    """Nothing is more than nan, so no budget would be reached."""
    for price in ("nan/1", "1/inf", "-1/1"):
        with pytest.raises(ConfigError, match="is not MODEL=INPUT/OUTPUT"):
            read_price(f"m={price}")


def test_a_second_scenario_of_an_id_breaks_only_itself(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is recorded of one would overwrite the other; the first is played."""
    first = next(scenarios.glob("*.toml"))
    (scenarios / "zz_copy.toml").write_text(first.read_text())
    assert main(["eval", str(scenarios), "--json", "--protocols", "chat"]) == 2
    samples = json.loads(capsys.readouterr().out)["samples"]
    assert [(each["scenario"], each["outcome"]) for each in samples] == [("a.good", "pass"), ("zz_copy", "broken")]
    assert samples[1]["reason"] == f"it has the same id as {first}, a.good; ids must differ"


def test_a_typo_is_told_with_what_was_probably_meant(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the table too, where the scenario is broken."""
    first = next(scenarios.glob("*.toml"))
    first.write_text(first.read_text().replace("title =", "titel =", 1))
    assert main(["eval", str(scenarios)]) == 2
    assert "did you mean `title`?" in capsys.readouterr().out


def test_the_demonstration_model_is_not_measured(scenarios: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no upstream is configured it would answer for every name."""
    assert main(["eval", "--live", "--models", "m", "--dry-run", str(scenarios)]) == 2
    assert "no upstream serves m" in capsys.readouterr().err


def test_what_bfcl_answered_is_kept_when_it_is_interrupted(
    scenarios: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row as soon as it is judged; without a model nobody is asked."""
    wheel = str(write_archive(scenarios))

    async def interrupted(_: object, told: Callable[[SampleRow], None]) -> list[SampleRow]:
        told(row("simple_python"))
        raise KeyboardInterrupt

    monkeypatch.setattr("treadle.evals.bfcl.bfcl_runner.run_bfcl", interrupted)
    out = scenarios.parent / "bfcl"
    assert main(["eval", "bfcl", "--wheel", wheel, "--sets", "simple_python", "-o", str(out)]) == 130
    assert [each.scenario for each in RunFolder(out).rows()] == ["simple_python"]
    assert f"kept in {out}" in capsys.readouterr().err
    assert main(["eval", "bfcl", "--wheel", wheel, "--live"]) == 2
    assert "no model is named" in capsys.readouterr().err
