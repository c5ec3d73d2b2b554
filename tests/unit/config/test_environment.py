"""Variables: every key can be set by one, and a misspelt one is not silently ignored."""

from pathlib import Path

import pytest

from treadle.config import Settings, Upstream, load_settings
from treadle.config.environment import leaf_paths, variable_of
from treadle.core.errors import ConfigError

HOME = {"HOME": "/home/ada"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(**env: str) -> Settings:
    """Load with these variables and nothing else."""
    return load_settings(env={**HOME, **env})


def test_each_type_has_its_spelling() -> None:
    """Numbers, booleans, text and lists are read as the type of their key."""
    settings = load(
        TREADLE_SERVER__PORT="9000",
        TREADLE_SERVER__ALLOWED_HOSTS="a.example, b.example,",
        TREADLE_TOOLS__LOAD='["x.py"]',
        TREADLE_TOOLS__STRICT_UNKNOWN_TOOL="true",
        TREADLE_TOOLS__LOCAL__ROOT="/srv",
        TREADLE_EXTENDED_EVENTS="1",
        TREADLE_STORE__PERSISTENCE="off",
        TREADLE_TERMINAL__WALL_S="2.5",
    )
    assert settings.server.port == 9000
    assert settings.server.allowed_hosts == ("a.example", "b.example")
    assert settings.tools.load == ("x.py",)
    assert settings.tools.strict_unknown_tool is True
    assert settings.tools.local.root == "/srv"
    assert settings.extended_events is True
    assert settings.store.persistence == "off"
    assert settings.terminal.wall_s == 2.5


@pytest.mark.parametrize("path", list(leaf_paths()), ids=lambda path: ".".join(map(str, path)))
def test_every_key_has_a_variable_that_reaches_it(path: tuple[str, ...]) -> None:
    """No key is out of reach: its variable alone moves it away from its default."""
    samples = ("7001", "0.5", "true", "false", "off", "text", "client", "debug", "continue", "x.py", "localhost")
    samples = (
        *samples,
        "sqlite:///x.db",
        "marked",
        "react",
        "deny",
        "trust",
        "on",
        "light",
        "L1",
        "/srv",
        "10.0.0.0/8",
        "fast",
        "process",
        "always",
        "131072",
        "3",
        "0.2",
        "wait",
        "redis://localhost",
        "http://127.0.0.1:4318",
    )
    rows = ('[{"name":"a","base_url":"http://127.0.0.1/v1"}]', '[{"model":"m","upstream":"a"}]')
    base = {"TREADLE_UPSTREAM": rows[0]} if path == ("route",) else {}
    default = value_at(load(**base), path)
    rows = (*rows, '[{"name":"a","command":["x"]}]', '[{"name":"a","path":"x.wasm"}]')
    rows = (*rows, '[{"model":"m","input":1,"output":2}]')
    rows = (*rows, '[{"match":["*"]}]', '[{"api":"chat","requests_per_min":1}]')
    tried = (attempt(path, sample, base) for sample in (*samples, *rows))
    assert any(value_at(settings, path) != default for settings in tried if settings)


def attempt(path: tuple[str, ...], sample: str, base: dict[str, str]) -> Settings | None:
    """Return the settings with the key's variable at this sample; None when the key is of another type."""
    try:
        return load(**base, **{variable_of(path): sample})
    except ConfigError:
        return None


def value_at(settings: Settings, path: tuple[str, ...]) -> object:
    """Return the value of a key."""
    value: object = settings
    for step in path:
        value = getattr(value, step)
    return value


def test_rows_of_a_list_are_reached_by_their_number() -> None:
    """TREADLE_UPSTREAM__0__KEY builds or changes one row."""
    settings = load(
        TREADLE_UPSTREAM__0__NAME="a",
        TREADLE_UPSTREAM__0__BASE_URL="http://127.0.0.1:1/v1",
        TREADLE_UPSTREAM__0__KEY_ENV="",
        TREADLE_UPSTREAM__0__HEADERS='{"x-team":"blue"}',
        TREADLE_UPSTREAM__0__IDLE_S="5",
    )
    assert settings.upstream == (
        Upstream(name="a", base_url="http://127.0.0.1:1/v1", headers={"x-team": "blue"}, idle_s=5.0),
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TREADLE_SERVER__PROT", "1", "did you mean TREADLE_SERVER__PORT?"),
        ("TREADLE_SERVER_PORT", "1", "did you mean TREADLE_SERVER__PORT?"),
        ("TREADLE_PORT", "1", "did you mean TREADLE_SERVER__PORT?"),
        ("TREADLE_TOOLS_LOCAL_ROOT", ".", "did you mean TREADLE_TOOLS__LOCAL__ROOT?"),
        ("TREADLE_STORE", "sqlite:///x.db", "did you mean TREADLE_STORE__URL?"),
        ("TREADLE_MODEL", "m", "did you mean TREADLE_DEFAULT_MODEL?"),
        ("TREADLE_DEFAULT_MODLE", "m", "did you mean TREADLE_DEFAULT_MODEL?"),
        ("TREADLE_X__Y__Z", "m", "no key has this variable"),
        ("TREADLE_UPSTREAM__1000__NAME", "m", "no key has this variable"),
        ("TREADLE_SERVER__PORT", "many", "server.port: 'many' is not a whole number"),
        ("TREADLE_SERVER__PORT", "70000", "server.port: expected `int` <= 65535"),
        ("TREADLE_TOOLS__ENABLED", "maybe", "tools.enabled: 'maybe' is not true or false"),
        ("TREADLE_LIMITS__WALL_S", "", "limits.wall_s: '' is not a number"),
        ("TREADLE_UPSTREAM", "[{", "upstream: "),
        ("TREADLE_STORE__PERSISTENCE", "of", "'of' is not one of on, off; did you mean off?"),
        ("ENABLE_TOOLS", "never", "environment ENABLE_TOOLS: tools.enabled: 'never' is not true or false"),
    ],
)
def test_a_wrong_variable_is_named_with_what_was_meant(name: str, value: str, message: str) -> None:
    """Typing errors in the environment are errors, as they are in the file."""
    with pytest.raises(ConfigError) as caught:
        load(**{name: value})
    assert message in caught.value.message


def test_variables_of_others_are_left_alone() -> None:
    """A name that is nowhere near a key may belong to a test or a script."""
    load(TREADLE_CHROMIUM="/usr/bin/chromium", TREADLE_EVAL_LIVE="1", TREADLE_URL="http://127.0.0.1:8700")


@pytest.mark.parametrize(
    ("env", "enabled"),
    [
        ({"ENABLE_TOOLS": "false"}, False),
        ({"ENABLE_TOOLS": "true"}, True),
        ({"ENABLE_TOOLS": "false", "TREADLE_TOOLS__ENABLED": "true"}, False),
        ({"ENABLE_TOOLS": "true", "TREADLE_TOOLS__ENABLED": "false"}, True),
    ],
)
def test_enable_tools_false_turns_server_tools_off(env: dict[str, str], enabled: bool) -> None:
    """The operator's switch needs no prefix."""
    assert load(**env).tools.enabled is enabled


def test_enable_tools_false_wins_over_a_flag() -> None:
    """Nothing on the command line turns on what the operator turned off."""
    settings = load_settings(env={**HOME, "ENABLE_TOOLS": "false"}, overrides={"tools.enabled": True})
    assert settings.tools.enabled is False
