import pathlib

import msgspec
import pytest

from treadle.config.settings import LocalSection, ToolsSection
from treadle.core.errors import ConfigError
from treadle.core.json import read_json, write_json
from treadle.core.tool_definitions import Outcome, ToolPolicy
from treadle.journal.sqlite.store import SqliteStore
from treadle.runtime.toolset import make_local_tools
from treadle.tools import RunnerLimits
from treadle.tools.blocked_ports import OwnPorts
from treadle.tools.local import LOCAL_NAMES, READING, LocalCaps, local_tools
from treadle.tools.sandbox import CommandSandbox

from ..fakes import CONTEXT, call, make_runner


@pytest.fixture
def place(tmp_path: pathlib.Path) -> pathlib.Path:
    """A root with one file and one secret."""
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / ".env").write_text("KEY=1\n")
    return tmp_path


async def run(place: pathlib.Path, name: str, arguments: str, **options: object) -> Outcome:
    """Run one local tool as the engine would."""
    runner = make_runner(*local_tools(place, **options))  # type: ignore[arg-type]
    try:
        return await runner.run(call(name, arguments), CONTEXT)
    finally:
        runner.close()


def test_tools_that_read_need_nobody_and_may_run_in_parallel(place: pathlib.Path) -> None:
    """Their policy needs no approval; their source is local; their schemas are strict."""
    tools = local_tools(place)
    assert [tool.name for tool in tools] == list(LOCAL_NAMES)
    assert READING == ("glob", "file_read", "grep", "outline", "output_read")
    for tool in tools:
        assert tool.declared.source == "local"
        schema = read_json(bytes(tool.spec.parameters))
        assert schema["additionalProperties"] is False
        assert all("description" in each for each in schema["properties"].values())
        if tool.name in READING:
            assert tool.policy == ToolPolicy(effect="read", approval="never", parallel=True, timeout_s=12.0)


def test_writes_and_commands_ask_unless_they_are_trusted(place: pathlib.Path) -> None:
    """A write names its file, a command stands in the way of everything; trust takes only the question away."""
    asking = {tool.name: tool.policy for tool in local_tools(place)}
    trusted = {tool.name: tool.policy for tool in local_tools(place, is_trusted=True)}
    for name in ("file_write", "file_edit"):
        assert (asking[name].effect, asking[name].needs_approval) == ("write", True)
        assert asking[name].resources == ("file:{path}",)
        assert not trusted[name].needs_approval
    assert (asking["bash"].exec, asking["bash"].effect, asking["bash"].resources) == (True, "destructive", ("*",))
    assert asking["bash"].needs_approval
    assert not trusted["bash"].needs_approval
    assert not asking["bash"].parallel


def test_only_the_named_tools_are_made(place: pathlib.Path) -> None:
    """A name that is none says which there are."""
    assert [tool.name for tool in local_tools(place, names=["grep"])] == ["grep"]
    with pytest.raises(ConfigError, match="there is no local tool 'grap'") as caught:
        local_tools(place, names=["grap"])
    assert caught.value.param == "tools.local.enabled"


async def test_results_are_exactly_those_of_s3(place: pathlib.Path) -> None:
    """What the model reads is S3's JSON and nothing around it."""
    found = await run(place, "glob", '{"pattern":"*.py"}')
    assert (found.text, found.summary, found.rc) == ('{"output":"a.py","count":1}', "1 file found", "ok")
    text = await run(place, "file_read", '{"path":"a.py"}')
    assert (text.text, text.summary, text.rc) == ('{"output":"print(1)\\n"}', "1 line read", "ok")


async def test_errors_are_those_of_s3_with_a_code(place: pathlib.Path) -> None:
    """Errors of the tool and of the runner have the same shape."""
    missing = await run(place, "file_read", '{"path":"zzz"}')
    assert (missing.text, missing.rc) == ('{"error":"File not found: zzz","code":"not_found"}', "failed")
    masked = await run(place, "file_read", '{"path":".env"}')
    assert masked.text == '{"error":"Not readable, it may hold secrets: .env","code":"masked"}'
    wrong = read_json((await run(place, "glob", '{"pattern":"*","limit":5000}')).text)
    assert (wrong["code"], wrong["details"][0]["path"]) == ("invalid_arguments", "/limit")
    assert isinstance(wrong["error"], str)


async def test_what_a_setting_raises_is_what_a_tool_gives(place: pathlib.Path) -> None:
    """Every cap of the settings reaches its tool, and its result has room for it."""
    (place / "long").write_text("x" * 90_000 + "\n")
    assert set(LocalCaps.__struct_fields__) <= set(LocalSection.__struct_fields__)
    assert {name: getattr(LocalSection(), name) for name in LocalCaps.__struct_fields__} == msgspec.structs.asdict(
        LocalCaps()
    )
    section = ToolsSection(
        local=LocalSection(enabled=("file_read",), root=str(place), file_read_bytes_max=100_000, line_chars_max=95_000)
    )
    sandbox = CommandSandbox()
    runner = make_runner(
        *make_local_tools(section, sandbox, SqliteStore(":memory:"), OwnPorts()),
        limits=RunnerLimits(output_bytes_max=200_000),
    )
    try:
        whole = await runner.run(call("file_read", '{"path":"long"}'), CONTEXT)
        assert (read_json(whole.text), whole.truncated) == ({"output": "x" * 90_000 + "\n"}, False)
    finally:
        runner.close()
        sandbox.close()


async def test_a_result_that_the_tool_cut_is_called_truncated(place: pathlib.Path) -> None:
    """In its text, and in what events and journal say of it."""
    (place / "b.py").write_text("")
    found = await run(place, "glob", '{"pattern":"*.py","limit":1}')
    assert (read_json(found.text), found.truncated) == (
        {"output": "a.py", "count": 2, "truncated": True, "next": {"limit": 2}},
        True,
    )


@pytest.mark.parametrize("name", ["glob", "file_read", "grep", "file_write", "bash", "outline"])
async def test_results_stay_json_in_the_smallest_room(place: pathlib.Path, name: str) -> None:
    """Whatever a tool has to say, long names and errors too: a JSON object that says that it was cut."""
    long = "n" * 200
    for folder in range(3):
        (place / f"{folder}{long}").mkdir()
        (place / f"{folder}{long}" / f"{long}.py").write_text(f"def {long}(): ...\n" * 50)
    path = f"0{long}/{long}.py"
    arguments: dict[str, dict[str, object]] = {
        "glob": {"pattern": "**/*.py"},
        "file_read": {"path": f"{path}.gone"},
        "grep": {"pattern": "def"},
        "file_write": {"path": path, "content": "other\n" * 50},
        "bash": {"command": f"printf '%s\\xff' {long}{long}{long}; cd 0{long}"},
        "outline": {"path": path},
    }
    limits = RunnerLimits(output_bytes_max=256)
    tools = local_tools(place, is_trusted=True)
    runner = make_runner(*tools, limits=limits)
    try:
        found = await runner.run(call(name, write_json(arguments[name]).decode()), CONTEXT)
    finally:
        runner.close()
    assert len(found.text.encode()) <= 256
    assert read_json(found.text)["truncated"] is True
    assert found.truncated is True


async def test_a_masked_file_can_be_allowed(place: pathlib.Path) -> None:
    """Whoever configures the tools may open a name."""
    assert (await run(place, "file_read", '{"path":".env"}', allow=(".env",))).text == '{"output":"KEY=1\\n"}'


def test_a_missing_root_is_a_config_error(tmp_path: pathlib.Path) -> None:
    """It fails at the start and not at the first call."""
    with pytest.raises(ConfigError, match="cannot be opened"):
        local_tools(tmp_path / "none")
