"""What a key may reach: its own runs, and nothing of another's, by whatever way the console has to them."""

import msgspec
import pytest

from treadle.journal.keys_interface import KeyGrant
from treadle.server.app import App
from unit.server.api.conftest import PATH
from unit.server.visit import JSON_TYPE, LOCAL, Visit

WAYS = [
    ("GET", "/trace"),
    ("GET", "/rounds/1"),
    ("GET", "/export"),
    ("GET", "/export?format=cassette"),
    ("POST", "/fork"),
    ("POST", "/replay"),
]


async def ask(app: App, key: str, method: str, path: str, body: object = None) -> Visit:
    """Ask with a key."""
    headers = [LOCAL, JSON_TYPE, ("authorization", f"Bearer {key}")]
    data = b"" if body is None else msgspec.json.encode(body)
    return await Visit(app, method, path, headers=headers, body=data).run()


async def new_key(app: App, name: str, **grant: object) -> str:
    """Make a key and return its text."""
    _, token = await app.service.clients.keyring.create(name, msgspec.convert(grant, KeyGrant))
    return token.text


async def ran_by(app: App, key: str) -> str:
    """Run something under a key to its end."""
    run_id: str = (await ask(app, key, "POST", PATH, {"input": "Add 2 and 3"})).json()["id"]
    await ask(app, key, "GET", f"{PATH}/{run_id}/events")
    return run_id


@pytest.mark.parametrize(("method", "way"), WAYS)
async def test_another_keys_run_is_as_if_there_were_none(app: App, method: str, way: str) -> None:
    """Not found for the other, there for its own."""
    mine, other = [await new_key(app, name) for name in ("mine", "other")]
    run_id = await ran_by(app, mine)
    assert (await ask(app, other, method, f"{PATH}/{run_id}{way}")).status == 404
    assert (await ask(app, mine, method, f"{PATH}/{run_id}{way}")).status in (200, 201)


async def test_a_list_holds_only_what_is_the_keys_own(app: App) -> None:
    """A viewer sees everybody's; a filter finds nothing of another's."""
    mine, other = [await new_key(app, name) for name in ("mine", "other")]
    viewer = await new_key(app, "viewer", role="viewer")
    run_id = await ran_by(app, mine)
    found = [(await ask(app, key, "GET", f"{PATH}?text=add")).json()["runs"] for key in (mine, other, viewer)]
    assert [[run["id"] for run in runs] for runs in found] == [[run_id], [], [run_id]]


async def test_runs_are_narrowed_to_a_key_by_whoever_may_see_it(app: App) -> None:
    """Who may see only their own sees those, whatever key is named."""
    mine, other = [await new_key(app, name) for name in ("mine", "other")]
    viewer = await new_key(app, "viewer", role="viewer")
    ran = [await ran_by(app, key) for key in (mine, other)]
    [named] = [row.id for row in await app.service.runtime.store.keys.page(10) if row.name == "mine"]
    found = [(await ask(app, key, "GET", f"{PATH}?key={named}")).json()["runs"] for key in (mine, other, viewer)]
    assert [[run["id"] for run in runs] for runs in found] == [[ran[0]], [ran[1]], [ran[0]]]


async def test_evaluations_and_keys_are_for_those_with_a_role(app: App) -> None:
    """They belong to nobody's key."""
    plain, viewer = await new_key(app, "plain"), await new_key(app, "viewer", role="viewer")
    assert [(await ask(app, key, "GET", "/treadle/v1/evals")).status for key in (plain, viewer)] == [403, 200]
    assert [(await ask(app, key, "GET", "/treadle/v1/keys")).status for key in (plain, viewer)] == [403, 403]
