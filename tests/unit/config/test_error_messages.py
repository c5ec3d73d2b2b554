"""Mistakes: all at once, with path, line, nearest key, and never a secret."""

from pathlib import Path

import pytest

from treadle.config import load_settings
from treadle.config.error_messages import KEY_HINT, dotted, line_of, looks_secret, nearest
from treadle.core.errors import ConfigError

UPSTREAM = '[[upstream]]\nname = "a"\nbase_url = "http://127.0.0.1:1/v1"\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(text: str) -> ConfigError:
    """Return the error that this treadle.toml gives."""
    Path("treadle.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(env={"HOME": "/home/ada"})
    return caught.value


def test_every_mistake_is_reported_at_once() -> None:
    """One run of the check is enough to mend a file."""
    error = refusal(
        "default_modle = 'x'\n\n[limits]\nmax_iterations = 'many'\nmax_itertions = 3\n\n"
        "[server]\nport = 99999\n[tools]\ncollision = 'sever'\nlocal = 3\n\n[[upstream]]\nname = 'a'\n"
    )
    assert error.message.splitlines() == [
        "treadle.toml:1: default_modle: unknown key; did you mean default_model?",
        "treadle.toml:4: limits.max_iterations: expected `int`, got `str`",
        "treadle.toml:5: limits.max_itertions: unknown key; did you mean max_iterations?",
        "treadle.toml:8: server.port: expected `int` <= 65535",
        "treadle.toml:10: tools.collision: 'sever' is not one of server, client, error; did you mean server?",
        "treadle.toml:11: tools.local: is a section with keys of its own, not a value of type int",
        "treadle.toml:14: upstream[0].base_url: is missing",
    ]
    assert error.param == "default_modle"


def test_contradictions_are_found_beside_wrong_types() -> None:
    """What is right of a file is judged too; a list of tables with a mistake in it is left out whole."""
    error = refusal(
        "[limits]\nwall_s = 'x'\n[server]\nhost = '0.0.0.0'\n[store]\nurl = 3\n"
        "[[upstream]]\nname = 'a'\n[[route]]\nmodel = 'm'\nupstream = 'b'\n"
    )
    assert error.message.splitlines() == [
        "treadle.toml:2: limits.wall_s: expected `float`, got `str`",
        "treadle.toml:6: store.url: expected `str`, got `int`",
        "treadle.toml:8: upstream[0].base_url: is missing",
        "treadle.toml:4: server.host: 0.0.0.0 can be reached from other machines",
        "  hint: server.allow_remote = true (or --allow-remote) says that this is meant",
    ]


def test_each_hint_stands_below_its_own_mistake() -> None:
    """Several hints in a heap would leave a reader to guess; the hint of a single mistake stays apart."""
    error = refusal(UPSTREAM + 'api_key = "x"\n[store]\nurl = "x"\n')
    assert (error.hint, error.message.splitlines()) == (
        None,
        [
            "treadle.toml:4: upstream[0].api_key: keys of providers are never written here",
            f"  hint: {KEY_HINT}",
            "treadle.toml:6: store.url: is not sqlite:///FILE or postgresql://USER@HOST/DATABASE",
            "  hint: sqlite:///data.db is a file here, sqlite:////var/lib/treadle.db one at an absolute path",
        ],
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[limts]\n", "treadle.toml:1: limts: unknown key; did you mean limits?"),
        ("[qqqqqq]\nx = 1\n", "treadle.toml:2: qqqqqq: unknown key; known here: default_model, "),
        ("[server]\nport = true\n", "server.port: expected `int`, got `bool`"),
        ("[tools]\nload = 'x.py'\n", "tools.load: expected `array`, got `str`"),
        ("[tools]\nload = [1]\n", "tools.load: expected `str`, got `int`"),
        ("[tools]\nenabled = 'yes'\n", "tools.enabled: expected `bool`, got `str`"),
        ("[upstream]\nname = 'a'\n", "upstream: is a list of tables: write its name in double brackets, [[ ]]"),
        ("upstream = [1]\n", "treadle.toml:1: upstream[0]: is a section with keys of its own"),
        (
            UPSTREAM + "protocol = 'soap'\n",
            "treadle.toml:4: upstream[0].protocol: 'soap' is not one of chat, responses,",
        ),
        (UPSTREAM + "[upstream.headers]\nx = 1\n", "upstream[0].headers: expected `str`, got `int`"),
    ],
)
def test_a_mistake_names_its_path_and_what_was_meant(text: str, message: str) -> None:
    """Unknown keys, wrong types and wrong shapes are each said in one line."""
    assert message in refusal(text).message


@pytest.mark.parametrize(
    "text",
    [
        UPSTREAM + 'api_key = "sk-abcdefghijklmnopqrstuvwx"\n',
        UPSTREAM + 'token = "abc"\n',
        UPSTREAM + 'key_env = "sk-abcdefghijklmnopqrstuvwx"\n',
        UPSTREAM + 'key_env = "my key"\n',
        UPSTREAM + 'headers = { Authorization = "Bearer abcdefghijkl" }\n',
        'default_model = "AIzaabcdefghijklmnopqrstuvwx"\n',
    ],
)
def test_a_key_written_out_is_refused_and_not_repeated(text: str) -> None:
    """The error says how to name a key, and does not print it."""
    error = refusal(text)
    assert error.hint == KEY_HINT
    assert "abc" not in error.message


@pytest.mark.parametrize(
    "name", ["gpt-4o", "sk-1", "anthropic/claude-sonnet-4", "OPENAI_API_KEY", "transcribe-model-x"]
)
def test_names_are_not_taken_for_keys(name: str) -> None:
    """Model names and variable names stay allowed."""
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 1),
        (("t", "b"), 4),
        (("t", "u", "c"), 6),
        (("rows", 0, "d"), 9),
        (("rows", 1, "d"), 11),
        (("rows", 1, "inner", "e"), 11),
        (("t", "missing"), 3),
        (("nowhere",), None),
    ],
)
def test_lines_are_found(path: tuple[str | int, ...], line: int | None) -> None:
    """A key is found in its own table, in dotted spelling, and in the right row; else its table is."""
    text = "a = 1\n\n[t]\nb = 2\n# c = 9\nu.c = 3\n\n[[rows]]\nd = 4\n[[rows]]\nd = { inner = 1 }\n"
    assert line_of(text, path if path[-1] != "e" else ("rows", 1, "d", "inner")) == line


def test_paths_are_written_for_people() -> None:
    """Rows in brackets, keys with dots."""
    assert dotted(("upstream", 0, "headers", "x")) == "upstream[0].headers.x"


def test_only_something_alike_is_suggested() -> None:
    """A suggestion that has nothing to do with the word would mislead."""
    assert nearest("prot", ["host", "port"]) == "port"
    assert nearest("zzzz", ["host", "port"]) is None
