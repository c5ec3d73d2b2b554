"""The operator's switch: with ENABLE_TOOLS=false no server tool is there, by whatever way it would have come."""

import json
import urllib.request
from pathlib import Path

from gateway.gateway import Gateway
from treadle import Runtime, tool
from treadle.config import ToolsSection, load_settings
from treadle.core.errors import ToolFailed
from treadle.core.events import RoundStarted, ToolFinished
from treadle.core.ids import CountingIds
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.runtime import Parts

FILE = '''
from treadle import tool

@tool
def loaded() -> str:
    """Be loaded from a file."""
    return "ran"
'''
EVERYTHING_ON = """
[tools]
enabled = true
load = ["{folder}/own.py"]
[tools.local]
enabled = ["glob"]
root = "{folder}"
[workspace]
enabled = true
[server]
mcp = true
[[mcp]]
name = "other"
command = ["a-program-that-is-not-there"]
[store]
url = "sqlite:///{folder}/treadle.db"
"""


@tool(effect="read")
def look() -> str:
    """Look."""
    raise AssertionError("it must not run")


async def test_the_switch_wins_over_every_way_to_have_a_tool(tmp_path: Path) -> None:
    """From a file, by the library, local, of workspaces, by MCP: none is offered, and none runs when called."""
    (tmp_path / "own.py").write_text(FILE)
    config = tmp_path / "treadle.toml"
    config.write_text(EVERYTHING_ON.format(folder=tmp_path))
    env = {"HOME": str(tmp_path), "ENABLE_TOOLS": "false"}
    calls = tuple(ReplyCall(name=name, args={}) for name in ("look", "loaded", "glob"))
    model = ScriptedModel(Script(turns=(ScriptTurn(calls=calls), ScriptTurn(text="None."))), ids=CountingIds())
    settings = load_settings(str(config), env=env)
    async with Runtime(settings, tools=[look], model=model, parts=Parts(env=env)) as runtime:
        assert list(runtime.registry.tools()) == []
        events = [event async for event in runtime.run("go")]
        try:
            result = await runtime.call("look", {}, lambda _: None)
            assert result.rc == "unknown_tool"
        except ToolFailed:
            pass
    assert {event.tools for event in events if isinstance(event, RoundStarted)} == {0}
    assert {event.result.rc for event in events if isinstance(event, ToolFinished)} <= {"unknown_tool"}


def test_a_server_without_tools_says_so_and_still_answers(tmp_path: Path) -> None:
    """Its list is empty, and a client's own tools go through as ever."""
    script = Script(turns=(ScriptTurn(calls=(ReplyCall(name="mine", args={"a": 1}),)),))
    gateway = Gateway(script, tmp_path, tools=[look])
    gateway._sections["tools"] = ToolsSection(enabled=False)
    with gateway:
        with urllib.request.urlopen(f"{gateway.origin}/treadle/v1/tools", timeout=20) as answer:
            assert json.load(answer)["tools"] == []
        own = {"type": "function", "function": {"name": "mine", "parameters": {"type": "object"}}}
        body = {"model": "script", "messages": [{"role": "user", "content": "go"}], "tools": [own]}
        request = urllib.request.Request(
            f"{gateway.url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            message = json.load(answer)["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["mine"]
