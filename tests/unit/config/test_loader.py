"""Reading settings: layers, origins, paths, and what the machine's own environment adds."""

import os
import pwd
from pathlib import Path

import msgspec
import pytest

from treadle.config import (
    LimitsSection,
    Route,
    ServerSection,
    Settings,
    StoreSection,
    Upstream,
    load_settings,
    read_settings,
)
from treadle.config.loader import data_directory, examine_file
from treadle.config.trusted_files import Trust
from treadle.core.errors import ConfigError

HOME = {"HOME": "/home/ada"}
DEFAULT_STORE = "sqlite:////home/ada/.local/share/treadle/treadle.db"


def write(folder: Path, text: str, name: str = "treadle.toml") -> Path:
    """Write a file and return its path."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_nothing_at_all_gives_the_defaults_and_a_store_in_the_data_directory(here: Path) -> None:
    """No file, no variable and no flag give a gateway on the demo model."""
    settings = load_settings(env=HOME)
    assert settings == Settings(store=StoreSection(url=DEFAULT_STORE))
    assert settings.model == "demo"


def test_the_data_directory_follows_xdg(here: Path) -> None:
    """XDG_DATA_HOME moves the default store."""
    settings = load_settings(env={**HOME, "XDG_DATA_HOME": "/data"})
    assert settings.store.url == "sqlite:////data/treadle/treadle.db"


@pytest.mark.parametrize("env", [{}, {"HOME": ""}])
def test_without_the_variable_the_home_is_the_one_that_the_system_knows(here: Path, env: dict[str, str]) -> None:
    """Unset and empty are the same, and neither is the root of the disk."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert load_settings(env=env).store.url == f"sqlite:///{home}/.local/share/treadle/treadle.db"


def test_somebody_without_a_home_is_told_what_to_name(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that the system does not know, as in many containers; with a store or a data folder all is well."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigError, match="no home directory to keep the store in") as caught:
        load_settings(env={})
    assert caught.value.hint == "set HOME or XDG_DATA_HOME, or name a file: TREADLE_STORE__URL=sqlite:///PATH"
    assert load_settings(env={"TREADLE_STORE__URL": "sqlite:////srv/t.db"}).store.url == "sqlite:////srv/t.db"
    assert load_settings(env={"XDG_DATA_HOME": "/data"}).store.url == "sqlite:////data/treadle/treadle.db"


def test_the_file_in_the_working_directory_is_read(here: Path) -> None:
    """treadle.toml needs no flag once it is trusted."""
    env = {"HOME": str(here / "home")}
    file = write(here, "[server]\nport = 9001\n")
    Trust(data_directory(env)).add(examine_file(file, env=env).doubt)
    loaded = read_settings(env=env)
    assert loaded.settings.server == ServerSection(port=9001)
    assert loaded.file == "treadle.toml"
    assert loaded.sources == {"server.port": "treadle.toml:2"}


def test_flags_win_over_the_environment_and_that_over_the_file(here: Path) -> None:
    """The three layers lie over each other, and the origin is that of the winner."""
    write(here, "[limits]\nmax_iterations = 2\nwall_s = 5\nidle_s = 6\n")
    env = {**HOME, "TREADLE_LIMITS__MAX_ITERATIONS": "3", "TREADLE_LIMITS__WALL_S": "7.5"}
    loaded = read_settings("treadle.toml", env=env, overrides={"limits.max_iterations": 4, "server.port": None})
    assert loaded.settings.limits == LimitsSection(max_iterations=4, wall_s=7.5, idle_s=6.0)
    assert loaded.sources == {
        "limits.max_iterations": "command line",
        "limits.wall_s": "environment TREADLE_LIMITS__WALL_S",
        "limits.idle_s": "treadle.toml:4",
    }
    assert loaded.source("server.port") == "default"


def test_a_named_file_must_exist(here: Path) -> None:
    """A wrong --config is an error, with a hint how to get a file."""
    with pytest.raises(ConfigError, match=r"missing\.toml: No such file") as caught:
        load_settings("missing.toml", env=HOME)
    assert caught.value.hint == "treadle config example > treadle.toml writes one"


def test_the_variable_treadle_config_names_the_file(here: Path) -> None:
    """TREADLE_CONFIG stands for --config and is no key itself."""
    file = write(here, "default_model = 'm'\n", "other.toml")
    assert load_settings(env={**HOME, "TREADLE_CONFIG": str(file)}).default_model == "m"


def test_paths_in_a_file_are_meant_from_its_folder(here: Path) -> None:
    """A file elsewhere names its neighbours, modules and absolute paths stay."""
    (here / "etc").mkdir()
    file = write(
        here / "etc",
        '[store]\nurl = "sqlite:///data/t.db"\n'
        '[tools]\nload = ["tools.py", "/abs/t.py", "~/t.py", "package.module"]\n'
        '[tools.local]\nenabled = ["glob"]\n',
    )
    settings = load_settings(file, env=HOME)
    assert settings.store.url == f"sqlite:///{here}/etc/data/t.db"
    assert settings.tools.load == (f"{here}/etc/tools.py", "/abs/t.py", "~/t.py", "package.module")
    assert settings.tools.local.root == f"{here}/etc"


def test_recordings_are_named_from_the_folder_of_the_file_too(here: Path) -> None:
    """Where to record, and what an upstream plays; TREADLE_RECORD is meant from where Treadle was started."""
    (here / "etc").mkdir()
    file = write(
        here / "etc",
        'record = "tapes"\n[[upstream]]\nname = "a"\nbase_url = "cassette:a.jsonl"\n'
        '[[upstream]]\nname = "b"\nbase_url = "cassette:/abs/b"\n',
    )
    settings = load_settings(file, env=HOME)
    assert settings.record == f"{here}/etc/tapes"
    assert [each.base_url for each in settings.upstream] == [f"cassette:{here}/etc/a.jsonl", "cassette:/abs/b"]
    assert load_settings(file, env={**HOME, "TREADLE_RECORD": "there"}).record == "there"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server\n", r"is not TOML: .*line 1"),
        ("a = " + "[" * 5000, "is not TOML"),
        ("#" * 1_048_577, "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_refused(here: Path, text: str, message: str) -> None:
    """Broken, hostile and huge files give one clear error."""
    write(here, text)
    with pytest.raises(ConfigError, match=f"treadle.toml: {message}"):
        load_settings(env=HOME)


def test_a_file_that_is_no_text_is_refused(here: Path) -> None:
    """Bytes that are not UTF-8 are named as such."""
    (here / "treadle.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_settings(env=HOME)


def test_a_folder_is_no_file(here: Path) -> None:
    """--config with a folder names the trouble."""
    with pytest.raises(ConfigError, match="Is a directory"):
        load_settings(here, env=HOME)


def test_keys_in_the_environment_make_upstreams(here: Path) -> None:
    """OPENAI_API_KEY and OPENROUTER_API_KEY are enough; the keys themselves are not held."""
    env = {**HOME, "OPENAI_API_KEY": "sk-1", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENROUTER_API_KEY": "sk-2"}
    loaded = read_settings(env=env)
    assert loaded.settings.upstream == (
        Upstream(name="openai", base_url="http://127.0.0.1:9/v1", key_env="OPENAI_API_KEY"),
        Upstream(name="openrouter", base_url="https://openrouter.ai/api/v1", key_env="OPENROUTER_API_KEY"),
    )
    assert loaded.source("upstream[1].name") == "environment OPENROUTER_API_KEY"
    assert loaded.settings.model == ""
    assert b"sk-" not in msgspec.json.encode(loaded)


@pytest.mark.parametrize(
    ("variable", "upstream"),
    [
        ("OPENAI_BASE_URL", Upstream(name="openai", base_url="http://127.0.0.1:9/v1")),
        ("ANTHROPIC_BASE_URL", Upstream(name="anthropic", base_url="http://127.0.0.1:9/v1", protocol="messages")),
        ("GEMINI_BASE_URL", Upstream(name="gemini", base_url="http://127.0.0.1:9/v1beta", protocol="gemini")),
    ],
)
def test_an_address_alone_makes_an_upstream_without_a_key(here: Path, variable: str, upstream: Upstream) -> None:
    """A server on one's own machine wants no key; the origin is the address."""
    loaded = read_settings(env={**HOME, variable: "http://127.0.0.1:9"})
    assert loaded.settings.upstream == (upstream,)
    assert loaded.source("upstream[0].base_url") == f"environment {variable}"


@pytest.mark.parametrize(
    ("env", "protocol", "base_url"),
    [
        ({"OPENAI_API_KEY": "k", "OPENAI_WIRE": "responses"}, "responses", "https://api.openai.com/v1"),
        ({"ANTHROPIC_API_KEY": "k"}, "messages", "https://api.anthropic.com/v1"),
        ({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/"}, "messages", "http://127.0.0.1:9/v1"),
        ({"GEMINI_API_KEY": "k"}, "gemini", "https://generativelanguage.googleapis.com/v1beta"),
        ({"GEMINI_API_KEY": "k", "GEMINI_BASE_URL": "http://127.0.0.1:9"}, "gemini", "http://127.0.0.1:9/v1beta"),
        ({"GEMINI_API_KEY": "k", "GEMINI_BASE_URL": "http://127.0.0.1:9/x"}, "gemini", "http://127.0.0.1:9/x"),
    ],
)
def test_each_provider_is_spoken_to_in_its_own_protocol(here: Path, env: dict[str, str], protocol: str, base_url: str):
    """The key says the protocol; an address without a path gets the usual one."""
    [upstream] = load_settings(env={**HOME, **env}).upstream
    assert (upstream.protocol, upstream.base_url) == (protocol, base_url)


def test_a_wire_that_nobody_speaks_is_refused(here: Path) -> None:
    """OPENAI_WIRE names one of the four."""
    with pytest.raises(ConfigError, match="protocol"):
        load_settings(env={**HOME, "OPENAI_API_KEY": "k", "OPENAI_WIRE": "soap"})


@pytest.mark.parametrize(
    ("env", "model"),
    [
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"}, "m"),
        ({"OPENAI_API_KEY": "k", "OPENROUTER_API_KEY": "k", "OPENROUTER_MODEL": "a/b"}, "openrouter/a/b"),
        ({"OPENAI_API_KEY": "k", "OPENAI_MODEL": "m", "TREADLE_DEFAULT_MODEL": "mine"}, "mine"),
        ({"OPENAI_MODEL": "m"}, "demo"),
    ],
)
def test_the_model_can_come_from_the_environment_too(here: Path, env: dict[str, str], model: str) -> None:
    """A provider's model variable counts with its key, and less than default_model."""
    assert load_settings(env={**HOME, **env}).model == model


def test_upstreams_of_the_file_keep_those_of_the_environment_out(here: Path) -> None:
    """A stray key in the shell does not join what was configured on purpose."""
    write(here, '[[upstream]]\nname = "local"\nbase_url = "http://127.0.0.1:1/v1"\nmodels = ["*", "big"]\n')
    settings = load_settings("treadle.toml", env={**HOME, "OPENAI_API_KEY": "k"})
    assert [upstream.name for upstream in settings.upstream] == ["local"]
    assert settings.model == "big"


def test_routes_are_read_in_order(here: Path) -> None:
    """[[route]] keeps its order and its optional rename."""
    write(
        here,
        '[[upstream]]\nname = "a"\nbase_url = "http://127.0.0.1:1/v1"\n'
        '[[route]]\nmodel = "x-*"\nupstream = "a"\nrename = "y"\n[[route]]\nmodel = "*"\nupstream = "a"\n',
    )
    assert load_settings("treadle.toml", env=HOME).route == (
        Route(model="x-*", upstream="a", rename="y"),
        Route(model="*", upstream="a"),
    )


def test_a_whole_list_from_the_environment_replaces_that_of_the_file(here: Path) -> None:
    """TREADLE_UPSTREAM is one JSON list and leaves no origin of the file behind."""
    write(here, '[[upstream]]\nname = "a"\nbase_url = "http://127.0.0.1:1/v1"\nkey_env = "A"\n')
    env = {**HOME, "TREADLE_UPSTREAM": '[{"name":"b","base_url":"http://127.0.0.1:2/v1"}]'}
    loaded = read_settings("treadle.toml", env=env)
    assert loaded.settings.upstream == (Upstream(name="b", base_url="http://127.0.0.1:2/v1"),)
    assert loaded.sources == {"upstream": "environment TREADLE_UPSTREAM"}
