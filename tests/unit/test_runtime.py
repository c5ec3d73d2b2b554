import asyncio
import re
import threading
from pathlib import Path

import pytest

from treadle import Runtime, Settings, TextDelta, ToolFinished, tool
from treadle.config import LimitsSection, LocalSection, StoreSection, ToolsSection, Upstream
from treadle.config.settings import WebSection
from treadle.core.errors import ConfigError, NotFound, RequestError
from treadle.core.events import RunEnded, RunEvent
from treadle.core.ids import CountingIds
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.runtime import Parts

QUICK = Parts(demo_delay_s=0)


@tool(effect="read")
def double(number: int) -> int:
    """Double a number.

    Args:
        number: What to double.
    """
    return 2 * number


def settings(folder: Path, **sections: object) -> Settings:
    """Return settings with a store of their own."""
    return Settings(store=StoreSection(url=f"sqlite:///{folder / 'treadle.db'}"), **sections)


async def told(runtime: Runtime, prompt: str, **how: object) -> list[RunEvent]:
    """Return the events of one prompt."""
    return [event async for event in runtime.run(prompt, **how)]


def text(events: list[RunEvent]) -> str:
    """Return what was said."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_the_demo_answers_from_a_real_tool(tmp_path: Path):
    """With no settings at all there is a model and a tool, and no key is needed."""
    async with Runtime(settings(tmp_path), parts=QUICK) as runtime:
        events = await told(runtime, "What is the weather in Paris?")
    called = [event.call.name for event in events if isinstance(event, ToolFinished)]
    assert called == ["get_weather"]
    assert "Paris" in text(events)
    assert isinstance(events[-1], RunEnded)
    assert events[-1].status == "completed"


async def test_a_decorated_function_is_a_tool(tmp_path: Path):
    """The library's promise: a function with hints and a docstring, a model, a prompt."""
    script = Script(
        turns=(ScriptTurn(calls=(ReplyCall(name="double", args={"number": 21}),)), ScriptTurn(text="It is 42."))
    )
    model = ScriptedModel(script, ids=CountingIds())
    async with Runtime(settings(tmp_path), tools=[double], model=model) as runtime:
        events = await told(runtime, "double 21")
        assert [spec.name for spec in runtime.registry.tools()] == ["double"]
    assert text(events) == "It is 42."
    results = [event.result.output[0].text for event in events if isinstance(event, ToolFinished)]
    assert results == ["42"]


async def test_a_session_goes_on_where_it_was(tmp_path: Path):
    """The second prompt of a session is answered with the first in sight, also by another process."""
    script = Script(turns=(ScriptTurn(text="Noted."), ScriptTurn(text="Blue.")))
    model = ScriptedModel(script, ids=CountingIds())
    async with Runtime(settings(tmp_path), model=model) as runtime:
        await told(runtime, "My colour is blue.", session="work")
    async with Runtime(settings(tmp_path), model=model) as runtime:
        await told(runtime, "Which colour?", session="work")
    assert len(model.player.plans[1].items) == 3


async def test_leaving_early_cancels_the_run(tmp_path: Path):
    """Whoever stops reading stops the run."""
    async with Runtime(settings(tmp_path), parts=Parts(demo_delay_s=0.001)) as runtime:
        events = runtime.run("hello")
        async for event in events:
            if isinstance(event, TextDelta):
                break
        await events.aclose()
        assert [row.status for row in await runtime.store.list_runs()] == ["cancelled"]


async def test_a_switch_turns_every_server_tool_off(tmp_path: Path):
    """ENABLE_TOOLS=false leaves nothing to call."""
    chosen = settings(tmp_path, tools=ToolsSection(enabled=False))
    async with Runtime(chosen, parts=QUICK) as runtime:
        events = await told(runtime, "What is the weather in Paris?")
    assert not [event for event in events if isinstance(event, ToolFinished)]


async def test_local_tools_are_those_that_are_named(tmp_path: Path):
    """Off unless configured, and an unknown name says which there are."""
    local = LocalSection(enabled=("glob",), root=str(tmp_path))
    runtime = Runtime(settings(tmp_path, tools=ToolsSection(local=local, demo=False)))
    assert [spec.name for spec in runtime.registry.tools()] == ["glob"]
    with pytest.raises(ConfigError) as caught:
        Runtime(settings(tmp_path, tools=ToolsSection(local=LocalSection(enabled=("rm",)))))
    assert "glob" in (caught.value.hint or "")


async def test_an_unknown_model_is_not_found(tmp_path: Path):
    """The error names what there is."""
    upstream = Upstream(name="one", base_url="http://127.0.0.1:1/v1", models=("a",))
    other = Upstream(name="two", base_url="http://127.0.0.1:1/v1", models=("b",))
    async with Runtime(settings(tmp_path, upstream=(upstream, other))) as runtime:
        with pytest.raises(NotFound):
            await told(runtime, "hi", model="zzz")


async def test_a_session_needs_a_name(tmp_path: Path):
    """Blank and endless names are refused."""
    async with Runtime(settings(tmp_path), parts=QUICK) as runtime:
        for name in (" ", "x" * 201):
            with pytest.raises(RequestError):
                await told(runtime, "hi", session=name)


async def test_a_key_of_the_environment_reaches_no_repr(tmp_path: Path):
    """The runtime knows it, its parts do not show it."""
    upstream = Upstream(name="one", base_url="http://127.0.0.1:1/v1", key_env="ONE_KEY")
    runtime = Runtime(settings(tmp_path, upstream=(upstream,)), parts=Parts(env={"ONE_KEY": "sk-very-secret"}))
    assert "sk-very-secret" not in repr(vars(runtime))
    assert runtime.redactor.text("x sk-very-secret y") == "x [redacted] y"


async def test_a_tool_that_names_no_time_gets_the_configured_one(tmp_path: Path):
    """`limits.tool_timeout_s` is the default, not a cap: a tool's own time stands."""

    @tool(timeout_s=3)
    def quick() -> str:
        """Be quick."""
        return "ok"

    runtime = Runtime(settings(tmp_path, limits=LimitsSection(tool_timeout_s=25)), tools=[double, quick])
    assert {each.name: each.policy.timeout_s for each in runtime.registry.tools()} == {"double": 25, "quick": 3}


async def test_output_over_the_cap_is_kept_behind_a_handle(tmp_path: Path):
    """The model reads what fits and a handle; the whole is in the store."""

    @tool(effect="read")
    def long() -> str:
        """Say much."""
        return "x" * 5_000

    script = Script(turns=(ScriptTurn(calls=(ReplyCall(name="long"),)), ScriptTurn(text="ok")))
    chosen = settings(tmp_path, limits=LimitsSection(max_tool_output_bytes=1_000))
    async with Runtime(chosen, tools=[long], model=ScriptedModel(script, ids=CountingIds())) as runtime:
        events = await told(runtime, "go")
        shown = next(event.result.output[0].text for event in events if isinstance(event, ToolFinished))
        assert len(shown.encode()) <= 1_000
        handle = re.search(r"[0-9a-f]{64}", shown)
        assert handle is not None
        assert await runtime.store.get_blob(handle[0], 0, 10_000) == b"x" * 5_000


async def test_a_shell_that_nothing_confines_must_be_meant(tmp_path: Path):
    """At L0 bash is refused at start, with the key that allows it; a level that is not there is refused too."""
    chosen = {"enabled": ("bash",), "root": str(tmp_path), "sandbox": "L0"}
    with pytest.raises(ConfigError, match="bash would run unconfined") as caught:
        Runtime(settings(tmp_path, tools=ToolsSection(local=LocalSection(**chosen))))
    assert "allow_unconfined" in (caught.value.hint or "")
    allowed = LocalSection(**chosen, allow_unconfined=True)
    runtime = Runtime(settings(tmp_path, tools=ToolsSection(local=allowed, demo=False)))
    assert [tool.name for tool in runtime.registry.tools()] == ["bash"]


async def test_the_web_is_off_until_it_is_asked_for(tmp_path: Path):
    """And then it is one tool, marked as reaching out."""
    off = Runtime(settings(tmp_path, tools=ToolsSection(demo=False)))
    assert off.registry.get("http_get") is None
    on = Runtime(settings(tmp_path, tools=ToolsSection(demo=False, web=WebSection(enabled=True))))
    found = on.registry.get("http_get")
    assert found is not None
    assert found.policy.egress


async def test_a_session_that_many_make_at_once_is_one(tmp_path: Path):
    """Whoever comes second finds what the first has made."""
    async with Runtime(settings(tmp_path), parts=QUICK) as runtime:
        made = await asyncio.gather(*(runtime.session("travel") for _ in range(5)))
        assert len(await runtime.store.list_sessions()) == 1
    assert len(set(made)) == 1


async def test_a_runtime_that_cannot_open_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its heart does not beat on: it would take runs over in the name of nobody."""
    runtime = Runtime(settings(tmp_path), parts=QUICK)

    async def away(_: object) -> None:
        raise ConfigError("there is no Temporal")

    monkeypatch.setattr(runtime.runs._runner, "open", away)
    tasks, threads = asyncio.all_tasks(), {*threading.enumerate()}
    with pytest.raises(ConfigError, match="there is no Temporal"):
        await runtime.open()
    assert asyncio.all_tasks() == tasks
    left = [thread for thread in threading.enumerate() if thread not in threads]
    for thread in left:
        await asyncio.to_thread(thread.join, 5)
    assert not [thread.name for thread in left if thread.is_alive()]


async def test_a_runtime_is_opened_once(tmp_path: Path):
    """Open or closed, the second time says what to do, and harms nobody."""
    runtime = Runtime(settings(tmp_path), parts=QUICK)
    async with runtime:
        with pytest.raises(RuntimeError, match="make another one"):
            await runtime.open()
        assert isinstance((await told(runtime, "hello"))[-1], RunEnded)
    with pytest.raises(RuntimeError, match="make another one"):
        await runtime.open()
