"""The files that a trusted treadle.toml loads or starts: one that changes is named, and trust is asked for again."""

import os
from importlib.machinery import all_suffixes
from pathlib import Path

import pytest

from treadle.config import trusted_content as bound
from treadle.config.loader import data_directory, examine_file, read_settings
from treadle.config.trusted_files import Trust, Untrusted
from treadle.core.errors import ConfigError

TOML = """
[tools]
load = ["tools.py", "plugins.extra"]
[[guest]]
name = "calc"
path = "calc.wasm"
kind = "tools"
[[mcp]]
name = "files"
command = ["python3", "server/main.py", "--verbose"]
"""
FILES = {
    "tools.py": "import helper\nfrom package import inner\n",
    "helper.py": "from . import nothing\nimport os\n",
    "package/__init__.py": "",
    "package/inner.py": "import package.deep as deep",
    "package/deep.py": "",
    "plugins/__init__.py": "",
    "plugins/extra.py": "",
    "calc.wasm": "wasm",
    "calc.wasm.json": "{}",
    "server/main.py": "from lib import f",
    "server/lib.py": "def f(): ...",
}


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Trust a file that loads all there is, in the working directory, and return the environment."""
    folder = tmp_path / "repository"
    for name, text in {**FILES, "treadle.toml": TOML, "notes.py": "", "server/notes.txt": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    env = {"HOME": str(tmp_path / "home")}
    Trust(data_directory(env)).add(examine_file(Path("treadle.toml"), env=env).doubt)
    return env


def test_files_that_are_loaded_or_started_are_found(env: dict[str, str]) -> None:
    """With the Python files beside them that they import; no others."""
    doubt = examine_file(Path("treadle.toml"), env=env).doubt
    assert {os.path.relpath(path) for path in doubt.files} == set(FILES)
    assert read_settings(env=env).doubt is None


@pytest.mark.parametrize("name", FILES)
def test_each_file_that_changes_is_asked_about_by_name(env: dict[str, str], name: str) -> None:
    """Until somebody agrees once more."""
    Path(name).write_text("something else")
    with pytest.raises(Untrusted, match=f"{name}, which .*treadle.toml loads or starts") as raised:
        read_settings(env=env)
    Trust(data_directory(env)).add(raised.value.doubt)
    assert read_settings(env=env).doubt is None
    os.unlink(name)
    with pytest.raises(Untrusted, match=name):
        read_settings(env=env)


def test_a_file_that_comes_later_is_asked_about(env: dict[str, str]) -> None:
    """A module that an import finds from now on is code that nobody agreed to."""
    Path("nothing.py").write_text("")
    with pytest.raises(Untrusted, match=r"nothing\.py"):
        read_settings(env=env)


def test_a_link_that_points_elsewhere_is_a_change(env: dict[str, str]) -> None:
    """What a name leads to is what counts."""
    Path("calc.wasm").unlink()
    Path("calc.wasm").symlink_to("notes.py")
    with pytest.raises(Untrusted, match=r"calc\.wasm"):
        read_settings(env=env)


def test_other_files_are_not_looked_at(env: dict[str, str]) -> None:
    """What the file neither loads nor starts may change."""
    Path("notes.py").write_text("changed")
    Path("server/notes.txt").write_text("changed")
    assert read_settings(env=env).doubt is None


def test_a_program_outside_of_the_folder_is_the_machines_own(tmp_path: Path, env: dict[str, str]) -> None:
    """Updating it is no change of the repository."""
    program = tmp_path / "program"
    program.write_text("1")
    Path("treadle.toml").write_text(f'[[mcp]]\nname = "far"\ncommand = ["{program}"]\n')
    Trust(data_directory(env)).add(examine_file(Path("treadle.toml"), env=env).doubt)
    program.write_text("2")
    assert read_settings(env=env).doubt is None


@pytest.mark.parametrize("name", [f"{stem}{suffix}" for stem in ("helper", "os") for suffix in all_suffixes()])
def test_what_an_import_would_find_first_is_asked_about(env: dict[str, str], name: str) -> None:
    """Also a compiled module, which comes before a source of the same name, and one in the place of Python's own."""
    Path(name).write_bytes(b"other")
    with pytest.raises(Untrusted, match=name.replace(".", r"\.")):
        read_settings(env=env)


def test_more_files_than_can_be_looked_at_are_refused(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than trusted without a look."""
    monkeypatch.setattr(bound, "FILES_MAX", len(FILES) - 1)
    with pytest.raises(ConfigError, match="too many to agree to"):
        read_settings(env=env)
    monkeypatch.setattr(bound, "FILES_MAX", len(FILES))
    assert read_settings(env=env).doubt is None
