"""A treadle.toml that is only found in the working directory: used if somebody agreed to it, or if it does no harm."""

from pathlib import Path

import pytest

from treadle import Runtime
from treadle.config import inspect_settings, load_settings, read_settings, write_example
from treadle.config.loader import data_directory, examine_file
from treadle.config.trusted_files import Trust, Untrusted
from treadle.core.errors import ConfigError

HARM = '[[mcp]]\nname = "m"\ncommand = ["sh"]\n'


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Stand in a repository; the user's home is elsewhere."""
    (tmp_path / "repository").mkdir()
    monkeypatch.chdir(tmp_path / "repository")
    return {"HOME": str(tmp_path / "home")}


def write(text: str) -> Path:
    """Write the repository's file."""
    file = Path("treadle.toml")
    file.write_text(text, encoding="utf-8")
    return file


def trust(env: dict[str, str], file: Path) -> None:
    """Agree to a file."""
    Trust(data_directory(env)).add(examine_file(file, env=env).doubt)


def test_a_file_that_was_found_is_refused_with_the_way_out(env: dict[str, str]) -> None:
    """Nothing of it is used; the error names the file and says what to do."""
    file = write(HARM)
    with pytest.raises(Untrusted, match=r"repository/treadle\.toml is not trusted") as caught:
        load_settings(env=env)
    assert isinstance(caught.value, ConfigError)
    assert caught.value.info.code == "untrusted_config"
    hint = caught.value.info.hint or ""
    assert all(words in hint for words in ("treadle trust --show", "--config treadle.toml", "TREADLE_CONFIG"))
    assert caught.value.doubt.path == str(file.resolve())


def test_the_library_refuses_it_too(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is started in a repository asks nobody."""
    write(HARM)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Untrusted):
        Runtime()


def test_a_file_that_was_agreed_to_is_used_until_it_changes(env: dict[str, str]) -> None:
    """One byte is enough, and the error says that it is a change."""
    trust(env, write(HARM))
    assert [server.name for server in load_settings(env=env).mcp] == ["m"]
    write(HARM + "\n")
    with pytest.raises(Untrusted, match="has changed since it was trusted"):
        load_settings(env=env)


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_a_file_that_is_named_needs_no_trust(env: dict[str, str], how: str) -> None:
    """Whoever names it has chosen it."""
    file = write(HARM)
    named = {**env, "TREADLE_CONFIG": str(file)} if how == "variable" else env
    assert load_settings(file if how == "argument" else None, env=named).mcp[0].command == ("sh",)


def test_the_users_own_file_needs_no_trust(env: dict[str, str]) -> None:
    """It stands at home, and the repository's can only tighten it."""
    home = Path(env["HOME"]) / ".config" / "treadle"
    home.mkdir(parents=True)
    (home / "treadle.toml").write_text(HARM, encoding="utf-8")
    write(HARM.replace("sh", "evil"))
    loaded = read_settings(env=env)
    assert (loaded.doubt, [server.command for server in loaded.settings.mcp]) == (None, [("sh",)])


@pytest.mark.parametrize(
    ("text", "is_harmless"),
    [
        ("", True),
        (write_example(), True),
        ("[limits]\nmax_iterations = 2\n", True),
        ("[tools]\nenabled = false\n[policy.write]\napproval = 'always'\n", True),
        ("[[tools.tighten]]\nmatch = ['*']\napproval = 'always'\n", True),
        ("[[tools.rule]]\nmatch = ['*']\napproval = 'never'\n", False),
        ("[limits]\nmax_iterations = 99\n", False),
        ("default_model = 'm'\n", False),
        ("[tools]\nload = ['tools.py']\n", False),
        ("[store]\nurl = 'sqlite:///t.db'\n", False),
    ],
)
def test_a_file_that_only_tightens_is_used_as_it_is(env: dict[str, str], text: str, is_harmless: bool) -> None:
    """It needs no question; rules of its own do, for they may loosen while no other file is the user's."""
    write(text)
    loaded, problems = inspect_settings(env=env)
    assert (problems, loaded.doubt is None) == ([], is_harmless)


def test_what_the_environment_tightened_a_found_file_may_not_loosen(env: dict[str, str]) -> None:
    """Lower than the default is not low enough then."""
    write("[limits]\nmax_iterations = 5\n")
    assert inspect_settings(env=env)[0].doubt is None
    assert inspect_settings(env={**env, "TREADLE_LIMITS__MAX_ITERATIONS": "3"})[0].doubt is not None


def test_mistakes_are_told_before_trust_is_asked_for(env: dict[str, str]) -> None:
    """One who is still writing the file hears of the mistake first."""
    write(HARM + "[limts]\nx = 1\n")
    with pytest.raises(ConfigError, match="limts: unknown key") as caught:
        load_settings(env=env)
    assert not isinstance(caught.value, Untrusted)
