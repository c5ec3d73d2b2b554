import importlib.util
import pathlib
import py_compile
import sys

import pytest

from treadle.core.errors import ConfigError
from treadle.tools import ToolContext
from treadle.tools.tool_loading import load, load_file, load_module

GOOD = """
from __future__ import annotations
import dataclasses
from treadle.tools import tool
from neighbour import SCALE

@dataclasses.dataclass
class Box:
    width: int

@tool
def area(box: Box) -> int:
    return box.width * SCALE

alias = area

def helper() -> int:
    return 1
"""


@pytest.fixture(autouse=True)
def _same_path():
    """Whatever a test loads, the import path is the same afterwards."""
    before, modules = list(sys.path), set(sys.modules)
    yield
    assert sys.path == before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_a_file_gives_its_tools_once(tmp_path: pathlib.Path) -> None:
    """Module-level tools are found, neighbours can be imported, string annotations resolve, aliases count once."""
    (tmp_path / "neighbour.py").write_text("SCALE = 3")
    (tmp_path / "mine.py").write_text(GOOD)
    [area] = load_file(tmp_path / "mine.py")
    assert area.name == "area"
    assert area.bind({"box": {"width": 2}}, ToolContext())() == 6
    assert "mine.py:" in area.origin


@pytest.mark.parametrize("place", ["./mine.py", "mine"])
def test_cached_code_of_a_neighbour_does_not_run(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The source is what a person agreed to; a cache that says it needs no check could hold anything."""
    (tmp_path / "neighbour.py").write_text("SCALE = 3")
    (tmp_path / "mine.py").write_text(GOOD)
    (tmp_path / "other.py").write_text("SCALE = 1_000")
    for name in ("neighbour", "mine"):
        cached = importlib.util.cache_from_source(str(tmp_path / f"{name}.py"))
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(tmp_path / "other.py"), cached, invalidation_mode=mode)
    monkeypatch.chdir(tmp_path)
    [area] = load(place)
    assert area.bind({"box": {"width": 2}}, ToolContext())() == 6


def test_a_module_in_the_working_directory_is_found(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--tools mytools` works from where the user stands."""
    (tmp_path / "mytools_here.py").write_text(
        "from treadle.tools import tool\n@tool\ndef one() -> int:\n    return 1\n"
    )
    monkeypatch.chdir(tmp_path)
    assert [tool.name for tool in load("mytools_here")] == ["one"]
    assert [tool.name for tool in load("./mytools_here.py")] == ["one"]


def test_loading_a_file_again_sees_its_new_text(tmp_path: pathlib.Path) -> None:
    """Reloading is loading once more."""
    place = tmp_path / "mine.py"
    text = "from treadle.tools import tool\n@tool\ndef {}() -> int:\n    return 1\n"
    place.write_text(text.format("one"))
    assert [tool.name for tool in load_file(place)] == ["one"]
    place.write_text(text.format("another_name"))
    assert [tool.name for tool in load_file(place)] == ["another_name"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "line 1: invalid syntax"),
        (
            "\n\nimport no_such_module_here\n",
            "ModuleNotFoundError: No module named 'no_such_module_here' (mine.py, line 3)",
        ),
        ("x = 1 / 0\n", "ZeroDivisionError: division by zero (mine.py, line 1)"),
        ("import sys\nsys.exit('bye')\n", "SystemExit: bye"),
        ("from treadle.tools import tool\n@tool\ndef f(a) -> int: ...\n", 'parameter "a" has no type annotation'),
        ("x = 1\n", "there are no tools in"),
        ("x = '\0'\n", "null bytes"),
    ],
)
def test_a_file_that_cannot_be_loaded_says_where_and_why(tmp_path: pathlib.Path, text: str, words: str) -> None:
    """The error names the file, the line and the cause; nothing half-loaded is left behind."""
    place = tmp_path / "mine.py"
    place.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_file(place)
    assert words in caught.value.message
    assert str(place) in caught.value.message
    assert caught.value.param == "tools"


def test_a_file_is_called_by_its_own_name(tmp_path: pathlib.Path) -> None:
    """The name that its module has only inside Treadle is not shown: not in errors, not as a tool's origin."""
    place = tmp_path / "mine.py"
    place.write_text("from treadle.tools import tool\n@tool(effect='reads')\ndef f() -> int: ...\n")
    with pytest.raises(ConfigError) as caught:
        load_file(place)
    allowed = "read, idempotent, write, destructive"
    assert caught.value.message == (
        f"cannot load tools from {place}: f (mine.py:2): effect 'reads' is not one of {allowed}"
    )
    place.write_text("from treadle.tools import tool\n@tool\ndef f() -> int: ...\n")
    assert [each.origin for each in load_file(place)] == ["f (mine.py:2)"]


def test_what_a_file_prints_while_it_is_loaded_is_no_output(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard output may be JSON that a program reads."""
    text = "from treadle.tools import tool\nprint('hello')\n@tool\ndef f() -> int: ...\n"
    (tmp_path / "printing_tools.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    load_file("printing_tools.py")
    load_module("printing_tools")
    assert capsys.readouterr() == ("", "hello\nhello\n")


def test_missing_places_are_named(tmp_path: pathlib.Path) -> None:
    """No file, no module, a directory, a file that is not Python: each is said."""
    with pytest.raises(ConfigError, match="there is no such file"):
        load_file(tmp_path / "none.py")
    with pytest.raises(ConfigError, match="there is no such file"):
        load_file(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(ConfigError, match="not a Python file"):
        load_file(tmp_path / "x.txt")
    with pytest.raises(ConfigError, match='the module "nosuchmodule"'):
        load_module("nosuchmodule")
    with pytest.raises(ConfigError, match='there are no tools in the module "json"'):
        load_module("json")


@pytest.mark.parametrize("name", ["", ".relative", "a..b"])
def test_a_name_that_is_no_module_is_refused(name: str) -> None:
    """Odd names give the same clear error."""
    with pytest.raises(ConfigError, match="cannot load tools"):
        load_module(name)
