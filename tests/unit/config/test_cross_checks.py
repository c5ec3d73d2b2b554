"""Rules between values: what decodes and still can not work."""

from pathlib import Path

import pytest

from treadle.config import Settings, Upstream, load_settings
from treadle.config.cross_checks import check_model, is_loopback
from treadle.core.errors import ConfigError, NotFound

UPSTREAM = '[[upstream]]\nname = "a"\nbase_url = "http://127.0.0.1:1/v1"\n'
MCP = '[[mcp]]\nname = "a"\ncommand = ["x"]\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nhost = '0.0.0.0'\n", "treadle.toml:2: server.host: 0.0.0.0 can be reached from other machines"),
        ("[store]\nurl = 'data.db'\n", "treadle.toml:2: store.url: is not sqlite:///FILE"),
        ("[store]\nurl = 'sqlite:///'\n", "treadle.toml:2: store.url: is not sqlite:///FILE"),
        ("[store]\nurl = 'postgresql://db/x?schema=pg_a'\n", "treadle.toml:2: store.url: the store postgresql://db/x"),
        ("[store]\nurl = 'postgresql://me:hidden@db/x?pool_size=0'\n", "store.url: the store postgresql://me:***@db/x"),
        ("[store]\npassword_env = 'a b'\n", "store.password_env: is not the name of an environment variable"),
        (MCP + MCP, "treadle.toml:5: mcp[1].name: the name 'a' is taken"),
        ("[[mcp]]\nname = 'a'\n", "mcp[0]: expected either a command or a url"),
        (MCP + "url = 'https://x/mcp'\n", "mcp[0]: expected either a command or a url"),
        ("[[mcp]]\nname = 'a__b'\ncommand = ['x']\n", "mcp[0].name"),
        ("[[mcp]]\nname = 'a'\nurl = 'ftp://x'\n", "mcp[0].url: is not an http://"),
        ("[[mcp]]\nname = 'a'\nurl = 'http://x/'\nkey_env = 'K'\n", "mcp[0].url: would send a key over plain http"),
        (MCP + "env_from = ['a b']\n", "mcp[0].env_from: is not the name of an environment variable"),
        (UPSTREAM + UPSTREAM, "treadle.toml:5: upstream[1].name: the name 'a' is taken"),
        (UPSTREAM.replace('"a"', '"demo"'), "treadle.toml:2: upstream[0].name: the name 'demo' is taken"),
        (UPSTREAM.replace("http:", "ftp:"), "upstream[0].base_url: is not an http://"),
        (UPSTREAM.replace("http://127.0.0.1:1/v1", "cassette:"), "upstream[0].base_url: names no cassette"),
        (UPSTREAM + "cassette_speed = -1\n", "treadle.toml:4: upstream[0].cassette_speed: expected `float` >= 0.0"),
        (UPSTREAM.replace("127", "u:p@127"), "upstream[0].base_url: is not an http://"),
        (UPSTREAM.replace(":1/", ":x/"), "upstream[0].base_url: is not an http://"),
        (UPSTREAM.replace("/v1", "/v1?a=1"), "upstream[0].base_url: is not an http://"),
        (UPSTREAM.replace("/v1", "/v1/chat/completions"), "ends in the endpoint's own path /chat/completions"),
        (UPSTREAM.replace("/v1", "/v1/responses/"), "ends in the endpoint's own path /responses/"),
        (UPSTREAM.replace("/v1", "/v1/messages"), "ends in the endpoint's own path /messages"),
        (UPSTREAM + "idle_s = 0\n", "treadle.toml:4: upstream[0].idle_s: expected a number > 0"),
        (UPSTREAM + "models = ['*-*']\n", "upstream[0].models[0]: expected a model name with at most one *"),
        (UPSTREAM + "headers = { x = 'a\\u000ab' }\n".replace("'", '"'), "holds a line break"),
        (UPSTREAM + "[[route]]\nmodel = 'm'\nupstream = 'aa'\n", "there is no upstream 'aa'; did you mean a?"),
        (UPSTREAM + "[[route]]\nmodel = '**'\nupstream = 'a'\n", "route[0].model: expected a model name"),
        ("[[route]]\nmodel = 'm'\nupstream = 'x'\n", "there is no upstream 'x'; known: none"),
    ],
)
def test_a_contradiction_names_its_key(text: str, message: str) -> None:
    """Each rule says which key breaks it, and where."""
    Path("treadle.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(env={"HOME": "/home/ada"})
    assert message in caught.value.message


def test_an_address_that_is_too_long_is_shown_as_it_should_be() -> None:
    """The hint is the address to write."""
    Path("treadle.toml").write_text(UPSTREAM.replace("/v1", "/v1/chat/completions"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(env={"HOME": "/home/ada"})
    assert caught.value.hint == "write http://127.0.0.1:1/v1"


def test_a_remote_host_needs_to_be_allowed() -> None:
    """allow_remote says that being reachable is meant."""
    settings = load_settings(
        env={"HOME": "/home/ada"}, overrides={"server.host": "0.0.0.0", "server.allow_remote": True}
    )
    assert settings.server.host == "0.0.0.0"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.org", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    """Only addresses that no other machine reaches count."""
    assert is_loopback(host) is expected


@pytest.mark.parametrize(("model", "is_served"), [("demo", True), ("gpt-5", False)])
def test_without_an_upstream_there_is_only_the_demo_model(model: str, is_served: bool) -> None:
    """Another name is refused with a way out: the answer would pass for that model's."""
    settings = Settings(default_model=model)
    if is_served:
        check_model(settings)
        return
    with pytest.raises(NotFound, match="no upstream serves 'gpt-5'") as caught:
        check_model(settings)
    assert "-m demo" in (caught.value.hint or "")
    assert caught.value.param == "model"


def test_with_an_upstream_any_name_may_be_asked() -> None:
    """Which models it serves only the upstream knows."""
    upstream = Upstream(name="a", base_url="http://127.0.0.1:1/v1")
    check_model(Settings(default_model="gpt-5", upstream=(upstream,)))
