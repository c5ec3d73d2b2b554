"""What two processes of a journal differ in, and what each does about it."""

import asyncio
import logging

import msgspec
import pytest

from treadle.config import Route, Settings, StoreSection, Upstream
from treadle.config.access_settings import RatesSection
from treadle.core.errors import StoreError
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.journal.memory_store import MemoryStore
from treadle.runtime.replica_comparison import NAMES_MAX, Facts, Replicas, differences, facts_of
from treadle.telemetry import Metrics
from unit.runtime.test_store_health_check import Clock

BOUND_S = 20.0
UP = Upstream(name="up", base_url="https://user:hunter2@api.example/v1", models=("m",), headers={"x-org": "hunter2"})
BASE = Settings(store=StoreSection(persistence="off"), upstream=(UP,))


def tool(name: str, effect: str = "read", description: str = "", source: str = "python") -> ServerTool:
    """Return a tool."""
    policy = msgspec.convert({"effect": effect}, ToolPolicy)
    return ServerTool(spec=ToolSpec(name=name, description=description), policy=policy, source=source)


@pytest.mark.parametrize(
    ("settings", "tools", "secret", "expected"),
    [
        (BASE, [tool("a")], "one", {}),
        (BASE, [tool("a")], "", {}),
        (BASE, [tool("a")], "two", {"secret": ("TREADLE_SECRET",)}),
        (BASE, [], "one", {"tools": ("a",)}),
        (BASE, [tool("a", "write")], "one", {"tools": ("a",)}),
        (BASE, [tool("a", description="other")], "one", {"tools": ("a",)}),
        (BASE, [tool("a", source="mcp:x"), tool("b")], "one", {"tools": ("a", "b")}),
        (
            msgspec.structs.replace(BASE, route=(Route(model="m*", upstream="up"),)),
            [tool("a")],
            "one",
            {"routes": ("route 0 m*",)},
        ),
        (
            msgspec.structs.replace(BASE, rates=RatesSection(url="redis://:pw@cache:6379/0")),
            [tool("a")],
            "one",
            {"rates": ("rates.url",)},
        ),
    ],
)
def test_what_differs_is_named(
    settings: Settings, tools: list[ServerTool], secret: str, expected: dict[str, tuple[str, ...]]
) -> None:
    """By kind, the same from either side; a process that needs no secret has none to compare."""
    here, there = facts_of(BASE, [tool("a")], "one"), facts_of(settings, tools, secret)
    assert (differences(here, there), differences(there, here)) == (expected, expected)


def test_a_chat_beside_a_server_differs_only_in_what_matters() -> None:
    """Its own tools, routes and counters are what it is for; another secret or version is said all the same."""
    other = msgspec.structs.replace(BASE, upstream=(), rates=RatesSection(url="redis://cache:6379/0"))
    server = facts_of(BASE, [tool("a")], "one")
    chat = facts_of(other, [tool("b")], "two", is_local=True)
    assert differences(server, chat) == differences(chat, server) == {"secret": ("TREADLE_SECRET",)}
    newer = msgspec.structs.replace(chat, secret="", version="99")
    assert differences(server, newer) == {"version": ("99",)}
    assert sorted(differences(server, msgspec.structs.replace(newer, is_local=False))) == sorted(
        ("tools", "routes", "rates", "version")
    )


def test_nothing_secret_is_told() -> None:
    """Credentials in addresses and headers make no difference and are not in what others read."""
    other = msgspec.structs.replace(UP, base_url="https://api.example/v1", headers={})
    here, there = facts_of(BASE, [], "x"), facts_of(msgspec.structs.replace(BASE, upstream=(other,)), [], "x")
    assert differences(here, there) == {}
    assert b"hunter2" not in msgspec.json.encode(here)


def test_many_names_are_counted() -> None:
    """A log line stays a line."""
    names = [f"t{n:02}" for n in range(NAMES_MAX + 3)]
    found = differences(Facts(tools=dict.fromkeys(names, "x")), Facts())["tools"]
    assert found == (*names[:NAMES_MAX], "and 3 more")


async def test_who_is_alone_writes_nothing_until_another_comes() -> None:
    """An idle journal on a laptop is left in peace; two that come after one another still see each other."""
    store, facts = MemoryStore(), {"one": Facts(version="1"), "two": Facts(version="2")}
    await store.open()
    try:
        one, two = (Replicas(store, Clock(), Metrics(), name, lambda _, n=name: facts[n]) for name in ("one", "two"))
        await one.beat()
        before = await store.replicas.living(1e9)
        await one.beat()
        again = await store.replicas.living(1e9)
        assert [each.silent_s for each in again] > [each.silent_s for each in before]
        await two.beat()
        await one.beat()
        assert [(each.owner, each.is_self, each.differs) for each in one.seen] == [
            ("one", True, {}),
            ("two", False, {"version": ("2",)}),
        ]
        assert [(each.owner, each.differs) for each in two.seen] == [("one", {"version": ("1",)}), ("two", {})]
    finally:
        await store.close()


class Ticks(Clock):
    """A clock on which whoever waits goes on when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping = asyncio.Event()
        self.tick = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait for the next tick."""
        self.sleeping.set()
        await self.tick.wait()
        self.tick.clear()


@pytest.mark.parametrize("error", [StoreError("away"), ValueError("a bug")], ids=["store", "bug"])
async def test_a_look_that_fails_is_logged_once_and_is_not_the_last(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nobody would learn that replicas are not compared any more; when they are again, that is said too."""
    store, clock = MemoryStore(), Ticks()
    await store.open()
    replicas = Replicas(store, clock, Metrics(), "one", lambda _: Facts(version="1"))

    async def look_again() -> None:
        async with asyncio.timeout(BOUND_S):
            await clock.sleeping.wait()
            clock.sleeping.clear()
            clock.tick.set()
            await clock.sleeping.wait()

    async def broken() -> None:
        raise error

    try:
        await replicas.open()
        with monkeypatch.context() as patched:
            patched.setattr(replicas, "beat", broken)
            for _ in range(3):
                await look_again()
        await look_again()
    finally:
        await replicas.close()
        await store.close()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line for line in said if line.startswith("replicas not compared:")] == [f"replicas not compared: {error}"]
    assert said[-1] == "replicas are compared again"
    assert [each.owner for each in replicas.seen] == ["one"]


async def test_one_with_another_secret_than_the_keys_makes_no_other_unready() -> None:
    """However early it came: the secret that keys were proved under is the right one."""
    store = MemoryStore()
    await store.open()
    try:
        odd, good = (
            Replicas(store, Clock(), Metrics(), secret, lambda _, each=secret: Facts(secret=each))
            for secret in ("odd", "good")
        )
        await odd.beat()
        await store.replicas.note_secret("good")
        await good.beat()
        await odd.beat()
        assert good.problem is None
        assert odd.problem is not None
        assert odd.problem.info.code == "store_secret"
    finally:
        await store.close()


async def test_others_have_a_tool_only_with_its_effect_and_source() -> None:
    """All of those that are asked for, at one and the same process."""
    store = MemoryStore()
    await store.open()
    try:
        theirs = facts_of(BASE, [tool("a", "write"), tool("b")], "")
        one = Replicas(store, Clock(), Metrics(), "one", lambda _: Facts())
        two = Replicas(store, Clock(), Metrics(), "two", lambda _: theirs)
        await two.beat()
        await one.beat()
        asked = (["a write python"], ["a write python", "b read python"], ["a read python"], ["c read python"])
        assert [one.are_tools_elsewhere(each) for each in asked] == [True, True, False, False]
        assert not two.are_tools_elsewhere(["a write python"])
    finally:
        await store.close()
