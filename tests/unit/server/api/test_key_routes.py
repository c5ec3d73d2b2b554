"""Keys over HTTP, for admins: made, shown once, listed, revoked."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from treadle.config import StoreSection
from treadle.config.access_settings import KeysSection
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.keys import ask, make_key

PATH = "/treadle/v1/keys"


@pytest.fixture
async def locked(open_app: OpenApp) -> AsyncIterator[App]:
    """An application that wants keys."""
    async with open_app(keys=KeysSection(required="always")) as app:
        yield app


async def test_a_key_is_made_shown_once_used_and_revoked(locked: App) -> None:
    """What is listed later never has it; a revoked one is refused at once, and revoking it again changes nothing."""
    admin = await make_key(locked, "admin", role="admin")
    body = {"name": "ci", "apis": ["chat"], "expires_s": 60, "rates": {"requests_per_min": 9}, "budget": {"usd": 1.5}}
    made = await ask(locked, "POST", PATH, key=admin, body=body)
    view = made.json()
    assert (made.status, view["state"], view["role"]) == (201, "active", "none")
    assert made.headers["location"] == f"{PATH}/{view['id']}"
    assert (await ask(locked, "GET", "/v1/models", key=view["key"])).status == 200
    listed = await ask(locked, "GET", PATH, key=admin)
    assert view["key"].encode() not in listed.body
    assert [each["name"] for each in listed.json()["keys"]] == ["ci", "admin"]
    for name in ("ci", view["id"]):
        revoked = await ask(locked, "DELETE", f"{PATH}/{name}", key=admin)
        assert (revoked.status, revoked.json()["state"]) == (200, "revoked")
    assert (await ask(locked, "GET", "/v1/models", key=view["key"])).status == 401
    assert (await ask(locked, "DELETE", f"{PATH}/nobody", key=admin)).status == 404


async def test_pages_of_keys(locked: App) -> None:
    """Newest first, and `before` goes on."""
    admin = await make_key(locked, "admin", role="admin")
    await make_key(locked, "second")
    first = (await ask(locked, "GET", f"{PATH}?limit=1", key=admin)).json()
    assert ([each["name"] for each in first["keys"]], first["has_more"]) == (["second"], True)
    rest = (await ask(locked, "GET", f"{PATH}?before={first['keys'][0]['id']}", key=admin)).json()
    assert ([each["name"] for each in rest["keys"]], rest["has_more"]) == (["admin"], False)


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"name": " "}, "name"),
        ({"name": 5}, "name"),
        ({"apis": ["chit"]}, "apis"),
        ({"apis": []}, "apis"),
        ({"models": [""]}, "models"),
        ({"role": "king"}, "role"),
        ({"expires_s": 0}, "expires_s"),
        ({"expires_s": 1e300}, "expires_s"),
        ({"rates": {"runs_max": -1}}, "rates.runs_max"),
        ({"budget": {"usd": -1}}, "budget.usd"),
        ({"budget": {"tokens": -1}}, "budget.tokens"),
        ({"budget": {"period": "week"}}, "budget.period"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_what_no_key_can_be_is_refused_by_its_field(locked: App, changed: Any, param: str) -> None:
    """400, naming it; nothing is made."""
    admin = await make_key(locked, "admin", role="admin")
    visit = await ask(locked, "POST", PATH, key=admin, body={"name": "x", **changed})
    assert (visit.status, visit.json()["error"]["param"]) == (400, param)
    assert len((await ask(locked, "GET", PATH, key=admin)).json()["keys"]) == 1


async def test_a_name_is_one_keys(locked: App) -> None:
    """Also of a revoked one: what it did is still listed under it."""
    admin = await make_key(locked, "admin", role="admin")
    visit = await ask(locked, "POST", PATH, key=admin, body={"name": "admin"})
    assert (visit.status, visit.json()["error"]["code"]) == (409, "key_taken")


async def test_where_none_can_be_kept_it_says_so(open_app: OpenApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine no key is needed, and without a secret that lasts none can be made."""
    monkeypatch.delenv("TREADLE_SECRET", raising=False)
    async with open_app() as app:
        settings = app.service.runtime.settings
        monkeypatch.setattr(app.service.runtime, "settings", _forgetful(settings))
        visit = await ask(app, "POST", PATH, body={"name": "x"})
        assert (visit.status, visit.json()["error"]["code"]) == (400, "unsupported_feature")
        assert "TREADLE_SECRET" in visit.json()["error"]["hint"]
        assert (await ask(app, "GET", "/v1/models", key="tr_x")).status == 401


def _forgetful(settings: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(settings, store=StoreSection(persistence="off"))
