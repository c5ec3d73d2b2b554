"""Endpoints: what they refuse, and that they keep their key to themselves."""

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.providers.provider_endpoint import Endpoint, Secret

KEY = "sk-very-secret-0001"


def make(**fields: object) -> Endpoint:
    """Return an endpoint with these fields."""
    return Endpoint(**{"name": "openai", "base_url": "https://api.example.org/v1", **fields})  # type: ignore[arg-type]


def test_defaults_are_the_design_s_timeouts():
    """An endpoint waits 10 s for a connection and 120 s in silence unless told otherwise."""
    endpoint = make()
    assert (endpoint.protocol, endpoint.connect_s, endpoint.idle_s) == ("chat", 10.0, 120.0)


@pytest.mark.parametrize("show", [repr, str, "{}".format, "{0!r:.200}".format])
def test_no_way_of_showing_an_endpoint_shows_its_key_or_headers(show):
    """Neither repr nor str nor format gives the key or a header away."""
    endpoint = make(key=Secret(KEY), headers={"x-extra": "header-secret-2"})
    shown = show(endpoint)
    assert "openai" in shown
    assert KEY not in shown
    assert "header-secret-2" not in shown
    assert KEY not in show(endpoint.key)


def test_an_endpoint_with_a_key_cannot_be_encoded():
    """Encoding, the way into journals and pages, refuses a secret instead of writing it."""
    with pytest.raises(TypeError, match="Secret"):
        msgspec.json.encode(make(key=Secret(KEY)))


def test_secrets_compare_by_value():
    """Two equal secrets are equal, and nothing else is equal to one."""
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) == hash(Secret("a"))


def test_redact_takes_key_and_long_header_values_out_of_a_text():
    """What comes back from a provider is cleaned of what was sent to it; short header words stay."""
    endpoint = make(key=Secret(KEY), headers={"x-secret": "header-secret-2", "x-mode": "beta"})
    assert endpoint.redact(f"bad {KEY}, header-secret-2, beta") == "bad [redacted], [redacted], beta"


def test_url_joins_with_one_slash():
    """A trailing slash on the base URL does no harm."""
    assert make(base_url="https://h.example/v1/").url("/chat/completions") == "https://h.example/v1/chat/completions"
    assert make().host == "api.example.org"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": ""}, "name"),
        ({"name": "a/b"}, "name"),
        ({"base_url": "api.example.org/v1"}, "base_url"),
        ({"base_url": "ftp://api.example.org"}, "base_url"),
        ({"base_url": "http://"}, "base_url"),
        ({"base_url": "http://host:port/v1"}, "base_url"),
        ({"base_url": "http://host/v1?x=1"}, "base_url"),
        ({"base_url": "http://user:pass@host/v1"}, "base_url"),
        ({"models": ("a*b*c",)}, "models"),
        ({"models": ("",)}, "models"),
        ({"key": Secret("with\nbreak"), "key_env": "OPENAI_API_KEY"}, "OPENAI_API_KEY"),
        ({"key": Secret("schlüssel")}, "key"),
        ({"headers": {"x-a": "b\r\nx-c: d"}}, "headers.x-a"),
        ({"headers": {"x a\n": "b"}}, "headers"),
        ({"connect_s": 0}, "connect_s"),
        ({"idle_s": -1.0}, "idle_s"),
        ({"idle_s": float("nan")}, "idle_s"),
    ],
)
def test_what_cannot_work_is_refused_with_its_field_named(fields, param):
    """A wrong endpoint is a config error at birth, and the error holds no secret."""
    with pytest.raises(ConfigError) as caught:
        make(**fields)
    assert caught.value.param == param
    assert "pass@" not in str(caught.value)
    assert "break" not in str(caught.value).replace("line break", "")


@pytest.mark.parametrize(
    ("protocol", "base_url", "path", "url"),
    [
        ("chat", "https://x.org/v1/", "/chat/completions", "https://x.org/v1/chat/completions"),
        ("chat", "https://x.org", "/chat/completions", "https://x.org/chat/completions"),
        ("messages", "https://x.org", "/messages", "https://x.org/v1/messages"),
        ("messages", "https://x.org/anthropic/", "/messages", "https://x.org/anthropic/v1/messages"),
        ("messages", "https://x.org/v1", "/messages", "https://x.org/v1/messages"),
        ("gemini", "https://x.org", "/models/m:do", "https://x.org/v1beta/models/m:do"),
        ("gemini", "https://x.org/v1", "/models/m:do", "https://x.org/v1/models/m:do"),
        ("gemini", "https://x.org/v1beta", "/models/m:do", "https://x.org/v1beta/models/m:do"),
    ],
)
def test_a_version_is_added_where_clients_are_configured_without(protocol, base_url, path, url):
    """Anthropic's and Google's SDKs take the root, OpenAI's the version; a version that is there stays."""
    assert make(protocol=protocol, base_url=base_url).url(path) == url


def test_an_unknown_quirk_is_refused():
    """At birth, naming the key."""
    with pytest.raises(ConfigError) as caught:
        make(quirks=("no_such_quirk",))
    assert caught.value.param == "quirks"


def test_the_profile_joins_host_and_configuration():
    """What the host's preset says, and what was configured beside it."""
    made = make(base_url="https://api.groq.com/openai/v1", quirks=("no_seed", "-no_message_names"))
    assert made.profile("m").names == ("named_choice", "no_logprobs", "no_seed")
