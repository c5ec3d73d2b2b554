import pathlib

import pytest

from treadle.canon.errors import ConfigError
from treadle.canon.json import read_json
from treadle.canon.tools import Outcome, ToolPolicy
from treadle.tools.local import local_tools

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


def test_both_tools_only_read_and_may_run_in_parallel(place: pathlib.Path) -> None:
    """Their policy needs no approval; their source is local; their schemas are strict."""
    tools = local_tools(place)
    assert [tool.name for tool in tools] == ["glob", "file_read"]
    for tool in tools:
        assert tool.policy == ToolPolicy(effect="read", approval="never", parallel=True, timeout_s=12.0)
        assert tool.declared.source == "local"
        schema = read_json(bytes(tool.spec.parameters))
        assert schema["additionalProperties"] is False
        assert all("description" in each for each in schema["properties"].values())


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


async def test_a_masked_file_can_be_allowed(place: pathlib.Path) -> None:
    """Whoever configures the tools may open a name."""
    assert (await run(place, "file_read", '{"path":".env"}', allow=(".env",))).text == '{"output":"KEY=1\\n"}'


def test_a_missing_root_is_a_config_error(tmp_path: pathlib.Path) -> None:
    """It fails at the start and not at the first call."""
    with pytest.raises(ConfigError, match="cannot be opened"):
        local_tools(tmp_path / "none")
