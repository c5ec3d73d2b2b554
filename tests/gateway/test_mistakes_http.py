"""What a client gets wrong at a running gateway: each answer says what happened and what to do."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from gateway.gateway import Gateway
from gateway.mistakes import refusing_upstream
from treadle.access.keyring import Keyring
from treadle.config import ServerSection, Settings, StoreSection, Upstream
from treadle.config.access_settings import KeysSection
from treadle.journal.keys_interface import KeyGrant, KeyRates
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.server.auth.installation_secret import secret_for, stored_secret

CHAT = {"model": "dead-1", "messages": [{"role": "user", "content": "hi"}]}
OTHER_SECRET = b"another secret of the same length"


class Desk(msgspec.Struct):
    """A gateway that wants keys, and the keys it knows."""

    gateway: Gateway
    keys: dict[str, str]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A gateway with an upstream that is away, one that refuses its key, and keys of every kind."""
    folder = tmp_path_factory.mktemp("desk")
    with refusing_upstream() as refusing:
        upstreams = (
            Upstream(name="dead", base_url="http://127.0.0.1:9/v1", models=("dead-*",)),
            Upstream(name="strict", base_url=refusing, models=("strict-*",), key_env="STRICT_KEY"),
        )
        sections: dict[str, Any] = {
            "upstream": upstreams,
            "keys": KeysSection(required="always"),
            "server": ServerSection(body_bytes_max=4_096),
        }
        with Gateway(Script(turns=(ScriptTurn(text="Hello."),)), folder, **sections) as gateway:
            yield Desk(gateway, make_keys(gateway, folder))


def make_keys(gateway: Gateway, folder: Path) -> dict[str, str]:
    """Make keys: one for everything, one for little, one made under another secret, one revoked, one used up."""
    settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/treadle.db"))
    runtime = gateway.runtime

    def ring(secret: bytes) -> Keyring:
        return Keyring(runtime.store.keys, secret_for("keys", secret), clock=runtime.clock, ids=runtime.ids)

    mine = ring(stored_secret(settings))
    made = {
        "good": gateway.ask(mine.create("good", KeyGrant(role="viewer"))),
        "narrow": gateway.ask(mine.create("narrow", KeyGrant(apis=("messages",), models=("x-*",)))),
        "stale": gateway.ask(ring(OTHER_SECRET).create("stale", KeyGrant())),
        "revoked": gateway.ask(mine.create("revoked", KeyGrant())),
        "busy": gateway.ask(mine.create("busy", KeyGrant(rates=KeyRates(requests_per_min=1)))),
    }
    gateway.ask(mine.revoke("revoked"))
    return {name: token.text for name, (_, token) in made.items()}


class Wrong(msgspec.Struct, frozen=True, kw_only=True):
    """One mistake: who asks for what, and what must be answered."""

    name: str
    path: str = "/v1/chat/completions"
    key: str = "good"
    body: Any = None
    method: str = "POST"
    content_type: str = "application/json"
    status: int
    what: str
    way_out: str


WRONG = (
    Wrong(name="no key", key="", status=401, what="wants a key, and none came", way_out="Authorization: Bearer"),
    Wrong(name="wrong key", key="sk-x", status=401, what="not one of this server's", way_out="treadle keys list"),
    Wrong(name="stale secret", key="stale", status=401, what="not one of this server's", way_out="treadle doctor"),
    Wrong(name="revoked key", key="revoked", status=401, what="was revoked", way_out="treadle keys create"),
    Wrong(name="wrong API", key="narrow", status=403, what="may not use the chat API", way_out="keys create --apis"),
    Wrong(
        name="wrong model",
        key="narrow",
        path="/v1/messages",
        body={**CHAT, "max_tokens": 9},
        status=403,
        what="may not use the model 'dead-1'",
        way_out="keys create --models",
    ),
    Wrong(
        name="wrong role",
        path="/treadle/v1/keys",
        method="GET",
        status=403,
        what="may not use what needs the role 'admin'",
        way_out="keys create --role",
    ),
    Wrong(
        name="model unknown",
        body={**CHAT, "model": "deed-1"},
        status=404,
        what="no upstream serves the model 'deed-1'",
        way_out="dead",
    ),
    Wrong(name="upstream down", status=502, what="cannot be reached", way_out="listening at 127.0.0.1:9?"),
    Wrong(
        name="upstream wants a key",
        body={**CHAT, "model": "strict-1"},
        status=502,
        what="Incorrect API key provided",
        way_out="STRICT_KEY is not set",
    ),
    Wrong(name="wrong path", path="/v1/chat", status=404, what="nothing at POST /v1/chat", way_out="page"),
    Wrong(
        name="no content type",
        content_type="text/plain",
        status=415,
        what="Content-Type: application/json",
        way_out="With curl, add -H",
    ),
    Wrong(name="no JSON", body=b"{model: x}", status=400, what="not a JSON object", way_out="(byte 1)"),
    Wrong(name="a field that is missing", body={"model": "dead-1"}, status=400, what="messages", way_out="messages"),
    Wrong(
        name="too large",
        body={**CHAT, "metadata": {"x": "y" * 5_000}},
        status=413,
        what="4096",
        way_out="server.body_bytes_max",
    ),
)


def ask(desk: Desk, wrong: Wrong) -> tuple[int, str]:
    """Send it and return the status and the words of the error, wherever the API has them."""
    address = urlsplit(desk.gateway.origin)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    body = wrong.body if isinstance(wrong.body, bytes) else msgspec.json.encode(wrong.body or CHAT)
    headers = {"content-type": wrong.content_type}
    if wrong.key:
        headers["authorization"] = f"Bearer {desk.keys.get(wrong.key, wrong.key)}"
    connection.request(wrong.method, wrong.path, body if wrong.method == "POST" else None, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    error = msgspec.json.decode(text)["error"]
    return answer.status, f"{error['message']} {error.get('hint') or ''} {error.get('param') or ''}"


@pytest.mark.parametrize("wrong", WRONG, ids=lambda each: each.name)
def test_a_mistake_is_answered_with_what_to_do(wrong: Wrong, desk: Desk) -> None:
    """The status, what happened, and the way out; never a key."""
    status, words = ask(desk, wrong)
    assert status == wrong.status, words
    assert wrong.what in words
    assert wrong.way_out in words
    assert not any(key in words for key in desk.keys.values())


def test_a_key_that_has_used_up_its_minute_is_told_when_to_come_back(desk: Desk) -> None:
    """The second request of the minute."""
    wrong = Wrong(name="rate", key="busy", status=429, what="", way_out="")
    ask(desk, wrong)
    status, words = ask(desk, wrong)
    assert status == 429
    assert "1" in words
