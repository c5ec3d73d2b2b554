"""The questions of bfcl-eval: read out of the archive, asked through a real gateway, judged by our own checker."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.core.errors import BrokenStream, ConfigError
from treadle.core.plan import Plan
from treadle.evals.bfcl.answer_checker import check_calls, is_alike
from treadle.evals.bfcl.bfcl_client import BfclClient
from treadle.evals.bfcl.bfcl_runner import BfclOptions, run_bfcl
from treadle.evals.bfcl.dataset import MORE_FUNCTIONS, SETS, Archive, BfclQuestion, TruthCall, find_wheel, read_call
from treadle.evals.bfcl.ground_truth_model import truth_calls
from treadle.evals.bfcl.stateful_classes import Worlds, differences, missing
from treadle.http.client_pool import ClientPool
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from unit.evals.bfcl.archives import FUNCTION, write_archive

REAL = os.environ.get("TREADLE_BFCL", "")
"""The archive itself; read here because tests see no variables of Treadle's."""
SMALL = ("simple_python", "parallel", "irrelevance", "live_relevance", "multi_turn_miss_func")


@pytest.fixture
def wheel(tmp_path: Path) -> Iterator[Path]:
    """Return the small archive; what is imported from it is forgotten afterwards."""
    yield write_archive(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "bfcl_eval"]:
        del sys.modules[name]


def question(wheel: Path, name: str) -> BfclQuestion:
    """Return the first question of a set."""
    return next(Archive(wheel).questions(name))


def test_schemas_are_said_in_json_schema(wheel: Path) -> None:
    """Types of Python become those of JSON; any is none."""
    (function,) = question(wheel, "simple_python").functions
    properties = function.parameters["properties"]
    assert function.name == FUNCTION["name"]
    assert (function.parameters["type"], properties["height"]["type"]) == ("object", "number")
    assert properties["options"] == {"type": "object", "properties": {"round": {}}}


def test_a_missing_function_is_offered_when_its_turn_comes(wheel: Path) -> None:
    """And the user says so."""
    found = question(wheel, "multi_turn_miss_func")
    assert [[each.name for each in found.offered(turn)] for turn in range(3)] == [["ls"], ["ls"], ["touch", "ls"]]
    assert found.turns[2][0]["content"] == MORE_FUNCTIONS
    assert found.truth[2] == [
        TruthCall(name="touch", arguments={"file_name": "b.txt"}),
        TruthCall(name="ls", arguments={}),
    ]


def test_a_question_whose_truth_calls_what_is_not_offered_is_left_out(wheel: Path) -> None:
    """The archive has such: nobody could answer it."""
    found = question(wheel, "multi_turn_miss_func")
    early = msgspec.structs.replace(found, later={3: ["touch"]})
    assert (found.is_sound, early.is_sound, question(wheel, "parallel").is_sound) == (True, False, True)


@pytest.mark.parametrize("text", ["f(", "f(x=y)", "1 + 1", "f('a', 'b')"])
def test_a_call_that_is_none_is_an_error(text: str) -> None:
    """Nothing is evaluated: only literals are read."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_call(text, {"f": ["a"]})


def test_an_archive_that_is_none_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how to get one."""
    monkeypatch.delenv("TREADLE_BFCL", raising=False)
    with pytest.raises(ConfigError, match="no wheel of bfcl-eval") as caught:
        find_wheel(None)
    assert "pip download" in (caught.value.info.hint or "")
    (tmp_path / "x.whl").write_bytes(b"no")
    with pytest.raises(ConfigError, match="is no wheel"):
        Archive(tmp_path / "x.whl")
    with pytest.raises(ConfigError, match="has no BFCL_v4_multiple"):
        next(Archive(write_archive(tmp_path)).questions("multiple"))


ALIKE: list[tuple[Any, Any, bool]] = [
    (5, 5.0, True),
    (5, "5", False),
    (1, True, False),
    ("New  York", "new york", True),
    ("/draft/foo", "draftfoo", False),
    ("1.5", "15", False),
    ([1, 2], [1, 2], True),
    ([1, 2], [2, 1], False),
    ({"a": [1, 2]}, {"a": 2}, True),
    ({"a": [1, ""]}, {}, True),
    ({"a": [1]}, {}, False),
    ({"a": [1]}, {"a": 1, "b": 2}, False),
    ([{"a": ["x"]}], [{"a": "X"}], True),
    (None, None, True),
]


@pytest.mark.parametrize(("wanted", "value", "answer"), ALIKE)
def test_values_are_compared_without_stripping_them(wanted: Any, value: Any, answer: bool) -> None:
    """Case and spacing, and numbers by value; nothing else."""
    assert is_alike(wanted, value) is answer


def test_calls_are_checked_against_what_is_accepted(wheel: Path) -> None:
    """Any order; none missing, none too much, every argument accepted."""
    simple, parallel = question(wheel, "simple_python"), question(wheel, "parallel")
    good = {"base": 10, "height": 5, "unit": "CM"}
    assert check_calls(simple, [("geo.area", good)]) is None
    assert check_calls(simple, [("geo.area", {"base": 10, "height": 5, "options": {}})]) is None
    for bad in ({"base": 10}, {**good, "unit": "m"}, {**good, "depth": 1}, "text"):
        assert "no call fits" in (check_calls(simple, [("geo.area", bad)]) or "")
    assert "no call fits" in (check_calls(simple, [("area", good)]) or "")
    assert "expected 1 calls" in (check_calls(simple, []) or "")
    one, two = ("geo.area", {"base": 1, "height": 2}), ("geo.area", {"base": 3, "height": 4})
    assert check_calls(parallel, [two, one]) is None
    assert "no call fits" in (check_calls(parallel, [one, one]) or "")
    unsaid = msgspec.structs.replace(simple, answers=[{"geo.area": {"base": [1], "tags": []}}])
    assert check_calls(unsaid, [("geo.area", {"base": 1})]) is None
    assert check_calls(unsaid, [("geo.area", {"base": 1, "tags": []})]) is None
    assert "no call fits" in (check_calls(unsaid, [("geo.area", {"base": 1, "tags": [2]})]) or "")
    assert check_calls(question(wheel, "irrelevance"), []) is None
    assert "expected no call" in (check_calls(question(wheel, "irrelevance"), [one]) or "")
    assert check_calls(question(wheel, "live_relevance"), [one]) is None
    assert check_calls(question(wheel, "live_relevance"), []) == "expected some call"


def test_worlds_are_run_and_compared(wheel: Path) -> None:
    """By what is public in them; what fails says so, in text."""
    worlds = Worlds(wheel)
    asked = question(wheel, "multi_turn_miss_func")
    one, two = worlds.make(asked), worlds.make(asked)
    assert differences(one, two) == []
    assert one.run(TruthCall(name="touch", arguments={"file_name": "b.txt"})) == '{"created":"b.txt"}'
    assert differences(one, two) == ["GorillaFileSystem.root"]
    assert two.run(TruthCall(name="touch", arguments={"wrong": 1})).startswith("Error during execution: ")
    assert two.run(TruthCall(name="_load_scenario", arguments={})).endswith("there is no function _load_scenario")
    assert missing(["a", "a"], ["a", "b"]) == ["a"]


async def test_the_truth_passes_through_the_gateway_without_loss(wheel: Path) -> None:
    """Dotted names, floats, turns, functions that come later: on both APIs, over HTTP."""
    rows = await run_bfcl(BfclOptions(wheel=wheel, sets=SMALL))
    assert [(row.model, row.outcome, row.reason) for row in rows if row.outcome != "pass"] == []
    assert {row.model for row in rows} == {"truth via chat", "truth via responses"}
    assert len(rows) == 2 * len(SMALL)
    assert len({row.key for row in rows}) == len(rows)


async def test_requests_are_bounded(wheel: Path) -> None:
    """No question is begun beyond the bound; one that is, is asked to its end."""
    rows = await run_bfcl(BfclOptions(wheel=wheel, sets=SMALL, requests_max=2, jobs=1))
    assert len(rows) == 2
    assert {row.outcome for row in rows} == {"pass"}


async def test_a_gateway_that_is_gone_is_broken(wheel: Path) -> None:
    """The model is not blamed for it."""
    client = BfclClient(ClientPool(1), "http://127.0.0.1:9/v1", "chat", "m")
    with pytest.raises(BrokenStream, match="did not answer"):
        await client.ask([{"role": "user", "content": "hi"}], [])


async def test_a_model_that_errs_is_found_out(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong value, a call too much, a state that differs, a call that should not be."""

    def wrong(self: object, plan: Plan) -> Reply:
        return Reply(calls=(ReplyCall(name=plan.tools[0].name, args={"base": 7}, id=f"c{len(plan.items)}"),))

    monkeypatch.setattr("treadle.evals.bfcl.ground_truth_model.TruthPlayer.__call__", wrong)
    monkeypatch.setattr("treadle.evals.bfcl.bfcl_runner.STEPS_MAX", 2)
    rows = await run_bfcl(BfclOptions(wheel=wheel, sets=SMALL, apis=("chat",)))
    reasons = {row.title: row.reason for row in rows}
    assert {row.title for row in rows if row.outcome == "fail"} == set(SMALL) - {"live_relevance"}
    assert "expected no call" in reasons["irrelevance"]
    assert "turn 1: never seen" in reasons["multi_turn_miss_func"]


def test_the_truth_takes_the_first_of_what_is_accepted(wheel: Path) -> None:
    """Also inside an object; what may be left out, and comes first, is left out."""
    assert truth_calls(question(wheel, "simple_python"), 0) == [
        TruthCall(name="geo.area", arguments={"base": 10, "height": 5.0, "options": {"round": 2}})
    ]


async def test_an_interruption_ends_the_run_and_not_only_its_gateway(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would take the signal for itself, and every further question would be broken."""
    before = signal.getsignal(signal.SIGINT)
    seen: list[Any] = []
    ask = BfclClient.ask

    async def look(*given: Any, **named: Any) -> Any:
        seen.append(signal.getsignal(signal.SIGINT))
        return await ask(*given, **named)

    monkeypatch.setattr(BfclClient, "ask", look)
    rows = await run_bfcl(BfclOptions(wheel=wheel, sets=("simple_python",), apis=("chat",)))
    assert len(rows) == len(seen)
    assert set(seen) == {before} == {signal.getsignal(signal.SIGINT)}


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="TREADLE_BFCL names no wheel of bfcl-eval")
async def test_the_whole_archive_passes_without_loss() -> None:
    """A sample of every set of the real data, single-turn and stateful, on both APIs."""
    rows = await run_bfcl(BfclOptions(wheel=Path(REAL), sets=SETS, every=40))
    assert [(row.key, row.reason) for row in rows if row.outcome != "pass"] == []
    assert {row.title for row in rows} == set(SETS)
    assert len({(row.arm, row.scenario) for row in rows}) == len(rows)
