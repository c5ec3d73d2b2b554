"""A live run from the command line against a local server: bounds, what is kept, and going on after an interruption."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from treadle.cli.main import main
from treadle.evals.results.result_folder import RunFolder
from treadle.evals.scenario_file import find_scenarios, load_scenario
from treadle.providers.fakes.fake_server import ScriptServer
from unit.evals.live.flaky import FlakyModel, Rates
from unit.evals.live.test_live import SCENARIOS

START_S = 20


class Serving:
    """A model on loopback, in a thread of its own: the command has its own loop."""

    def __init__(self, model: FlakyModel) -> None:
        self._model = model
        self._ready = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self.url = ""

    def __enter__(self) -> "Serving":
        self._thread.start()
        assert self._ready.wait(START_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._thread.join(START_S)

    async def _main(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        async with ScriptServer(self._model) as server:
            self.url = server.url
            self._stop = lambda: loop.call_soon_threadsafe(stopped.set) and None
            self._ready.set()
            await stopped.wait()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FlakyModel]:
    """Serve a perfect model, configured in a folder of its own."""
    for name in ("OPENROUTER_API_KEY", "OPENROUTER_MODEL", "OPENROUTER_MODELS", "TREADLE_EVAL_LIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    model = FlakyModel(SCENARIOS, Rates())
    with Serving(model) as serving:
        upstream = f'[[upstream]]\nname = "local"\nbase_url = "{serving.url}"\nmodels = ["m"]\n'
        (tmp_path / "treadle.toml").write_text(upstream)
        monkeypatch.setenv("TREADLE_CONFIG", "treadle.toml")
        yield model


FLAGS = ["--live", "--models", "m", "--scenarios", ",".join(each.id for each in SCENARIOS), "--price", "m=1/2"]


def test_a_run_that_reached_its_bound_is_gone_on_with(
    served: FlakyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, then 0; nothing is asked twice, and everything is in one folder."""
    out = tmp_path / "runs" / "one"
    flags = [*FLAGS, "--trials", "2", "--jobs", "1"]
    assert main(["eval", *flags, "--max-requests", "5", "-o", str(out)]) == 3
    first = RunFolder(out).rows()
    assert 0 < len(first) < 8
    assert main(["eval", *flags, "--resume", str(out), "--at-least", "0.9"]) == 0
    rows = RunFolder(out).rows()
    assert len({row.key for row in rows}) == len(rows) == 8
    assert rows[: len(first)] == first
    assert {row.outcome for row in rows} == {"pass"}
    captured = capsys.readouterr()
    assert "4 scenarios × 2 trials" in captured.err
    assert "pass^k" in captured.out
    assert {path.name for path in out.iterdir()} >= {"report.html", "junit.xml", "cassettes", "transcripts"}
    assert (out.parent / "history.jsonl").exists()
    assert main(["eval", "history", str(out.parent)]) == 0
    assert main(["eval", "quirks", str(out)]) == 0
    assert "calls" in capsys.readouterr().out


def test_a_run_is_not_gone_on_with_by_other_scenarios(
    served: FlakyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its numbers would mean two things."""
    out = tmp_path / "one"
    assert main(["eval", *FLAGS, "--trials", "1", "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["passed"] == 4
    flags = [*FLAGS[:4], "select.similar_names", *FLAGS[5:]]
    assert main(["eval", *flags, "--resume", str(out)]) == 2
    assert "was made with other scenarios" in capsys.readouterr().err


def test_a_run_is_gone_on_with_by_its_name_alone(
    served: FlakyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models, scenarios, trials and sampling are those it was begun with, even after it was killed in a line."""
    out = tmp_path / "runs" / "one"
    flags = [*FLAGS, "--trials", "2", "--jobs", "1", "--temperature", "0.5"]
    assert main(["eval", *flags, "--max-requests", "5", "-o", str(out)]) == 3
    with (out / "samples.jsonl").open("ab") as samples:
        samples.write(b'{"key":"m.fu')
    assert main(["eval", "--live", "--resume", str(out)]) == 0
    rows = RunFolder(out).rows()
    assert len({row.key for row in rows}) == len(rows) == 8
    capsys.readouterr()
    for other in (["--models", "x"], ["--temperature", "1"], ["--strategies", "bare"], ["--judge", "m"]):
        assert main(["eval", "--live", "--resume", str(out), *other]) == 2
        assert f"was made with another {other[0]}" in capsys.readouterr().err


def test_a_run_is_not_gone_on_with_by_other_graders(
    served: FlakyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless what there is was graded again; that says nothing of the tools it was played with."""
    out = tmp_path / "one"
    assert main(["eval", *FLAGS, "--trials", "1", "-o", str(out)]) == 0
    run = json.loads((out / "run.json").read_text())
    run["fingerprints"] |= {"graders": "older", "source": "older"}
    (out / "run.json").write_text(json.dumps(run))
    assert main(["eval", "--live", "--resume", str(out), "--trials", "2"]) == 2
    assert f"treadle eval regrade {out}" in capsys.readouterr().err
    assert main(["eval", "regrade", str(out)]) == 0
    assert RunFolder(out).info().fingerprints["source"] == "older"
    assert main(["eval", "--live", "--resume", str(out), "--trials", "2"]) == 0
    assert len(RunFolder(out).rows()) == 8


def test_a_baseline_is_looked_at_before_anything_is_asked(served: FlakyModel, tmp_path: Path) -> None:
    """Not after the money is spent."""
    out = tmp_path / "one"
    assert main(["eval", *FLAGS, "--baseline", str(tmp_path / "none"), "-o", str(out)]) == 2
    assert not out.exists()


def test_a_model_that_fails_ends_the_command_with_one(
    served: FlakyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default, and against a baseline; each failed scenario has a line that says why."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    assert main(["eval", *FLAGS, "--trials", "1", "-o", str(good)]) == 0
    served.rates = Rates(mistake=1.0)
    capsys.readouterr()
    assert main(["eval", *FLAGS, "--trials", "1", "-o", str(bad)]) == 1
    err = capsys.readouterr().err
    assert [line.split("  ")[:2] for line in err.splitlines() if line.startswith("failed")] == [["failed", "m"]] * 4
    assert err.endswith("treadle: m: 4 of 4 samples failed\n")
    assert main(["eval", *FLAGS, "--trials", "1", "--baseline", str(good), "-o", str(tmp_path / "next")]) == 1
    assert capsys.readouterr().err.endswith("treadle: m: 1.000 in the baseline, 0.000 now\n")
    assert main(["eval", "regrade", str(bad)]) == 1


def test_a_scenario_that_cannot_be_read_breaks_only_itself(
    served: FlakyModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are played; the command ends with 2 and names the file."""
    (tmp_path / "own").mkdir()
    broken = tmp_path / "own" / "broken.toml"
    broken.write_text("id = 1")
    file = next(file for file in find_scenarios() if load_scenario(file).id == SCENARIOS[0].id)
    (tmp_path / "own" / file.name).write_bytes(file.read_bytes())
    out = tmp_path / "out"
    assert main(["eval", "--live", "--models", "m", "--trials", "1", "-o", str(out), str(tmp_path / "own")]) == 2
    assert [row.outcome for row in RunFolder(out).rows()] == ["pass"]
    assert f"treadle: {broken}: " in capsys.readouterr().err
