"""Who asks: by key, by cookie, or whoever is at this machine; and what is told to whom it is not."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.config import ServerSection, Settings, StoreSection
from treadle.config.access_settings import KeysSection
from treadle.core.errors import ConfigError
from treadle.journal.keys_interface import KeyGrant
from treadle.runtime import Parts, Runtime
from treadle.server.app import App
from treadle.server.auth.authentication import asks_for_key
from treadle.server.auth.page_access import asks_for_login
from unit.server.api.test_login_routes import _login
from unit.server.conftest import OpenApp
from unit.server.keys import ask, make_key
from unit.server.visit import JSON_TYPE, LOCAL, Visit

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
ALWAYS = KeysSection(required="always")


@pytest.fixture
async def locked(open_app: OpenApp) -> AsyncIterator[App]:
    """An application that wants keys."""
    async with open_app(keys=ALWAYS) as app:
        yield app


@pytest.mark.parametrize(
    ("server", "required", "needed"),
    [
        (ServerSection(), "auto", False),
        (ServerSection(), "always", True),
        (ServerSection(host="0.0.0.0", allow_remote=True), "auto", True),
        (ServerSection(allowed_hosts=("gateway.example.org",)), "auto", True),
        (ServerSection(host="0.0.0.0", allow_remote=True), "never", False),
    ],
)
def test_keys_are_needed_where_others_can_come(server: ServerSection, required: str, needed: bool) -> None:
    """Unless the configuration says otherwise, either way; where programs need keys, people log in."""
    keys = KeysSection(required=required)  # type: ignore[arg-type]
    settings = Settings(server=server, keys=keys)
    assert asks_for_key(settings) is needed
    assert asks_for_login(settings) or not needed


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/chat/completions", b'"type":"authentication_error"', '"code":"missing_api_key"'),
        ("/v1/responses", b'"type":"authentication_error"', '"code":"missing_api_key"'),
        ("/v1/messages", b'"type":"error"', '"type":"authentication_error"'),
        ("/v1beta/models/demo:generateContent", b'"status":"UNAUTHENTICATED"', '"code":401'),
        ("/mcp", b'"code":"missing_api_key"', "treadle keys create"),
    ],
)
async def test_without_a_key_every_api_says_so_in_its_own_words(locked: App, path: str, body: bytes, told: str) -> None:
    """401 in the API's envelope, with what to do."""
    visit = await ask(locked, "POST", path, body=CHAT)
    assert (visit.status, visit.headers["www-authenticate"]) == (401, "Bearer")
    assert body in visit.body
    assert told in visit.body.decode()


async def test_the_id_of_a_key_in_the_query_is_no_key(locked: App) -> None:
    """Whoever is logged in narrows a list by it; nobody comes in by it."""
    key = await make_key(locked, "ada")
    key_id = (await locked.service.clients.keyring.check(key)).key_id
    await ask(locked, "POST", "/v1/chat/completions", key=key, body=CHAT)
    cookie = await _login(locked)
    for wanted, count in ((key_id, 1), ("key_none", 0)):
        listed = await Visit(locked, "GET", f"/treadle/v1/runs?key={wanted}", headers=[LOCAL, cookie]).run()
        assert (listed.status, len(listed.json()["runs"])) == (200, count)
    stranger = await Visit(locked, "GET", f"/treadle/v1/runs?key={key_id}").run()
    assert stranger.status == 401


async def test_the_key_filter_shows_nobody_the_runs_of_others(locked: App) -> None:
    """Without a role it narrows what is one's own, and no more."""
    mine, other = await make_key(locked, "mine"), await make_key(locked, "other")
    key_id = (await locked.service.clients.keyring.check(mine)).key_id
    await ask(locked, "POST", "/v1/chat/completions", key=mine, body=CHAT)
    assert (await ask(locked, "GET", f"/treadle/v1/runs?key={key_id}", key=other)).json()["runs"] == []


@pytest.mark.parametrize(
    "name",
    ["authorization", "x-api-key", "x-goog-api-key", "?key="],
)
async def test_a_key_is_taken_wherever_an_api_puts_it(locked: App, name: str) -> None:
    """In every place, on every API, as clients do."""
    key = await make_key(locked, "ada")
    header = [] if name == "?key=" else [(name, f"Bearer {key}" if name == "authorization" else key)]
    path = f"/v1/chat/completions?key={key}" if name == "?key=" else "/v1/chat/completions"
    assert (await ask(locked, "POST", path, body=CHAT, headers=header)).status == 200


@pytest.mark.parametrize(
    "bad",
    ["", "tr_", "sk-123", "tr_" + "0" * 16 + "_" + "0" * 64, "ключ", "tr_" + "a" * 60_000, "\x00", "tr_x_y"],
)
async def test_what_is_no_key_is_refused(locked: App, bad: str) -> None:
    """Empty, of another server, made up, not ASCII, very long: 401 each time, and the text is nowhere in the answer."""
    raw = bad.encode().decode("latin-1")
    visit = await Visit(
        locked, "POST", "/v1/responses", headers=[LOCAL, JSON_TYPE, ("authorization", f"Bearer {raw}")], body=b"{}"
    ).run()
    assert visit.status == 401
    assert not bad or bad == "tr_" or bad not in visit.body.decode("utf-8", "replace")


async def test_a_key_of_a_megabyte_is_too_much_of_a_header(locked: App) -> None:
    """It is refused before anybody looks at it."""
    visit = await ask(locked, "POST", "/v1/responses", key="tr_" + "a" * 1_000_000, body={})
    assert visit.status == 431


async def test_a_revoked_and_an_expired_key_say_so_to_their_holder(locked: App) -> None:
    """Whoever proves to have had the key is told why it is no more."""
    keyring = locked.service.clients.keyring
    key = await make_key(locked, "old")
    assert (await ask(locked, "GET", "/v1/models", key=key)).status == 200
    await keyring.revoke("old")
    visit = await ask(locked, "GET", "/v1/models", key=key)
    assert (visit.status, visit.json()["error"]["code"]) == (401, "revoked_api_key")
    _, token = await keyring.create("brief", KeyGrant(), expires_in_s=1e-6)
    visit = await ask(locked, "GET", "/v1/models", key=token.text)
    assert (visit.status, visit.json()["error"]["code"]) == (401, "expired_api_key")


async def test_what_is_open_needs_no_key(locked: App) -> None:
    """Whether it lives, and the page to log in; the other pages want a login, and all else a key."""
    for path in ("/healthz", "/readyz", "/api/hello", "/login"):
        assert (await ask(locked, "GET", path)).status == 200
    assert (await ask(locked, "GET", "/")).status == 401
    assert (await ask(locked, "GET", "/metrics")).status == 401
    viewer = await make_key(locked, "prometheus", role="viewer")
    assert (await ask(locked, "GET", "/metrics", key=viewer)).status == 200


async def test_an_api_that_is_not_of_the_key_is_refused(locked: App) -> None:
    """403 in the API's envelope, naming the scope."""
    key = await make_key(locked, "chatter", apis=("chat",))
    assert (await ask(locked, "POST", "/v1/chat/completions", key=key, body=CHAT)).status == 200
    for path in ("/v1/responses", "/v1/messages", "/v1beta/models/demo:generateContent", "/treadle/v1/runs", "/mcp"):
        visit = await ask(locked, "POST", path, key=key, body=CHAT)
        assert (path, visit.status) == (path, 403)
        assert b"--apis" in visit.body or b"apis" in visit.body
    assert (await ask(locked, "GET", "/v1/models", key=key)).status == 200


async def test_models_are_listed_and_asked_as_the_key_allows(locked: App) -> None:
    """What is not allowed is not listed, not found by name, and not asked, also where the request names none."""
    key = await make_key(locked, "narrow", models=("other-*",))
    assert (await ask(locked, "GET", "/v1/models", key=key)).json()["data"] == []
    assert (await ask(locked, "GET", "/v1/models/demo", key=key)).status == 404
    assert (await ask(locked, "GET", "/treadle/v1/models", key=key)).json()["models"] == []
    visit = await ask(locked, "POST", "/v1/chat/completions", key=key, body=CHAT)
    assert (visit.status, visit.json()["error"]["param"]) == (403, "model")
    assert (await ask(locked, "POST", "/treadle/v1/runs", key=key, body={"input": "hi"})).status == 403


async def test_tools_are_shown_and_offered_as_the_key_allows(locked: App) -> None:
    """The plan of a run has those tools alone, and no fork brings the others back."""
    narrow = await make_key(locked, "narrow", tools=("get_weather",))
    shown = (await ask(locked, "GET", "/treadle/v1/tools", key=narrow)).json()["tools"]
    assert [tool["spec"]["name"] for tool in shown] == ["get_weather"]
    hidden = [tool.name for tool in locked.service.runtime.registry.tools() if tool.name != "get_weather"]
    assert (await ask(locked, "GET", f"/treadle/v1/tools/{hidden[0]}", key=narrow)).status == 404
    run = (await ask(locked, "POST", "/treadle/v1/runs", key=narrow, body={"input": "hi"})).json()["id"]
    await ask(locked, "GET", f"/treadle/v1/runs/{run}/events", key=narrow)
    again = (await ask(locked, "POST", f"/treadle/v1/runs/{run}/fork", key=narrow, body={})).json()["id"]
    await ask(locked, "GET", f"/treadle/v1/runs/{again}/events", key=narrow)
    for run_id in (run, again):
        plan = (await ask(locked, "GET", f"/treadle/v1/runs/{run_id}/plans/1", key=narrow)).json()["plan"]
        assert [tool["name"] for tool in plan["tools"]] == ["get_weather"]


async def test_on_this_machine_no_key_is_needed_and_ours_is_honoured(app: App) -> None:
    """Any other text is what clients must send and means nothing; a wrong one of ours is a mistake worth telling."""
    key = await make_key(app, "ada")
    assert (await ask(app, "POST", "/v1/chat/completions", body=CHAT)).status == 200
    assert (await ask(app, "POST", "/v1/chat/completions", key="sk-anything", body=CHAT)).status == 200
    assert (await ask(app, "POST", "/v1/chat/completions", key=key, body=CHAT)).status == 200
    assert (await ask(app, "POST", "/v1/chat/completions", key=key[:-1] + "x", body=CHAT)).status == 401
    mine = (await ask(app, "GET", "/treadle/v1/runs", key=key)).json()["runs"]
    everybody = (await ask(app, "GET", "/treadle/v1/runs")).json()["runs"]
    assert (len(mine), len(everybody)) == (1, 3)


async def test_people_who_are_logged_in_see_what_all_keys_did(locked: App) -> None:
    """A cookie is a person's: they look at everybody's runs, and change what their scope lets them."""
    key = await make_key(locked, "ada")
    await ask(locked, "POST", "/v1/chat/completions", key=key, body=CHAT)
    cookies = {}
    for scope in ("viewer", "admin"):
        now = locked.service.runtime.clock.now()
        link = locked.service.gate.link_path("eve", scope, now).partition("#")[2]
        made = await ask(locked, "POST", "/login", body={"ticket": link})
        cookies[scope] = [("cookie", made.headers["set-cookie"].partition(";")[0]), ("x-treadle-page", "1")]
    for scope, status in (("viewer", 403), ("admin", 200)):
        runs = await ask(locked, "GET", "/treadle/v1/runs", headers=cookies[scope])
        assert len(runs.json()["runs"]) == 1
        path = f"/treadle/v1/runs/{runs.json()['runs'][0]['id']}/cancel"
        assert (await ask(locked, "POST", path, headers=cookies[scope])).status == status
    assert (await ask(locked, "GET", "/treadle/v1/keys", headers=cookies["viewer"])).status == 403
    assert (await ask(locked, "GET", "/treadle/v1/keys", headers=cookies["admin"])).status == 200
    assert (await ask(locked, "POST", "/v1/chat/completions", headers=cookies["admin"], body=CHAT)).status == 200


async def test_keys_that_nobody_would_know_tomorrow_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a journal that is a file the secret must come from the environment, and the error says so."""
    monkeypatch.delenv("TREADLE_SECRET", raising=False)
    store = StoreSection(url=f"sqlite:///{tmp_path}/t.db", persistence="off")
    async with Runtime(Settings(store=store, keys=ALWAYS), parts=Parts(env={}, demo_delay_s=0.0)) as runtime:
        with pytest.raises(ConfigError, match="a secret that lasts") as caught:
            App(runtime)
        assert "TREADLE_SECRET" in (caught.value.hint or "")
        monkeypatch.setenv("TREADLE_SECRET", "s" * 32)
        assert App(runtime).service.clients.needs_key


async def test_refusals_are_counted_by_their_reason(locked: App) -> None:
    """A closed set of codes, no key among them."""
    await ask(locked, "POST", "/v1/responses", body={})
    await ask(locked, "POST", "/v1/responses", key="sk-1", body={})
    viewer = await make_key(locked, "prometheus", role="viewer")
    text = (await ask(locked, "GET", "/metrics", key=viewer)).body.decode()
    assert 'treadle_refused_requests_total{code="missing_api_key"} 1.0' in text
    assert 'treadle_refused_requests_total{code="invalid_api_key"} 1.0' in text
