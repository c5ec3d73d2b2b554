"""The suite: every measurement can be run alone, and every target is asked in a way that Treadle understands."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from bench import __main__ as suite
from bench.measures.loops import own
from bench.rig.processes import ROOT
from bench.rig.requests import CALLED, TALK
from bench.rig.targets import JOURNALS, Target, write_config

from treadle.config import load_settings
from treadle.core.items import CallItem, MessageItem, ResultItem
from treadle.protocols.protocol_registry import PROTOCOLS


@pytest.mark.parametrize("name", suite.SUITE)
def test_every_measurement_is_a_command_of_its_own(name: str) -> None:
    """And its source knows the flags that the suite gives it."""
    spec = find_spec(suite.SUITE[name].module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert 'if __name__ == "__main__":' in source
    assert '"--quick"' in source or "main_of(measure" in source


def test_a_name_that_is_not_known_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured then."""
    monkeypatch.setattr(sys, "argv", ["bench", "plain", "plane"])
    with pytest.raises(SystemExit) as ended:
        suite.main()
    assert ended.value.code == 2
    assert "there is no measurement 'plane'; there are plain, streams" in capsys.readouterr().err


def test_a_measurement_that_fails_or_takes_too_long_fails_the_suite_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name is told at the end."""
    chosen = {"bad": suite.Measurement("bench.no_such_module", 60), "slow": suite.Measurement("this", 0.001)}
    monkeypatch.setattr(suite, "SUITE", chosen)
    monkeypatch.setattr(sys, "argv", ["bench"])
    with pytest.raises(SystemExit) as ended:
        suite.main()
    assert ended.value.code == "bench: without figures: bad, slow"
    told = capsys.readouterr().out
    assert "bad: failed with 1" in told
    assert "slow: not done after 0 s, ended" in told


def test_the_loop_without_a_journal_is_really_without_one() -> None:
    """Each other one gets a store of its own."""

    class Stores:
        def store(self, journal: str) -> str:
            return f"store of {journal}"

    told = {loop.name: loop.command("url")[-1] for loop in own(Stores())}  # type: ignore[arg-type]
    assert told == {
        "Treadle, no journal": "off",
        "Treadle, SQLite": "store of SQLite",
        "Treadle, PostgreSQL": "store of PostgreSQL",
    }


@pytest.mark.parametrize("protocol", ["chat", "messages", "responses"])
def test_a_target_is_asked_in_each_protocol(protocol: str) -> None:
    """Treadle reads what the load generator sends; what a peer needs besides goes into the body."""
    target = Target("peer", 1, prefix="openai:", more={"user": "bench"}, headers={"x-key": "k"})
    job = target.job(protocol, "bench-100", stream=True, asked={"temperature": 0.5}, mode="closed")
    body = json.loads(job["body"])
    assert (body["model"], body["user"], body["temperature"]) == ("openai:bench-100", "bench", 0.5)
    assert (job["headers"], job["mode"]) == ({"x-key": "k"}, "closed")
    own = Target("own", 1).job(protocol, "bench-100", stream=True)
    request = PROTOCOLS[protocol].codec.read_request(str(own["body"]).encode())
    assert (request.model, request.surface.stream) == ("bench-100", True)


@pytest.mark.parametrize("protocol", TALK)
def test_the_request_of_the_scenarios_has_six_messages_and_two_tools(protocol: str) -> None:
    """In each protocol, 1.9 KB as chat; what is said to the model as instructions is one of the six."""
    body = str(Target("own", 1).job(protocol, "bench-plain", stream=False, asked=TALK[protocol])["body"]).encode()
    request = PROTOCOLS[protocol].codec.read_request(body)
    assert len(request.items) + (request.instructions is not None) == 6
    assert {type(item) for item in request.items} == {MessageItem}
    assert [tool.name for tool in request.tools] == ["get_weather", "opening_hours"]
    assert protocol != "chat" or 1_850 <= len(body) <= 1_950


def test_the_request_with_a_call_is_as_long() -> None:
    """The call and its result are two of its six messages."""
    body = str(Target("own", 1).job("chat", "bench-plain", stream=False, asked=CALLED)["body"]).encode()
    kinds = [type(item) for item in PROTOCOLS["chat"].codec.read_request(body).items]
    assert kinds == [MessageItem, MessageItem, CallItem, ResultItem, MessageItem, MessageItem]
    assert 1_850 <= len(body) <= 2_000


@pytest.mark.parametrize("journal", JOURNALS)
def test_the_settings_of_a_measured_server_are_valid(tmp_path: Path, journal: str) -> None:
    """Strict settings would refuse a field that is gone."""
    store = f"sqlite:///{tmp_path}/x.db" if journal != "PostgreSQL" else "postgresql://u@/bench?host=/tmp"
    settings = load_settings(write_config(tmp_path, "http://127.0.0.1:1234/v1", journal, store, tools=3), env={})
    assert settings.store.persistence == ("off" if journal == "off" else "on")
    assert settings.upstream[0].base_url == "http://127.0.0.1:1234/v1"
    assert all(Path(each).exists() for each in settings.tools.load)


def test_the_document_has_a_place_for_what_is_measured() -> None:
    """No measurement of the suite's rooms is left out, and the results that it shows were taken."""
    from bench.report.document import MADE, marks

    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    wanted = {name for name, each in suite.SUITE.items() if each.module.startswith("bench.measures.")}
    assert {name.removesuffix("-peers") for name in marks(text)} == {*wanted, *MADE}
    empty = [name for name in marks(text) if f"<!-- measured: {name} -->\n<!-- end: {name} -->" in text]
    assert empty == []


def test_rows_that_were_not_measured_again_stay() -> None:
    """Those that were stand in their place, new ones behind all others."""
    from bench.report.document import renew

    def document(*rows: str) -> str:
        table = "\n".join(["Goals:", "", "| what | reached |", "|---|---:|", *rows])
        return f"before\n<!-- measured: goals -->\n\n{table}\n\n<!-- end: goals -->\nafter\n"

    table = "Goals:\n\n| what | reached |\n|---|---:|\n| b | 3 |\n| d | 4 |"
    text = renew(document("| a | 1 |", "| b | 2 |", "| c | 2 |"), "goals", table)
    assert text == document("| a | 1 |", "| b | 3 |", "| c | 2 |", "| d | 4 |")
    assert renew(text, "goals", table) == text


def test_every_goal_is_about_a_result_that_is_kept() -> None:
    """One that the document shows, or one that it only judges."""
    from bench.report.document import UNSHOWN, marks
    from bench.report.goals import GOALS

    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert {goal.result for goal in GOALS} <= {*marks(text), *UNSHOWN}
