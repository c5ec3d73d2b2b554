"""Real processes on one journal that are not alike: what differs is said, and what would do harm is refused."""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chaos.server import TOOLS, Server, prepare
from chaos.stores import KINDS, address, violations
from chaos.test_kill import effects
from gateway.gateway import Gateway
from gateway.test_outage import ask
from person import person_headers
from treadle.cli.doctor.replica_checks import check_replicas
from treadle.cli.main import main
from treadle.config import Settings, StoreSection, ToolsSection
from treadle.config.access_settings import KeysSection
from treadle.config.local_tool_settings import LocalSection
from treadle.journal.open_store import open_store
from treadle.providers.fakes.scripted_reply import Reply
from treadle.runtime.replica_comparison import OTHER_KEYS
from treadle.terminal.conversation.open_conversation import opened_host

BOUND_S = 60.0
ROUTED = '[[upstream]]\nname = "elsewhere"\nbase_url = "http://127.0.0.1:9/v1"\nmodels = ["x"]\n'


@pytest.fixture
def started(tmp_path: Path) -> Iterator[ExitStack]:
    """Kill what was started, before the folder that it works in is removed."""
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, folder: Path, store: str, *flags: str, tools: str = TOOLS, **env: str) -> Server:
    """Start a process with tools of its own."""
    folder.mkdir()
    prepare(folder, 0.0)
    (folder / "tools.py").write_text(tools)
    server = Server(folder, store, *flags, env=env)
    stack.callback(server.kill)
    server.open()
    return server


def until(wanted: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + BOUND_S
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def get(server: Server, path: str) -> Any:
    """Return what a path of Treadle's own API says."""
    return json.loads(ask(server, "GET", path).body)


def metric(server: Server, name: str) -> float:
    """Return one number of a process."""
    lines = ask(server, "GET", "/metrics").body.decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def die_in_its_tool(server: Server, folder: Path, store: str) -> str:
    """Begin a run whose tool has its effect and is busy then, kill its process, end its lease, and return its id."""
    (folder / "pause").write_text("60")
    run_id, _ = server.begin("Please pay the amount 7")
    until(lambda: bool(effects(folder)))
    [owner] = [each["owner"] for each in get(server, "/treadle/v1/replicas")["replicas"] if each["is_self"]]
    server.kill()

    async def end_leases() -> int:
        opened = open_store(store.removeprefix("sqlite:///"))
        await opened.open()
        try:
            return await opened.end_leases(owner)
        finally:
            await opened.close()

    assert asyncio.run(end_leases()) == 1
    return run_id


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_waits_for_a_process_that_has_its_tool(started: ExitStack, kind: str, tmp_path: Path) -> None:
    """One that lacks the tool, or has it with another effect, leaves the run alone and says so; one that has it goes
    on. The effect has happened once, and no model is told that there is no such tool."""
    store = address(kind, tmp_path)
    owner = start(started, tmp_path / "a", store)
    without = start(started, tmp_path / "b", store, tools=TOOLS.replace("def pay(", "def settle("))
    other = start(
        started, tmp_path / "c", store, tools=TOOLS.replace('effect="write", timeout', 'effect="read", timeout')
    )
    run_id = die_in_its_tool(owner, tmp_path / "a", store)
    for each in (without, other):
        until(lambda each=each: metric(each, "treadle_runs_without_tool") == 1.0)
        assert get(each, "/treadle/v1/replicas")["waiting"] == [{"run_id": run_id, "tools": ["pay"]}]
        assert metric(each, "treadle_leases_taken_over_total") == 0.0
    assert get(without, f"/treadle/v1/runs/{run_id}")["status"] in ("running", "in_progress")

    again = start(started, tmp_path / "d", store)
    until(lambda: get(again, f"/treadle/v1/runs/{run_id}")["status"] == "completed")
    assert metric(again, "treadle_leases_taken_over_total") == 1.0
    for each in (without, other):
        until(lambda each=each: metric(each, "treadle_runs_without_tool") == 0.0)
    journal = json.dumps(get(again, f"/treadle/v1/runs/{run_id}"))
    assert ("There is no tool" in journal, "interrupted" in journal) == (False, True)
    assert len(effects(tmp_path / "a")) == 1
    assert effects(tmp_path / "d") == []
    assert violations(store, tmp_path / "a") == []


def test_a_run_that_waits_for_a_tool_can_be_cancelled(started: ExitStack, tmp_path: Path) -> None:
    """By any process, whether or not it has the tool: nobody is left with a run that never ends."""
    store = address("postgresql", tmp_path)
    owner = start(started, tmp_path / "a", store)
    without = start(started, tmp_path / "b", store, tools=TOOLS.replace("def pay(", "def settle("))
    run_id = die_in_its_tool(owner, tmp_path / "a", store)
    until(lambda: metric(without, "treadle_runs_without_tool") == 1.0)
    cancelled = ask(
        without,
        "POST",
        f"/treadle/v1/runs/{run_id}/cancel",
        headers={"content-type": "application/x-www-form-urlencoded", "content-length": "0", **person_headers()},
    )
    assert cancelled.status == 200, cancelled.body
    assert get(without, f"/treadle/v1/runs/{run_id}")["status"] == "cancelled"
    until(lambda: metric(without, "treadle_runs_without_tool") == 0.0)


def test_a_chat_on_the_journal_of_a_server_is_no_replica_that_differs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has tools of its own, and its own upstreams; both see each other, and neither logs a warning."""
    with Gateway(lambda _: Reply(text="Hello."), tmp_path) as gateway:

        async def sit_beside() -> None:
            store = StoreSection(url=f"sqlite:///{tmp_path / 'treadle.db'}")
            local = LocalSection(root=str(tmp_path), enabled=("file_read",))
            settings = Settings(store=store, tools=ToolsSection(local=local))
            async with opened_host(argparse.Namespace(server="", key_env=""), settings, lambda _: None) as chat:
                assert "file_read" in [tool.name for tool in await chat.tools()]
                await gateway.runtime.replicas.beat()
                assert [each.differs for each in gateway.runtime.replicas.seen] == [{}, {}]

        gateway.ask(sit_beside())
    assert "replicas differ" not in caplog.text


def test_what_differs_is_listed_counted_and_logged(started: ExitStack, tmp_path: Path) -> None:
    """Tools by name, schema and effect, routes, and shared counters; three of a kind differ in nothing."""
    store = address("postgresql", tmp_path)
    first = start(started, tmp_path / "a", store)
    second = start(started, tmp_path / "b", store)
    (tmp_path / "odd.toml").write_text(ROUTED)
    odd_tools = TOOLS.replace("amount: How much to pay.", "amount: How much to pay, in cents.")
    flags = ("--config", str(tmp_path / "odd.toml"))
    odd = start(started, tmp_path / "c", store, *flags, tools=odd_tools)

    def differs(server: Server) -> list[dict[str, list[str]]]:
        return [each["differs"] for each in get(server, "/treadle/v1/replicas")["replicas"]]

    kinds = {"tools": ["pay"], "routes": ["default model", "upstream elsewhere"]}
    until(lambda: differs(first) == [{}, {}, kinds])
    until(lambda: differs(odd) == [kinds, kinds, {}])
    until(lambda: differs(second) == [{}, {}, kinds])
    assert metric(first, "treadle_replicas") == 3.0
    assert metric(odd, 'treadle_replica_differences{kind="tools"}') == 2.0
    assert metric(odd, 'treadle_replica_differences{kind="secret"}') == 0.0
    log = [line for line in (tmp_path / "c" / "log").read_text().splitlines() if line.startswith("replicas differ")]
    lines = ("routes: default model, upstream elsewhere", "tools: pay")
    others = sorted(each["owner"] for each in get(odd, "/treadle/v1/replicas")["replicas"] if not each["is_self"])
    assert sorted(log) == [f"replicas differ in {line} ({owner})" for line in lines for owner in others]
    for each in (first, second, odd):
        assert ask(each, "GET", "/readyz").status == 200
    tools = ToolsSection(load=(str(tmp_path / "a" / "tools.py"),))
    [found] = check_replicas(Settings(store=StoreSection(url=store), tools=tools), {})
    [name] = [each["owner"] for each in get(odd, "/treadle/v1/replicas")["replicas"] if each["is_self"]]
    assert (found.state, found.detail.splitlines()) == (
        "note",
        [
            "3 share this journal just now",
            f"{name} differs in tools: pay",
            f"{name} differs in routes: default model, upstream elsewhere",
        ],
    )


def test_another_secret_is_refused(
    started: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not ready, says why, and answers good keys with 503, not 401; a key under its own secret settles it."""
    store = address("postgresql", tmp_path)
    right, wrong = "r" * 40, "w" * 40

    def key(secret: str, name: str) -> dict[str, str]:
        monkeypatch.setenv("TREADLE_SECRET", secret)
        assert main(["keys", "create", name, "--role", "admin", "--json", "--store", store]) == 0
        return {"authorization": f"Bearer {json.loads(capsys.readouterr().out)['key']}"}

    (tmp_path / "t.toml").write_text('[keys]\nrequired = "always"\n')
    flags = ("--config", str(tmp_path / "t.toml"))
    good = key(right, "ann")
    odd = start(started, tmp_path / "b", store, *flags, TREADLE_SECRET=wrong)
    until(lambda: ask(odd, "GET", "/readyz").status == 503)
    reason = json.loads(ask(odd, "GET", "/readyz").body)["reason"]
    assert reason == "store: This server has another secret than the others of the same journal."
    refused = ask(odd, "GET", "/v1/models", headers=good)
    assert (refused.status, refused.headers["retry-after"], b"store_secret" in refused.body) == (503, "1", True)
    assert "TREADLE_SECRET is not the one under which the keys" in (tmp_path / "b" / "log").read_text()

    [told] = check_replicas(
        Settings(store=StoreSection(url=store), keys=KeysSection(required="always")), {"TREADLE_SECRET": wrong}
    )
    assert (told.state, told.detail) == ("broken", OTHER_KEYS)

    even = start(started, tmp_path / "a", store, *flags, TREADLE_SECRET=right)
    until(lambda: ask(even, "GET", "/readyz").status == 200)
    assert ask(even, "GET", "/v1/models", headers=good).status == 200
    even.kill()
    other = key(wrong, "bob")
    until(lambda: ask(odd, "GET", "/readyz").status == 200)
    assert ask(odd, "GET", "/v1/models", headers=other).status == 200
    late = start(started, tmp_path / "d", store, *flags, TREADLE_SECRET=right)
    until(lambda: ask(late, "GET", "/readyz").status == 503)
    assert ask(odd, "GET", "/readyz").status == 200
