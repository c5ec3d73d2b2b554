"""The example file: complete, commented, and equal to the defaults when read back."""

import re
import tomllib
from pathlib import Path

import pytest

from treadle.config import Settings, load_settings, write_example
from treadle.config.example_file import list_keys

ENV = {"HOME": "/home/ada"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def uncommented() -> str:
    """Return the example with every key in force."""
    return re.sub(r"^# (\[\[|[a-z_]+ = )", r"\1", write_example(), flags=re.MULTILINE)


def test_the_example_reads_back_as_the_defaults() -> None:
    """Saving the example as it is changes nothing."""
    before = load_settings(env=ENV)
    Path("treadle.toml").write_text(write_example(), encoding="utf-8")
    assert load_settings("treadle.toml", env=ENV) == before


def test_every_value_the_example_shows_is_the_default() -> None:
    """With every key of every section in force the settings are still the defaults."""
    before = load_settings(env=ENV)
    sections = uncommented().split("# One endpoint with models.")[0]
    assert sections.count(" = ") == sum("[]" not in key.path for key in list_keys())
    Path("treadle.toml").write_text(sections, encoding="utf-8")
    assert load_settings("treadle.toml", env=ENV) == before


def test_the_rows_of_the_example_work() -> None:
    """The upstream and the route that it shows are a working pair."""
    Path("treadle.toml").write_text(uncommented(), encoding="utf-8")
    settings = load_settings("treadle.toml", env=ENV)
    assert [upstream.name for upstream in settings.upstream] == ["openai"]
    assert [route.upstream for route in settings.route] == ["openai"]


def test_the_example_has_every_key_with_a_word_about_it() -> None:
    """Nothing that can be set is missing or unexplained."""
    keys = list(list_keys())
    assert all(key.description for key in keys)
    tree = tomllib.loads(uncommented())
    for key in keys:
        here = tree
        for step in key.path.split("."):
            inner = here[step.removesuffix("[]")]
            here = inner[0] if step.endswith("[]") else inner


def test_keys_are_listed_with_their_variable() -> None:
    """The table of keys names path, default, choices and variable."""
    keys = {key.path: key for key in list_keys()}
    assert keys["limits.max_iterations"].variable == "TREADLE_LIMITS__MAX_ITERATIONS"
    assert keys["limits.max_iterations"].default == "8"
    assert keys["tools.collision"].choices == ("server", "client", "error")
    assert keys["upstream[].name"].default == ""
    assert {path.split(".")[0].removesuffix("[]") for path in keys} == set(Settings.__struct_fields__)
