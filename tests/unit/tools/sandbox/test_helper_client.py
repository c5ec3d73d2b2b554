import asyncio
import os
import pathlib
import signal
from collections.abc import AsyncIterator

import pytest

from treadle.tools.sandbox import CommandSandbox, FoundLevel, SandboxRules
from treadle.tools.sandbox import helper_client as client
from treadle.tools.sandbox.helper_client import Helper, Scratch
from treadle.tools.sandbox.helper_messages import CommandEnded, CommandOrder


@pytest.fixture
async def helper() -> AsyncIterator[Helper]:
    """A helper that is ended with the test."""
    made = Helper()
    yield made
    await asyncio.to_thread(made.close)


def order(command: str, **options: object) -> CommandOrder:
    """Order a shell command without confinement."""
    return CommandOrder(argv=["/bin/sh", "-c", command], cwd="/", env={"PATH": os.defpath}, **options)  # type: ignore[arg-type]


async def run(helper: Helper, asked: CommandOrder) -> tuple[bytes, CommandEnded]:
    """Run an order and return what it wrote and how it ended."""
    written: list[bytes] = []
    ended = await helper.run(asked, lambda piece: not written.append(piece))  # type: ignore[func-returns-value]
    return b"".join(written), ended


async def test_a_command_runs_and_ends(helper: Helper) -> None:
    """With its exit code, also when a signal ended it."""
    assert await run(helper, order("echo hi; exit 7")) == (b"hi\n", CommandEnded(ending="exited", code=7))
    assert (await run(helper, order("kill -9 $$")))[1].code == 137


async def test_an_order_to_run_read_only_is_refused_where_nothing_keeps_it(helper: Helper) -> None:
    """The helper does not rely on whoever wrote the order."""
    _, ended = await run(helper, order("echo ran", read_only=True))
    assert (ended.ending, "nothing keeps this command from writing" in ended.message) == ("refused", True)


async def test_a_program_that_is_not_there_is_refused(helper: Helper) -> None:
    """The reason is told, as is one of the working folder."""
    missing = CommandOrder(argv=["/nonexistent"], cwd="/", env={})
    assert (await run(helper, missing))[1].ending == "refused"
    nowhere = CommandOrder(argv=["/bin/sh", "-c", ":"], cwd="/nonexistent", env={})
    assert "/nonexistent" in (await run(helper, nowhere))[1].message


async def test_whoever_wants_no_more_ends_the_command(helper: Helper) -> None:
    """And still hears how it ended."""
    ended = await helper.run(order("yes"), lambda _: False)
    assert ended.ending == "cancelled"


async def test_a_helper_that_was_killed_is_started_again(helper: Helper) -> None:
    """The next command does not notice."""
    (pid,), _ = (await run(helper, order("ps -o ppid= -p $PPID || echo")))[0].split(), None
    os.kill(int(pid), signal.SIGKILL)
    for _ in range(200):
        written, ended = await run(helper, order("echo alive"))
        if ended.ending == "exited":
            break
        await asyncio.sleep(0.01)
    assert (written, ended.code) == (b"alive\n", 0)


def test_scratch_space_is_kept_by_key_and_removed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest goes first, what a dead process left is swept, and nothing stays at the end."""
    monkeypatch.setattr(client, "SCRATCH_MAX", 2)
    dead = tmp_path / f"{client.SCRATCH_PREFIX}999999999-x"
    dead.mkdir()
    scratch = Scratch(str(tmp_path))
    first, second = scratch.place("a"), scratch.place("b")
    assert scratch.place("a") == first
    scratch.place("c")
    assert (os.path.isdir(first), os.path.isdir(second)) == (True, False)
    scratch.close()
    assert os.listdir(tmp_path) == []


def test_an_order_follows_the_rules(tmp_path: pathlib.Path) -> None:
    """Level, folders, network and time; a search may write nothing."""
    rules = SandboxRules(env=("MY_FLAG",), read=("/srv/data",), write=("/srv/out",))
    box = CommandSandbox(rules, found=FoundLevel(level=3, abi=7), environ={"MY_FLAG": "1", "PATH": "/bin"})
    made = box.command(["/bin/true"], cwd="/w", write=["/w"], place=str(tmp_path), timeout_s=5)
    assert (made.level, made.abi, made.network, made.cpu_s) == (3, 7, False, 10)
    assert "/srv/data" in made.read
    assert made.write == ["/w", "/srv/out", str(tmp_path), f"{tmp_path}/tmp"]
    assert made.env["MY_FLAG"] == "1"
    search = box.search(["/bin/true"], cwd="/w", read=["/w"], timeout_s=5)
    assert (search.level, search.write) == (2, [])
    assert "/proc" not in search.read
    assert "/etc" not in search.read
    box.close()
