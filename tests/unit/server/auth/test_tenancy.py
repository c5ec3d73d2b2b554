"""Two keys: over every route of the table, nothing of one is there for the other. A new route needs a line here."""

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from treadle.config.access_settings import KeysSection
from treadle.journal.approvals_interface import ApprovalQuestion, ApprovalRow, ApprovalRule, RuleRow
from treadle.journal.keys_interface import KeyBudget, KeyRates
from treadle.server.app import App
from treadle.server.route_table import TABLE
from unit.server.conftest import OpenApp
from unit.server.keys import ask, make_key
from unit.server.visit import LOCAL, Visit

OWN = "own"
"""It names something: another key's is 404, in the very words of something that never was."""
LISTS = "lists"
"""It lists: only what is the key's own."""
MAKES = "makes"
"""It makes something of the key's own, and is looked at where that is listed or named."""
ROLE = "role"
"""It needs a role, which a plain key has not."""
SHARED = "shared"
"""It shows nothing that any client has said or done."""

DECISIONS: dict[str, str] = {
    "POST /v1/chat/completions": MAKES,
    "POST /v1/responses": MAKES,
    "GET /v1/responses": SHARED,
    "POST /v1/responses/input_tokens": SHARED,
    "POST /v1/responses/compact": MAKES,
    "GET /v1/responses/{response_id}": OWN,
    "DELETE /v1/responses/{response_id}": OWN,
    "GET /v1/responses/{response_id}/input_items": OWN,
    "POST /v1/responses/{response_id}/cancel": OWN,
    "POST /v1/conversations": MAKES,
    "GET /v1/conversations/{conversation_id}": OWN,
    "POST /v1/conversations/{conversation_id}": OWN,
    "DELETE /v1/conversations/{conversation_id}": OWN,
    "GET /v1/conversations/{conversation_id}/items": OWN,
    "POST /v1/conversations/{conversation_id}/items": OWN,
    "GET /v1/conversations/{conversation_id}/items/{item_id}": OWN,
    "DELETE /v1/conversations/{conversation_id}/items/{item_id}": OWN,
    "POST /v1/messages": MAKES,
    "POST /v1/messages/count_tokens": SHARED,
    "POST /v1beta/models/{model*}": MAKES,
    "POST /v1beta/tunedModels/{model*}": MAKES,
    "POST /v1/models/{model*}": MAKES,
    "POST /v1/tunedModels/{model*}": MAKES,
    "GET /v1/models": SHARED,
    "GET /v1/models/{model*}": SHARED,
    "GET /v1beta/models": SHARED,
    "GET /v1beta/models/{model*}": SHARED,
    "POST /treadle/v1/runs": MAKES,
    "GET /treadle/v1/runs": LISTS,
    "GET /treadle/v1/runs/{run_id}": OWN,
    "GET /treadle/v1/runs/{run_id}/events": OWN,
    "POST /treadle/v1/runs/{run_id}/cancel": OWN,
    "GET /treadle/v1/runs/{run_id}/plans": OWN,
    "GET /treadle/v1/runs/{run_id}/plans/{round}": OWN,
    "GET /treadle/v1/plans/{fingerprint}": OWN,
    "GET /treadle/v1/runs/{run_id}/trace": OWN,
    "GET /treadle/v1/runs/{run_id}/rounds/{round}": OWN,
    "POST /treadle/v1/runs/{run_id}/fork": OWN,
    "POST /treadle/v1/runs/{run_id}/replay": OWN,
    "GET /treadle/v1/runs/{run_id}/export": OWN,
    "GET /treadle/v1/evals": ROLE,
    "GET /treadle/v1/evals/{run}": ROLE,
    "GET /treadle/v1/evals/{run}/samples/{key*}": ROLE,
    "GET /treadle/v1/sessions": LISTS,
    "POST /treadle/v1/sessions": MAKES,
    "GET /treadle/v1/sessions/{session_id}": OWN,
    "PATCH /treadle/v1/sessions/{session_id}": OWN,
    "DELETE /treadle/v1/sessions/{session_id}": OWN,
    "POST /treadle/v1/sessions/{session_id}/fork": OWN,
    "GET /treadle/v1/sessions/{session_id}/export": OWN,
    "GET /treadle/v1/sessions/{session_id}/turns": OWN,
    "POST /treadle/v1/sessions/{session_id}/turns": OWN,
    "POST /treadle/v1/sessions/{session_id}/branch": OWN,
    "GET /treadle/v1/models": SHARED,
    "GET /treadle/v1/live": OWN,
    "GET /treadle/v1/workspaces": LISTS,
    "POST /treadle/v1/workspaces": MAKES,
    "GET /treadle/v1/workspaces/{workspace}": OWN,
    "PATCH /treadle/v1/workspaces/{workspace}": OWN,
    "DELETE /treadle/v1/workspaces/{workspace}": OWN,
    "PATCH /treadle/v1/workspaces/{workspace}/draft": OWN,
    "PATCH /treadle/v1/workspaces/{workspace}/ui": OWN,
    "POST /treadle/v1/workspaces/{workspace}/locks": OWN,
    "DELETE /treadle/v1/workspaces/{workspace}/locks": OWN,
    "GET /treadle/v1/workspaces/{workspace}/history": OWN,
    "GET /treadle/v1/workspaces/{workspace}/versions/{version}": OWN,
    "GET /treadle/v1/workspaces/{workspace}/diff": OWN,
    "POST /treadle/v1/workspaces/{workspace}/restore": OWN,
    "GET /treadle/v1/workspaces/{workspace}/audit": OWN,
    "GET /treadle/v1/workspaces/{workspace}/proposals": OWN,
    "POST /treadle/v1/workspaces/{workspace}/proposals": OWN,
    "GET /treadle/v1/workspaces/{workspace}/proposals/{proposal}": OWN,
    "POST /treadle/v1/workspaces/{workspace}/proposals/{proposal}/confirm": OWN,
    "POST /treadle/v1/workspaces/{workspace}/proposals/{proposal}/reject": OWN,
    "GET /treadle/v1/proposals": LISTS,
    "GET /treadle/v1/approvals": LISTS,
    "GET /treadle/v1/approvals/rules": LISTS,
    "DELETE /treadle/v1/approvals/rules/{rule_id}": OWN,
    "GET /treadle/v1/approvals/{approval_id}": OWN,
    "POST /treadle/v1/approvals/{approval_id}": OWN,
    "POST /treadle/v1/approvals/{approval_id}/decide": OWN,
    "GET /treadle/v1/tools": SHARED,
    "GET /treadle/v1/tools/{name*}": SHARED,
    "GET /treadle/v1/mcp": ROLE,
    "POST /treadle/v1/mcp/{server}": ROLE,
    "GET /treadle/v1/upstreams": ROLE,
    "GET /treadle/v1/replicas": ROLE,
    "GET /treadle/v1/guests": SHARED,
    "POST /treadle/v1/guests/{name}/runs": MAKES,
    "GET /mcp": MAKES,
    "POST /mcp": MAKES,
    "DELETE /mcp": MAKES,
    "GET /healthz": SHARED,
    "GET /openapi.json": SHARED,
    "GET /api/hello": SHARED,
    "GET /readyz": SHARED,
    "GET /metrics": ROLE,
    "GET /login": SHARED,
    "POST /login": SHARED,
    "POST /treadle/v1/logout": SHARED,
    "POST /treadle/v1/logins": ROLE,
    "GET /treadle/v1/me": SHARED,
    "GET /treadle/v1/keys": ROLE,
    "POST /treadle/v1/keys": ROLE,
    "DELETE /treadle/v1/keys/{key}": ROLE,
    "GET /": SHARED,
    "GET /console": SHARED,
    "GET /console/{view*}": SHARED,
    "GET /web/{file*}": SHARED,
}
BODIES: dict[str, Any] = {
    "POST /v1/conversations/{conversation_id}": {"metadata": {"a": "b"}},
    "POST /v1/conversations/{conversation_id}/items": {"items": [{"role": "user", "content": "hi"}]},
    "PATCH /treadle/v1/sessions/{session_id}": {"name": "stolen"},
    "POST /treadle/v1/sessions/{session_id}/turns": {"input": "hi"},
    "POST /treadle/v1/sessions/{session_id}/branch": {"run": "run_x"},
    "PATCH /treadle/v1/workspaces/{workspace}": {"name": "stolen"},
    "PATCH /treadle/v1/workspaces/{workspace}/draft": {"changes": [{"path": "/draft/a", "value": 2}]},
    "PATCH /treadle/v1/workspaces/{workspace}/ui": {"changes": [{"path": "/ui/a", "value": 2}]},
    "POST /treadle/v1/workspaces/{workspace}/locks": {"path": "/draft/a"},
    "POST /treadle/v1/workspaces/{workspace}/restore": {"version": 1},
    "POST /treadle/v1/workspaces/{workspace}/proposals": {"changes": [{"path": "/facts/b", "value": 2}]},
    "POST /treadle/v1/workspaces/{workspace}/proposals/{proposal}/confirm": {"version": 1},
    "POST /treadle/v1/approvals/{approval_id}": {"approve": True},
    "POST /treadle/v1/approvals/{approval_id}/decide": {"approve": True},
}
QUERIES = {
    "DELETE /treadle/v1/workspaces/{workspace}/locks": "?path=/draft/a",
    "GET /treadle/v1/workspaces/{workspace}/diff": "?from=1",
}
PARAM = re.compile(r"{(\w+)\*?}")


def routes() -> list[str]:
    """Return every route as method and pattern; HEAD is GET."""
    return [f"{method} {route.pattern}" for route in TABLE for method in route.methods.split() if method != "HEAD"]


def of_kind(kind: str) -> list[str]:
    """Return the routes that were decided so."""
    return [name for name in routes() if DECISIONS.get(name) == kind]


class House:
    """An application with two clients, and what the first of them has."""

    def __init__(self, app: App, mine: str, other: str) -> None:
        self.app, self.mine, self.other = app, mine, other
        self.ids: dict[str, str] = {"round": "1", "version": "1"}

    async def fill(self) -> None:
        """Let the first client do a little of everything."""
        response = await self._make("/v1/responses", {"model": "demo", "input": "hello"})
        runs = (await ask(self.app, "GET", "/treadle/v1/runs", key=self.mine)).json()["runs"]
        items = [{"role": "user", "content": "hello"}]
        conversation = (await self._make("/v1/conversations", {"items": items}))["id"]
        listed = await ask(self.app, "GET", f"/v1/conversations/{conversation}/items", key=self.mine)
        session = (await self._make("/treadle/v1/sessions", {"name": "mine"}))["id"]
        run_id = runs[0]["id"]
        plans = (await ask(self.app, "GET", f"/treadle/v1/runs/{run_id}/plans", key=self.mine)).json()["plans"]
        space = {"name": "mine", "facts": {"a": 1}, "draft": {"a": 1}}
        workspace = (await self._make("/treadle/v1/workspaces", space))["id"]
        changes = BODIES["POST /treadle/v1/workspaces/{workspace}/proposals"]
        proposal = await self._make(f"/treadle/v1/workspaces/{workspace}/proposals", changes)
        self.ids |= {
            "response_id": response["id"],
            "run_id": run_id,
            "conversation_id": conversation,
            "item_id": listed.json()["data"][0]["id"],
            "session_id": session,
            "fingerprint": plans[0]["fingerprint"],
            "workspace": workspace,
            "proposal": proposal["id"],
            "approval_id": "appr_mine",
            "rule_id": "rule_mine",
        }
        await self._ask_somebody(run_id)

    async def _ask_somebody(self, run_id: str) -> None:
        store, key_id = self.app.service.runtime.store, await self.key_id()
        question = ApprovalQuestion(tool="wipe", source="local", arguments="{}", digest="0" * 64)
        row = ApprovalRow(
            id="appr_mine", run_id=run_id, call_id="c", created_at=1.0, expires_at=2e9, question=question, key_id=key_id
        )
        await store.approvals.file(row)
        rule = ApprovalRule(kind="tool", tool="wipe")
        await store.approvals.add_rule(RuleRow(id="rule_mine", created_at=1.0, rule=rule, key_id=key_id))

    async def key_id(self) -> str:
        """Return the id of the first client's key."""
        return (await self.app.service.clients.keyring.check(self.mine)).key_id

    async def _make(self, path: str, body: Any) -> Any:
        visit = await ask(self.app, "POST", path, key=self.mine, body=body)
        assert visit.status in (200, 201), visit.body
        return visit.json()

    def path(self, name: str, ids: dict[str, str]) -> str:
        """Return the path of a route with these ids in it."""
        pattern = name.partition(" ")[2]
        if name == "GET /treadle/v1/live":
            return f"{pattern}?runs={ids['run_id']}:0"
        return PARAM.sub(lambda found: ids[found[1]], pattern) + QUERIES.get(name, "")


MISSING = {
    "response_id": "resp_" + "0" * 24,
    "run_id": "run_" + "0" * 24,
    "conversation_id": "conv_" + "0" * 24,
    "item_id": "msg_" + "0" * 24,
    "session_id": "sess_" + "0" * 24,
    "fingerprint": "0" * 64,
    "workspace": "ws_" + "0" * 24,
    "proposal": "prop_" + "0" * 24,
    "approval_id": "appr_none",
    "rule_id": "rule_none",
    "server": "none",
    "round": "1",
    "version": "1",
}


@pytest.fixture
async def house(open_app: OpenApp) -> AsyncIterator[House]:
    """An application that wants keys, two of them, and what the first has done."""
    async with open_app(keys=KeysSection(required="always")) as app:
        found = House(app, await make_key(app, "mine"), await make_key(app, "other"))
        await found.fill()
        yield found


def test_every_route_has_been_thought_of() -> None:
    """A route that is not in the table of decisions fails here, and so does a decision without its route."""
    assert sorted(routes()) == sorted(DECISIONS)


async def test_what_another_key_has_is_as_if_it_were_not(house: House) -> None:
    """404 in the same words as for what never was; and it is all still there for its owner afterwards."""
    wrong: list[str] = []
    for name in of_kind(OWN):
        method, body = name.partition(" ")[0], BODIES.get(name)
        stolen = await ask(house.app, method, house.path(name, house.ids), key=house.other, body=body)
        missing = await ask(house.app, method, house.path(name, MISSING), key=house.other, body=body)
        told, expected = stolen.body.decode(), missing.body.decode()
        for param in house.ids.keys() - {"round", "version"}:
            told, expected = told.replace(house.ids[param], param), expected.replace(MISSING[param], param)
        if (stolen.status, missing.status) != (404, 404) or _plain(told) != _plain(expected):
            wrong.append(f"{name}: {stolen.status} {told} / {missing.status} {expected}")
    assert wrong == []


async def test_the_owner_reaches_all_of_it(house: House) -> None:
    """The same paths answer whoever they belong to: what is refused above is refused for whose it is."""
    reads = [name for name in of_kind(OWN) if name.startswith("GET") and name != "GET /treadle/v1/live"]
    statuses = {
        name: (await ask(house.app, "GET", house.path(name, house.ids), key=house.mine)).status for name in reads
    }
    assert {name: status for name, status in statuses.items() if status not in (200, 204)} == {}


async def test_lists_have_only_what_is_ones_own(house: House) -> None:
    """The owner's ids are in its lists and in no other's."""
    for name in of_kind(LISTS):
        path = name.partition(" ")[2]
        mine = (await ask(house.app, "GET", path, key=house.mine)).body.decode()
        other = (await ask(house.app, "GET", path, key=house.other)).body.decode()
        has_own = any(value in mine for param, value in house.ids.items() if param not in ("round", "version"))
        leaked = [param for param, value in house.ids.items() if len(value) > 1 and value in other]
        assert (name, has_own, leaked) == (name, True, [])


CURSORS = {"runs": "run_id", "sessions": "session_id", "workspaces": "workspace", "approvals": "approval_id"}


@pytest.mark.parametrize(("name", "param"), CURSORS.items())
async def test_another_keys_id_is_no_cursor(house: House, name: str, param: str) -> None:
    """It pages like one that never was: the answer does not tell that it is there."""
    path = f"/treadle/v1/{name}?before="
    stolen = await ask(house.app, "GET", path + house.ids[param], key=house.other)
    missing = await ask(house.app, "GET", path + MISSING[param], key=house.other)
    assert stolen.status == missing.status
    told = stolen.body.decode().replace(house.ids[param], param)
    assert told == missing.body.decode().replace(MISSING[param], param)


async def test_what_needs_a_role_is_not_for_plain_keys(house: House) -> None:
    """403 before anything is looked at, also for what is not there."""
    for name in of_kind(ROLE):
        path = PARAM.sub("x", name.partition(" ")[2])
        visit = await ask(house.app, name.partition(" ")[0], path, key=house.other, body={})
        assert (name, visit.status, visit.json()["error"]["code"]) == (name, 403, "key_scope")


async def test_a_role_lets_a_key_see_everybody_and_an_operator_act(house: House) -> None:
    """A viewer reads what all keys did and changes only its own; an operator changes all."""
    viewer = await make_key(house.app, "viewer", role="viewer")
    operator = await make_key(house.app, "operator", role="operator")
    path = f"/treadle/v1/sessions/{house.ids['session_id']}"
    assert (await ask(house.app, "GET", path, key=viewer)).status == 200
    assert (await ask(house.app, "PATCH", path, key=viewer, body={"name": "seen"})).status == 404
    assert (await ask(house.app, "PATCH", path, key=operator, body={"name": "seen"})).status == 200
    turn = await ask(house.app, "POST", f"{path}/turns", key=operator, body={"input": "and?"})
    assert turn.status == 201
    row = await house.app.service.runtime.store.find_run(turn.json()["run_id"])
    assert row is not None
    assert row.key_id == await house.key_id()


async def test_an_operator_is_not_measured_by_what_another_key_has_used(house: House) -> None:
    """Its budget is for its own runs; what it does for another counts for that one."""
    operator = await make_key(
        house.app, "operator", role="operator", budget=KeyBudget(tokens=1), rates=KeyRates(tokens_per_min=1)
    )
    turns = f"/treadle/v1/sessions/{house.ids['session_id']}/turns"
    assert (await ask(house.app, "POST", turns, key=operator, body={"input": "and?"})).status == 201
    fork = f"/treadle/v1/runs/{house.ids['run_id']}/fork"
    assert (await ask(house.app, "POST", fork, key=operator, body={})).status == 201
    own = {"input": "hi", "model": "demo"}
    begun = await ask(house.app, "POST", "/v1/responses", key=operator, body=own)
    again = await ask(house.app, "POST", "/v1/responses", key=operator, body=own)
    assert (begun.status, again.status) == (200, 429)


async def test_a_conversation_cannot_be_gone_on_with_by_another(house: House) -> None:
    """Not by its response, its conversation, or an item named in the input; nor does a count tell of it."""
    ids = house.ids
    bodies = [
        {"previous_response_id": ids["response_id"]},
        {"conversation": ids["conversation_id"]},
        {"input": [{"type": "item_reference", "id": ids["item_id"]}]},
    ]
    for body in bodies:
        whole = {"model": "demo", "input": "go on", **body}
        visit = await ask(house.app, "POST", "/v1/responses", key=house.other, body=whole)
        assert (body, visit.status) == (body, 404)
        own = await ask(house.app, "POST", "/v1/responses", key=house.mine, body=whole)
        assert (body, own.status) == (body, 200)
    count = await ask(house.app, "POST", "/v1/responses/input_tokens", key=house.other, body=bodies[0])
    assert count.status == 404
    named = {"items": [{"type": "item_reference", "id": ids["item_id"]}]}
    assert (await ask(house.app, "POST", "/v1/conversations", key=house.other, body=named)).status == 404


async def test_one_idempotency_key_is_two_for_two_clients(house: House) -> None:
    """Each finds its own run again, and neither the other's; with another body it is a conflict for its owner alone."""
    header = [("idempotency-key", "once")]
    body = {"model": "demo", "input": "hello"}

    async def run_of(key: str, **changed: Any) -> tuple[int, str]:
        visit = await ask(house.app, "POST", "/v1/responses", key=key, body={**body, **changed}, headers=header)
        return visit.status, visit.headers.get("x-treadle-run", "")

    first = await run_of(house.mine)
    other = await run_of(house.other, input="something else")
    assert (first[0], other[0]) == (200, 200)
    assert first != other
    assert await run_of(house.mine) == first
    assert (await run_of(house.mine, input="something else"))[0] == 409


async def test_the_event_stream_tells_each_key_of_its_own(house: House) -> None:
    """A session that one makes is news for it and for whoever looks after all, and for nobody else."""
    viewer = await make_key(house.app, "viewer", role="viewer")
    streams = {}
    for key in (house.mine, house.other, viewer):
        headers = [LOCAL, ("authorization", f"Bearer {key}")]
        streams[key] = Visit(house.app, "GET", "/treadle/v1/live", headers=headers).begin()
        await streams[key].until(b"hello")
    made = await ask(house.app, "POST", "/treadle/v1/sessions", key=house.mine, body={"name": "news"})
    for key in (house.mine, viewer):
        await streams[key].until(made.json()["id"].encode())
    own = await ask(house.app, "POST", "/treadle/v1/sessions", key=house.other, body={"name": "others"})
    await streams[house.other].until(own.json()["id"].encode())
    assert made.json()["id"].encode() not in streams[house.other].body
    for stream in streams.values():
        stream.leave()
        await stream.done()


async def test_names_are_free_for_every_key(house: House) -> None:
    """Two keys may have a session and a workspace of the same name, each its own."""
    assert (await ask(house.app, "POST", "/treadle/v1/sessions", key=house.other, body={"name": "mine"})).status == 201
    run = await ask(house.app, "POST", "/treadle/v1/runs", key=house.other, body={"input": "hi", "session": "mine"})
    assert run.status == 201
    assert run.json()["session_id"] != house.ids["session_id"]


def _plain(text: str) -> Any:
    """Return an error without what differs by request."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return {name: each for name, each in value.items() if name != "request_id"}
