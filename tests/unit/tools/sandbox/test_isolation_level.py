import os
import pathlib
import subprocess

import pytest

from treadle.core.errors import ConfigError
from treadle.tools.sandbox import (
    FoundLevel,
    can_read_only,
    choose_level,
    describe,
    describe_read_only,
    find_level,
    shortfalls,
)
from treadle.tools.sandbox import isolation_level as level
from treadle.tools.sandbox.seccomp import program, reading_program


def test_a_level_is_found_by_trying() -> None:
    """Whatever it is, each better one has a reason."""
    found = find_level()
    assert found is find_level()
    assert sorted(found.missing) == [f"L{each}" for each in range(found.level + 1, 4)]
    assert describe(found).startswith(found.name)


def test_a_level_that_is_not_there_is_never_replaced_by_another() -> None:
    """It is an error that names the key, the reason and the best there is."""
    found = FoundLevel(level=1, abi=2, missing={"L3": "no namespaces", "L2": "Landlock is of version 2, 4 is needed"})
    with pytest.raises(ConfigError, match="L2 is not to be had here: Landlock is of version 2") as caught:
        choose_level("L2", found)
    assert (caught.value.param, caught.value.hint) == (
        "tools.local.sandbox",
        'the best level of this machine is L1; "auto" takes it',
    )
    assert choose_level("auto", found) is found


def test_a_lower_level_can_be_chosen() -> None:
    """L1 is an old kernel, L0 none at all."""
    found = FoundLevel(level=3, abi=7)
    assert choose_level("L1", found).abi == 3
    assert choose_level("L2", found) == FoundLevel(level=2, abi=7)
    assert choose_level("L0", found) == FoundLevel(level=0)


def test_what_a_level_lacks_is_said() -> None:
    """Better levels with their reasons, and what commands can do all the same."""
    said = shortfalls(FoundLevel(level=1, abi=2, missing={"L2": "old kernel"}))
    assert said[0] == "L2 is not to be had here: old kernel"
    assert "at L1: files outside can be emptied (truncate)" in said
    assert shortfalls(FoundLevel(level=3, abi=7)) == []


def test_a_probe_that_fails_means_no_confinement(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never an exception at start-up."""

    def broken(*_: object, **__: object) -> object:
        raise OSError("no more processes")

    monkeypatch.setattr(subprocess, "run", broken)
    found = level.find_level.__wrapped__()
    assert (found.level, found.missing) == (0, {"L1": "the probe failed: no more processes"})


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_jumps_only_within_itself(machine: str) -> None:
    """Every jump of the program lands on one of its steps, and it ends by allowing."""
    for network in (False, True):
        steps = program(machine, network=network, own_memory=False)
        assert all(
            at + 1 + max(step.then, step.otherwise) < len(steps) for at, step in enumerate(steps) if step.code & 7 == 5
        )
        assert steps[-1].value == 0x7FFF0000
        assert len(steps) < 4096


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("is_guarded", [True, False])
def test_the_filter_of_reading_jumps_only_within_itself(machine: str, is_guarded: bool) -> None:
    """And refuses more than the other one."""
    steps = reading_program(machine, own_memory=False, own_processes=is_guarded, truncation_is_guarded=is_guarded)
    assert all(
        at + 1 + max(step.then, step.otherwise) < len(steps) for at, step in enumerate(steps) if step.code & 7 == 5
    )
    assert len(program(machine, network=False, own_memory=False)) < len(steps) < 4096


def test_reading_is_there_from_the_first_level_on() -> None:
    """Below it there is nothing that could keep a command from writing."""
    assert [can_read_only(FoundLevel(level=each, abi=7)) for each in range(4)] == [False, True, True, True]
    assert "a person is asked about every one" in describe_read_only(FoundLevel(level=0))
    assert "mount namespace" in describe_read_only(FoundLevel(level=3, abi=7))


def test_the_helper_imports_nothing_but_the_standard_library(tmp_path: pathlib.Path) -> None:
    """Its modules load in an interpreter that has no packages at all."""
    from treadle.tools.sandbox.helper_messages import bare_command

    command = bare_command("treadle.tools.sandbox.level_probe")
    done = subprocess.run(command, capture_output=True, env={"PATH": os.defpath}, cwd=tmp_path, timeout=60, check=False)
    assert done.stderr == b""
    assert done.stdout.startswith(b'{"level": ')
