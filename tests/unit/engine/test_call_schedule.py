"""Which calls of a turn run side by side."""

import asyncio

import msgspec
import pytest

from treadle.core.events import ToolFinished
from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext, Outcome, ToolPolicy, ToolSpec, failure
from treadle.engine.call_schedule import SINGLE_CALL, claim_of, prerequisites, schedule, waves
from unit.engine.fakes import Bench, FakeModel, FakeToolbox, ask_for, call, say, server

READ = ToolPolicy(effect="read", parallel=True)
SHY = ToolPolicy(effect="read")
WRITE = ToolPolicy(effect="write", parallel=True)
FILE = ToolPolicy(effect="write", resources=("file:{path}",))
LOOK = ToolPolicy(effect="read", parallel=True, resources=("file:{path}",))
BASH = ToolPolicy(effect="destructive", resources=("*",), exec=True)
RUN = ToolPolicy(effect="read", parallel=True, exec=True)
MAKE = ToolPolicy(effect="write", resources=("file:{path}",), exec=True)


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([], []),
        ([READ], [[0]]),
        ([SHY, SHY], [[0], [1]]),
        ([READ, READ, READ], [[0, 1, 2]]),
        ([READ, WRITE, READ, READ], [[0], [1], [2, 3]]),
        ([WRITE, WRITE], [[0], [1]]),
        ([READ, SHY, READ], [[0], [1], [2]]),
        ([READ, BASH, READ], [[0], [1], [2]]),
        ([RUN, RUN], [[0], [1]]),
    ],
)
def test_only_readers_that_agree_run_side_by_side(policies: list[ToolPolicy], expected: list[list[int]]) -> None:
    """Order is kept, nothing shares a wave with what names nothing, and sequential is the default."""
    assert waves([claim_of(policy) for policy in policies]) == expected


def claims(*calls: tuple[ToolPolicy, str]):
    """What calls on these paths need."""
    return [claim_of(policy, f'{{"path":"{path}"}}') for policy, path in calls]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(FILE, "a"), (FILE, "b")], [[0, 1]]),
        ([(FILE, "a"), (FILE, "./a")], [[0], [1]]),
        ([(FILE, "src"), (FILE, "src/a.py")], [[0], [1]]),
        ([(FILE, "src/a"), (FILE, "src/ab")], [[0, 1]]),
        ([(FILE, "."), (FILE, "b")], [[0], [1]]),
        ([(FILE, "/srv/a"), (FILE, "a")], [[0], [1]]),
        ([(FILE, "../a"), (FILE, "a")], [[0], [1]]),
        ([(LOOK, "a"), (FILE, "b"), (LOOK, "a")], [[0, 1, 2]]),
        ([(LOOK, "a"), (FILE, "a"), (LOOK, "a")], [[0], [1], [2]]),
        ([(READ, "x"), (FILE, "a")], [[0], [1]]),
        ([(FILE, "a"), (BASH, "x"), (FILE, "b")], [[0], [1], [2]]),
        ([(FILE, "a"), (MAKE, "x"), (FILE, "b")], [[0], [1], [2]]),
    ],
)
def test_writes_overlap_where_they_name_different_things(
    calls: list[tuple[ToolPolicy, str]], expected: list[list[int]]
) -> None:
    """A write waits for what it conflicts with: the same path however it is spelled, and what lies below it."""
    assert waves(claims(*calls)) == expected


@pytest.mark.parametrize("arguments", ["", "{}", '{"path":1}', "[]", "{", '"path"'])
def test_a_resource_that_cannot_be_told_stands_alone(arguments: str) -> None:
    """Without its argument a write could touch anything."""
    unknown = claim_of(FILE, arguments)
    assert unknown.is_alone
    assert waves([unknown, claim_of(READ)]) == [[0], [1]]


def test_a_call_builds_on_earlier_changes_of_what_it_names() -> None:
    """Reads are no prerequisites, and neither is what works on everything."""
    found = prerequisites(claims((LOOK, "a"), (FILE, "a"), (BASH, "x"), (FILE, "b"), (LOOK, "a"), (FILE, "a")))
    assert found == [[], [], [], [], [1], [1]]


@pytest.mark.parametrize(
    ("failed", "later", "is_built_on"),
    [
        ("a", "a", True),
        ("a", "./b/../a", True),
        ("src", "src/a", True),
        ("src/a", "src", True),
        ("src/a", "src/ab", False),
        ("../x", "a", False),
        ("../x", "x", False),
        ("../x", "../x", True),
        (".", "a", False),
        ("/srv/root/src/a", "src/a", True),
        ("/srv/root/src", "src/a", True),
        ("/srv/root/src/a", "src", True),
        ("src/a", "/srv/root/src/a", True),
        ("/srv/root/a", "b", False),
        ("/etc/passwd", "src/a", False),
    ],
)
def test_only_what_names_the_same_is_built_on(failed: str, later: str, is_built_on: bool) -> None:
    """A path that leads out, or that only could be the same, holds nothing else up, however the waves are ordered."""
    assert prerequisites(claims((FILE, failed), (FILE, later)))[1] == ([0] if is_built_on else [])


def test_what_works_on_nothing_named_is_nobodys_prerequisite() -> None:
    """A failure without a resource says nothing about others."""
    assert prerequisites([claim_of(WRITE), claim_of(FILE, '{"path":"a"}'), claim_of(WRITE)]) == [[], [], []]


class Recorder(FakeToolbox):
    """Remembers who was under way together; `bad` fails."""

    def __init__(self, *bad: str) -> None:
        super().__init__()
        self.bad = bad
        self.under_way: list[str] = []
        self.together: list[set[str]] = []

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        self.under_way.append(call.call_id)
        for _ in range(3):
            await asyncio.sleep(0)
            self.together.append(set(self.under_way))
        self.under_way.remove(call.call_id)
        self.ran.append(call.call_id)
        return failure("failed", "no") if call.call_id in self.bad else Outcome(text="fine")


async def rcs_of(toolbox: Recorder, *calls: tuple[str, str]) -> list[str]:
    """Run one turn of these calls, named by number, and return the codes of their results in the order told."""
    made = [
        call(name, call_id=str(n), arguments=f'{{"path":"{path}","n":{n}}}') for n, (name, path) in enumerate(calls)
    ]
    policies = {"write": FILE, "look": LOOK, "bash": msgspec.structs.replace(BASH, approval="never")}
    offers = [
        msgspec.structs.replace(server(name), policy=policy, spec=ToolSpec(name=name))
        for name, policy in policies.items()
    ]
    bench = Bench(FakeModel(ask_for(*made), say("ok")), toolbox, *offers)
    await bench.run()
    finished = bench.of(ToolFinished)
    assert [event.call.call_id for event in finished] == [item.call_id for item in made]
    return [event.result.rc for event in finished]


async def test_a_call_is_skipped_after_the_failure_of_what_it_builds_on() -> None:
    """So is what builds on the skipped one; another file is none of their business."""
    toolbox = Recorder("0")
    rcs = await rcs_of(toolbox, ("write", "a"), ("look", "a"), ("write", "b"), ("write", "a"), ("look", "b"))
    assert rcs == ["failed", "skipped", "ok", "skipped", "ok"]
    assert sorted(toolbox.ran) == ["0", "2", "4"]


async def test_a_path_outside_the_root_holds_nothing_up() -> None:
    """It changed nothing, so neither a file of the same name nor any other is skipped."""

    class Refusing(Recorder):
        async def run(self, call: CallItem, context: CallContext) -> Outcome:
            await super().run(call, context)
            return failure("outside_root", "Outside the root") if call.call_id == "0" else Outcome(text="fine")

    assert await rcs_of(Refusing(), ("write", "/etc/a"), ("write", "a"), ("write", "b")) == ["outside_root", "ok", "ok"]


async def test_a_program_is_a_barrier() -> None:
    """Nothing is under way beside it, and it starts after what came before and ends before what comes after."""
    toolbox = Recorder()
    await rcs_of(toolbox, ("write", "a"), ("write", "b"), ("bash", "x"), ("look", "a"), ("look", "b"))
    assert {"0", "1"} in toolbox.together
    assert {"3", "4"} in toolbox.together
    assert [who for who in toolbox.together if "2" in who] == [{"2"}] * 3
    assert toolbox.ran.index("2") == 2


def test_a_lone_call_has_the_order_of_one():
    """What nearly every turn needs is not worked out each time."""
    assert schedule([(ToolPolicy(), "{}")]) == SINGLE_CALL
