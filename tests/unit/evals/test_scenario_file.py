"""Scenario files: read strictly, with every mistake named by its place."""

import json
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from treadle.config import LimitsSection
from treadle.core.errors import ConfigError
from treadle.evals.scenario_file import (
    SCENARIOS,
    SCHEMA_NAME,
    Expect,
    ExpectedCall,
    ExpectedText,
    Scenario,
    ScenarioWorld,
    UserTurn,
    find_scenarios,
    load_scenario,
    read_scenario,
    write_schema,
)
from treadle.providers.fakes.scripted_model import ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import ReplyCall

SMALL = """
id = "a.b"
title = "T"
[[turn]]
user = "hi"
[[script]]
text = "ho"
[[expect]]
no_calls = true
"""

FULL = """
id = "recover.shrink_arguments"
title = "T"
tags = ["recover"]
tools = ["state.get", "draft.patch"]
[limits]
arguments_bytes_max = 300
[world]
draft = { foo = "" }
locks = ["/draft/bar"]
[[turn]]
user = "Set foo."
[[script]]
sees = { tools = ["state.get", "draft.patch"], last_role = "user" }
calls = [ { name = "draft.patch", raw = '{"path":' } ]
[[script]]
sees = { result_code = "invalid_arguments" }
text = "Done."
[[expect]]
mode = "any_order"
calls = [ { name = "draft.patch", args = { value = "B.*" }, optional = ["path"], compare = { value = "regex" } } ]
[[expect]]
state = { "/draft/foo" = "bar" }
absent = ["/draft/bar"]
[[expect]]
text = { contains = ["done"], excludes = ["no"], regex = ["^D"] }
calls_max = 4
"""


def test_a_scenario_is_read_into_what_it_says() -> None:
    """Every table of the format, as frozen structs; the script's tables are the scripted model's own."""
    assert read_scenario(FULL) == Scenario(
        id="recover.shrink_arguments",
        title="T",
        tags=("recover",),
        tools=("state.get", "draft.patch"),
        limits=LimitsSection(arguments_bytes_max=300),
        world=ScenarioWorld(draft={"foo": ""}, locks=("/draft/bar",)),
        turn=(UserTurn(user="Set foo."),),
        script=(
            ScriptTurn(
                sees=Sees(tools=("state.get", "draft.patch"), last_role="user"),
                calls=(ReplyCall(name="draft.patch", raw='{"path":'),),
            ),
            ScriptTurn(sees=Sees(result_code="invalid_arguments"), text="Done."),
        ),
        expect=(
            Expect(
                mode="any_order",
                calls=(
                    ExpectedCall(
                        name="draft.patch", args={"value": "B.*"}, optional=("path",), compare={"value": "regex"}
                    ),
                ),
            ),
            Expect(state={"/draft/foo": "bar"}, absent=("/draft/bar",)),
            Expect(text=ExpectedText(contains=("done",), excludes=("no",), regex=("^D",)), calls_max=4),
        ),
    )


MISTAKES = [
    ('text = "ho"', 'calls = [{ name = "a", agrs = {} }]', "unknown field `agrs` - at `$.script[0].calls[0]`"),
    ("no_calls = true", "no_call = true", "unknown field `no_call` - at `$.expect[0]`"),
    ("no_calls = true", 'no_calls = "yes"', "Expected `bool`, got `str` - at `$.expect[0].no_calls`"),
    ("no_calls = true", "", "nothing is expected - at `$.expect[0]`"),
    ("no_calls = true", 'state = { "draft" = 1 }', "starts with `/` - at `$.expect[0]`"),
    ("no_calls = true", 'text = { regex = ["("] }', "is not a regular expression"),
    (
        "no_calls = true",
        'calls = [{ name = "a", args = { x = "(" }, compare = { x = "regex" } }]',
        "is not a regular expression",
    ),
    (
        "no_calls = true",
        'calls = [{ name = "a", compare = { x = "regex" } }]',
        "`compare` names the argument `x`, which `args` and `one_of` do not - at `$.expect[0].calls[0]`",
    ),
    ("no_calls = true", 'calls = [{ name = "a", compare = { x = "fuzzy" } }]', "Invalid enum value 'fuzzy'"),
    ('title = "T"', "", "missing required field `title`"),
    ('id = "a.b"', 'id = "A b"', "- at `$.id`"),
    ('title = "T"', 'title = "T"\n[limits]\nmax_rounds = 1', "unknown field `max_rounds` - at `$.limits`"),
    ('title = "T"', 'title = "T"\n[limits]\nmax_iterations = 0', "- at `$.limits.max_iterations`"),
    ('title = "T"', 'title = "T', "x.toml is not TOML: "),
    ('title = "T"', 'title = "T"\nprotocols = ["smtp"]', "Invalid enum value 'smtp' - at `$.protocols[0]`"),
    ('title = "T"', 'title = "T"\ndistractors = 41', "- at `$.distractors`"),
    ('user = "hi"', 'user = "hi"\nleave_at = "lunch"', "Invalid enum value 'lunch' - at `$.turn[0].leave_at`"),
    ("no_calls = true", 'only = "live"', "nothing is expected - at `$.expect[0]`"),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[new or "nothing" for _, new, _ in MISTAKES])
def test_a_mistake_is_named_by_its_place(old: str, new: str, message: str) -> None:
    """A typo, a wrong type, a bad pattern or pointer, and a missing table are errors that say where."""
    assert read_scenario(SMALL).id == "a.b"
    with pytest.raises(ConfigError) as caught:
        read_scenario(SMALL.replace(old, new), "x.toml")
    assert message in caught.value.message
    assert caught.value.message.startswith("x.toml")


def test_a_typo_is_told_what_was_probably_meant() -> None:
    """The hint names the nearest field there is."""
    with pytest.raises(ConfigError) as caught:
        read_scenario(SMALL.replace("no_calls = true", "no_call = true"))
    assert caught.value.info.hint == "did you mean `no_calls`?"


def test_the_schema_for_editors_is_what_the_reader_takes() -> None:
    """The file that is shipped is the one that the structs make: `treadle eval schema` renews it."""
    assert (SCENARIOS / SCHEMA_NAME).read_bytes() == write_schema()


@pytest.mark.parametrize("path", find_scenarios(), ids=lambda path: path.stem)
def test_every_scenario_fits_the_schema_for_editors(path: Path) -> None:
    """What is read is also what an editor accepts."""
    schema = json.loads(write_schema())
    jsonschema_rs.validate(schema, tomllib.loads(path.read_text(encoding="utf-8")))


def test_the_schema_refuses_a_typo() -> None:
    """An editor marks what the reader would refuse."""
    document = tomllib.loads(SMALL.replace("no_calls", "no_call"))
    assert not jsonschema_rs.is_valid(json.loads(write_schema()), document)


def test_a_scenario_is_found_by_pattern_and_tag() -> None:
    """No pattern finds all."""
    found = read_scenario(FULL)
    assert [found.matches(each) for each in ([], ["recover.*"], ["recover"], ["select"])] == [True, True, True, False]


@pytest.mark.parametrize("table", ["turn", "script", "expect"])
def test_a_scenario_without_one_of_its_tables_is_refused(table: str) -> None:
    """Nothing said, nothing played or nothing expected is no scenario."""
    blocks = [block for block in SMALL.split("[[") if not block.startswith(table)]
    with pytest.raises(ConfigError, match=f"missing required field `{table}`"):
        read_scenario("[[".join(blocks))


def test_the_scenarios_that_come_with_treadle_can_all_be_read() -> None:
    """Each has an id of its own, and its file is named after nothing else."""
    scenarios = [load_scenario(path) for path in find_scenarios()]
    assert len(scenarios) >= 60
    assert len({scenario.id for scenario in scenarios}) == len(scenarios)


def test_files_and_folders_are_found(tmp_path: Path) -> None:
    """A folder gives its files in order, deeper ones too; a file gives itself; nothing gives the built-in ones."""
    deep = tmp_path / "b" / "deep.toml"
    deep.parent.mkdir()
    for file in (deep, tmp_path / "a.toml", tmp_path / "c.txt"):
        file.write_text(SMALL)
    assert find_scenarios(tmp_path) == [tmp_path / "a.toml", deep]
    assert find_scenarios(deep, tmp_path / "a.toml") == [deep, tmp_path / "a.toml"]
    assert find_scenarios() == sorted(SCENARIOS.glob("*.toml"))


def test_a_path_without_a_scenario_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Neither a missing file nor an empty folder passes silently."""
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match=f"there is no scenario at {path}"):
            find_scenarios(path)


def test_a_file_that_is_not_text_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Never a traceback."""
    file = tmp_path / "bad.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bad\.toml cannot be read"):
        load_scenario(file)


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ("parameters = '{'", "`parameters` is not JSON"),
        ("parameters = '[]'", "`parameters` is not a JSON object"),
        ("effect = 'odd'", "Invalid enum value 'odd'"),
        ("results = [{ outptu = 'x' }]", "unknown field `outptu`"),
    ],
)
def test_a_canned_tool_is_read_as_strictly(tool: str, message: str) -> None:
    """A mistake in it is named by its place."""
    with pytest.raises(ConfigError) as caught:
        read_scenario(f"{SMALL}[[tool]]\nname = 'f'\n{tool}\n")
    assert message in caught.value.message
    assert "$.tool[0]" in caught.value.message


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        ("text = {}", "needs something in `contains`"),
        ('text = { contains = [""] }', "nothing empty"),
        ('mines = ["cal:add"]', "`cal:add` is not call:NAME"),
        ('milestones = ["call: add"]', "`call: add` is not call:NAME"),
        ('calls = []\nmode = "superset"', "nothing could fail it"),
    ],
)
def test_an_expectation_that_nothing_can_fail_is_refused(expect: str, told: str) -> None:
    """A misspelled mine would never go off."""
    toml = f'id = "a.b"\ntitle = "t"\n[[turn]]\nuser = "u"\n[[script]]\ntext = "x"\n[[expect]]\n{expect}\n'
    with pytest.raises(ConfigError) as caught:
        read_scenario(toml)
    assert told in caught.value.message
