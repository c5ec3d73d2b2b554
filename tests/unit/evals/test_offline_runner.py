"""The runner: the built-in suite passes at every cut, and what goes wrong is told apart: failed or broken."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.evals import offline_runner as runner
from treadle.evals.offline_runner import PLAYED_AT, Play, Played, Task, play, play_whole, plays_of, run_suite, run_tasks
from treadle.evals.process_pool import shared
from treadle.evals.scenario_file import Scenario, find_scenarios, load_scenario, read_scenario
from treadle.evals.suite_report import SuiteSample
from treadle.protocols.protocol_registry import PROTOCOL_NAMES

ADDS = """
id = "a.b"
title = "T"
tools = ["add"]
[[turn]]
user = "1 + 1?"
[[script]]
calls = [{ name = "add", args = { a = 1, b = 1 } }]
[[script]]
sees = { contains = "2" }
text = "2"
[[expect]]
text = { contains = ["2"] }
"""


def scenario(old: str = "", new: str = "") -> Scenario:
    """Return the small scenario with one thing changed."""
    assert old in ADDS
    return read_scenario(ADDS.replace(old, new) if old else ADDS)


def reasons(sample: SuiteSample) -> dict[str, str]:
    """Return why each grader that failed did."""
    return {verdict.grader: verdict.reason for verdict in sample.verdicts if not verdict.passed}


FILES = list(enumerate(find_scenarios()))
EVERY = [pytest.param(None, path, id=f"{path.stem}-everywhere", marks=pytest.mark.exhaustive) for _, path in FILES]


@pytest.mark.parametrize(
    ("number", "path"), [*(pytest.param(number, path, id=path.stem) for number, path in FILES), *EVERY]
)
async def test_every_scenario_that_comes_with_treadle_passes(number: int | None, path: Path) -> None:
    """Offline, without a key, on one upstream protocol or on every, whatever size the network reads have."""
    known = load_scenario(path).protocols
    protocols = known if number is None else (known[number % len(known)],)
    result = await run_suite([path], protocols=protocols)
    assert {(sample.protocol, sample.outcome, sample.reason) for sample in result.samples} == {
        (protocol, "pass", "") for protocol in protocols
    }


def test_there_are_enough_scenarios_of_every_kind() -> None:
    """Sixty and more, most of them on all four protocols, and each kind of the design among them."""
    scenarios = [load_scenario(path) for path in find_scenarios()]
    assert len(scenarios) >= 60
    assert sum(scenario.protocols == PROTOCOL_NAMES for scenario in scenarios) >= 60
    kinds = {tag for scenario in scenarios for tag in scenario.tags}
    assert kinds >= {
        "select", "arguments", "parallel", "state", "recover", "restrain", "limits", "wire", "dialects", "workspace",
    }  # fmt: skip
    assert sum(scenario.is_live for scenario in scenarios) >= 25


def test_a_scenario_is_played_on_its_protocols_at_their_sizes() -> None:
    """Unless others are asked for."""
    only = read_scenario(ADDS.replace('title = "T"', 'title = "T"\nprotocols = ["gemini", "chat"]'))
    assert plays_of(only) == [
        Play(protocol="gemini", chunk_bytes=PLAYED_AT["gemini"]),
        Play(protocol="chat", chunk_bytes=PLAYED_AT["chat"]),
    ]
    assert plays_of(only, ("chat",), (1, None)) == [
        Play(protocol="chat", chunk_bytes=1),
        Play(protocol="chat", chunk_bytes=None),
    ]


def test_several_processes_give_what_one_gives(tmp_path: Path) -> None:
    """In the order of the files, whoever was quicker."""
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.toml").write_text(ADDS.replace("a.b", f"a.{name}"))
    tasks = [Task(file=str(path), protocols=("chat",)) for path in find_scenarios(tmp_path)]
    heard: list[Played] = []
    alone, together = run_tasks(tasks), run_tasks(tasks, jobs=2, heed=heard.append)
    assert [each.scenario for each in together.samples] == ["a.a", "a.b", "a.c"]
    strip = [msgspec.structs.replace(each, duration_s=0.0) for each in alone.samples]
    assert [msgspec.structs.replace(each, duration_s=0.0) for each in together.samples] == strip
    assert [each.evidence is not None for each in heard] == [True] * 3


def test_work_is_shared_in_order() -> None:
    """More processes than tasks are not started."""
    assert shared(_echo, [1, 2, 3], 1) == [b"1", b"2", b"3"]
    assert shared(_echo, [], 4) == []


def _echo(tasks: Sequence[int]) -> list[bytes]:
    return [str(task).encode() for task in tasks]


async def test_a_play_keeps_what_it_was_graded_on() -> None:
    """The whole journal and the world, so that it can be graded again, byte for byte the same each time."""
    first, second = await play_whole(scenario(), Play()), await play_whole(scenario(), Play())
    assert first.evidence is not None
    assert msgspec.json.encode(first.evidence) == msgspec.json.encode(second.evidence)


async def test_a_sample_says_what_was_played() -> None:
    """Its verdicts, and how many calls and rounds it took."""
    sample = await play(scenario(), 7)
    assert msgspec.structs.replace(sample, verdicts=(), duration_s=0.0) == SuiteSample(
        scenario="a.b", title="T", chunk_bytes=7, calls=1, rounds=2
    )
    assert [verdict.grader for verdict in sample.verdicts] == ["script", "log", "text"]
    assert 0 < sample.duration_s < runner.PLAY_S


async def test_an_expectation_that_does_not_hold_fails_the_scenario() -> None:
    """With the reason of its grader."""
    sample = await play(scenario('contains = ["2"]', 'contains = ["3"]'))
    assert sample.outcome == "fail"
    assert reasons(sample) == {"text": "the answer '2' does not say '3'"}


async def test_a_model_that_is_asked_otherwise_than_scripted_fails_the_scenario() -> None:
    """The mismatch names the call and the difference; it is never `broken`."""
    sample = await play(scenario('contains = "2"', 'result_code = "timeout"'))
    assert sample.outcome == "fail"
    assert reasons(sample)["script"] == "model call 2: result_code: expected 'timeout', got ['ok']"


async def test_a_script_with_turns_left_over_fails_the_scenario() -> None:
    """The loop ended earlier than the author thought."""
    sample = await play(scenario("[[expect]]", '[[script]]\ntext = "more"\n[[expect]]'))
    assert reasons(sample) == {"script": "1 of 3 turns were never asked for"}


async def test_a_script_that_is_too_short_fails_the_scenario() -> None:
    """The loop asked once more than there is to say."""
    sample = await play(scenario('[[script]]\nsees = { contains = "2" }\ntext = "2"\n', ""))
    assert sample.outcome == "fail"
    assert reasons(sample)["script"] == "model call 2: the script has only 1 turns"


async def test_an_upstream_that_fails_is_graded_and_not_broken() -> None:
    """What the gateway makes of a failure can be expected like anything else."""
    fails = scenario(
        'text = "2"\n[[expect]]\n', 'faults = { status = 500 }\n[[expect]]\nended = { status = "failed" }\n'
    )
    sample = await play(fails)
    assert reasons(sample) == {"text": "the answer '' does not say '2'"}


async def test_a_tool_that_the_toolkit_does_not_have_breaks_the_scenario() -> None:
    """That is the author's mistake, not the model's."""
    sample = await play(scenario('tools = ["add"]', 'tools = ["subtract"]'))
    assert sample.outcome == "broken"
    assert sample.reason.startswith("invalid_config: the toolkit has no subtract; it has state.get")


async def test_a_play_that_never_ends_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every play has an end, also when the loop has none."""
    monkeypatch.setattr(runner, "PLAY_S", 0.0)
    sample = await play(scenario())
    assert (sample.outcome, sample.reason) == ("broken", "it took longer than 0 s")


async def test_a_suite_plays_every_file_at_every_size(tmp_path: Path) -> None:
    """A file that cannot be read is one broken sample and stops nothing."""
    (tmp_path / "a.toml").write_text("id = 1")
    (tmp_path / "b.toml").write_text(ADDS)
    result = await run_suite([tmp_path], chunk_sizes=(1, None), protocols=("chat",))
    played = [(sample.scenario, sample.chunk_bytes, sample.outcome) for sample in result.samples]
    assert played == [("a", None, "broken"), ("a.b", 1, "pass"), ("a.b", None, "pass")]
    assert result.samples[0].reason == "a.toml: Expected `str`, got `int` - at `$.id`"
    assert result.exit_code == 2


async def test_only_what_is_asked_for_is_played(tmp_path: Path) -> None:
    """By a pattern of ids, or by a tag."""
    (tmp_path / "a.toml").write_text(ADDS)
    (tmp_path / "b.toml").write_text(ADDS.replace("a.b", "c.d").replace('title = "T"', 'title = "T"\ntags = ["x"]'))
    for only, wanted in ((["a.*"], {"a.b"}), (["x"], {"c.d"}), ([], {"a.b", "c.d"}), (["none"], set())):
        result = await run_suite([tmp_path], protocols=("chat",), only=only)
        assert {sample.scenario for sample in result.samples} == wanted


async def test_a_suite_of_nothing_is_an_error(tmp_path: Path) -> None:
    """A mistyped path must not look like success."""
    with pytest.raises(ConfigError, match="there is no scenario at"):
        await run_suite([tmp_path / "none"])


async def test_the_same_play_writes_the_same_verdicts() -> None:
    """Deterministic: two plays differ in nothing but the time they took."""
    first, second = await play(scenario(), 1), await play(scenario(), 1)
    assert msgspec.structs.replace(first, duration_s=0.0) == msgspec.structs.replace(second, duration_s=0.0)
