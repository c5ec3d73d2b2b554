"""What a guest's calls and its end leave in the logs and in the metrics, and what they must not."""

import logging
from pathlib import Path

import pytest

from guests.wat import Wat, with_tool
from treadle.config import LimitsSection, Settings, StoreSection, Upstream
from treadle.providers.fakes.fake_server import Canned, CannedTable, ScriptServer
from treadle.providers.fakes.reply_rendering import write_frames
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.runtime import Parts, Runtime
from treadle.telemetry import JsonLines
from treadle.wasm.engine.guest_limits import Isolation, SandboxLimits
from treadle.wasm.guest_pool import GuestModule
from unit.engine.fakes import FakeModel, ask_for, call, say

SECRET = "jelly-beans"
WHERE = pytest.mark.parametrize("isolation", ["thread", "process"])


def settings(**sections: object) -> Settings:
    """Return settings with a private journal."""
    return Settings(store=StoreSection(url="sqlite:///:memory:"), **sections)


def guest(folder: Path, wat: str, isolation: Isolation = "thread") -> GuestModule:
    """Write a guest down."""
    path = folder / f"guest{len(list(folder.iterdir()))}.wat"
    path.write_text(wat)
    limits = SandboxLimits(cpu_s=0.2, wall_s=20)
    return GuestModule(name="g", path=str(path), isolation=isolation, model="script", limits=limits)


@WHERE
async def test_every_call_of_a_guests_tool_is_in_the_log_with_the_providers_request_id(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, isolation: Isolation
) -> None:
    """Iteration, tool, call, code, size and the upstream's request id; never the arguments, never the output."""
    reply = Reply(calls=(ReplyCall(name="t", args={"a": SECRET}),))
    body = b"".join(write_frames(reply, model="script", protocol="chat", tools=()))
    headers = {"content-type": "text/event-stream", "x-request-id": "req_77"}
    table = CannedTable(models={"script": Canned(body=body, headers=headers)})
    caplog.set_level(logging.DEBUG, logger="treadle")
    async with ScriptServer(table) as server:
        upstream = Upstream(name="script", base_url=server.url, models=("*",))
        chosen = settings(upstream=(upstream,), limits=LimitsSection(max_iterations=2))
        async with Runtime(chosen, parts=Parts(env={})) as runtime:
            ended = await runtime.guests.run(guest(tmp_path, with_tool(), isolation))
    assert len(ended.run_ids) == 1
    found = [vars(record) for record in caplog.records if hasattr(record, "rc")]
    names = ("run_id", "iteration", "tool_name", "rc", "output_bytes", "upstream_request_id")
    size = len(f'{{"a":"{SECRET}"}}')
    wanted = (ended.run_ids[0], 1, "t", "ok", size, "req_77")
    assert tuple(found[0][name] for name in names) == wanted
    assert {each["upstream_request_id"] for each in found} == {"req_77"}
    written = "\n".join(JsonLines().format(record) for record in caplog.records)
    assert "guest ended" in written
    assert SECRET not in written


async def test_the_metrics_count_calls_failures_bytes_cpu_stops_compiling_and_cache_hits(tmp_path: Path) -> None:
    """S0's four, and the four of guests, with their labels, after guests that ended well, trapped and ran too long."""
    model = FakeModel(ask_for(call("t", arguments='{"a":1}', call_id="a")), say("done"))
    failing = "(func $t (type $tool) (i32.const -5))"
    async with Runtime(settings(), model=model, parts=Parts(env={"XDG_DATA_HOME": str(tmp_path / "d")})) as runtime:
        good = guest(tmp_path, with_tool())
        for each in (good, good):
            await runtime.guests.run(each)
        await runtime.guests.run(guest(tmp_path, Wat().build("unreachable")))
        await runtime.guests.run(guest(tmp_path, Wat().build("(loop br 0) (i32.const 0)")))
        value = runtime.metrics.registry.value
        assert value("treadle_guest_stops_total", {"code": "ok"}) == 2
        assert value("treadle_guest_stops_total", {"code": "trap"}) == 1
        assert value("treadle_guest_stops_total", {"code": "timeout"}) == 1
        assert value("treadle_guest_cache_hits_total") == 1
        assert value("treadle_guest_compile_seconds_count") == 3
        assert (value("treadle_guest_compile_seconds_sum") or 0) > 0
        assert 0.2 <= (value("treadle_guest_cpu_seconds_total") or 0) < 5
        assert value("tool_call_failures_total", {"rc": "-5"}) is None
        assert (value("tool_call_iterations_total") or 0) >= 2
        assert value("tool_calls_total", {"tool": "unknown"}) == 1
        assert value("tool_output_bytes_total") == 7
        again = FakeModel(ask_for(call("t", call_id="b")), say("done"))
    async with Runtime(settings(), model=again, parts=Parts(env={"XDG_DATA_HOME": str(tmp_path / "d")})) as runtime:
        await runtime.guests.run(guest(tmp_path, with_tool(failing)))
        await runtime.guests.run(good)
        value = runtime.metrics.registry.value
        assert value("tool_call_failures_total", {"rc": "-5"}) == 1
        assert value("treadle_guest_cache_hits_total") == 1, "compiled by the process before this one"
