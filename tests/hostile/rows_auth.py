"""Those who have no key, a bad one, or another's things in mind; on a server where every program needs a key."""

import json
from typing import Any

from hostile.house import Answer
from hostile.table import APIS, VENDORS, Row, Scene, check_refusal, send
from hostile.upstream import DONE, Line, Reply, call, chunk, good

PLACES = ("authorization", "x-api-key", "x-goog-api-key")


def key(scene: Scene, name: str, **grant: Any) -> str:
    """Make a key, as an admin does."""
    made = scene.house.ask("POST", "/treadle/v1/keys", {"name": name, **grant})
    assert made.status == 201, made.text
    return made.json["key"]


def bearing(text: str, place: str = "authorization") -> dict[str, str]:
    """Return the header in which an API looks for a key."""
    return {place: f"Bearer {text}" if place == "authorization" else text}


def knock(scene: Scene, api: str, headers: dict[str, str]) -> Answer:
    """Ask with these headers and no others."""
    path = APIS[api].path.replace("MODEL", "good")
    return scene.house.ask("POST", path, APIS[api].body(), {"authorization": "", **headers})


def stays_out(scene: Scene, *tries: dict[str, str]) -> None:
    """Assert that nobody comes in by any of these, on any API, in the words of each."""
    before = len(scene.received)
    for headers in tries:
        for api in APIS:
            check_refusal(api, knock(scene, api, headers), 401)
    assert len(scene.received) == before


def no_bearer(scene: Scene) -> None:
    """Nothing, and all that looks like nothing."""
    stays_out(scene, {}, {"authorization": "Bearer"}, {"authorization": "Bearer   "}, {"authorization": "Basic YTpi"})
    stays_out(scene, {"x-api-key": ""}, {"x-goog-api-key": " "})


def huge(scene: Scene) -> None:
    """A key of a megabyte is more than any head may be; one of 60 kB is only wrong."""
    for place in PLACES:
        raw = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{place}: Bearer {'k' * 1_000_000}\r\n\r\n"
        assert scene.house.raw(raw.encode()).status == 431
        stays_out(scene, bearing("tr_" + "k" * 60_000, place))


def foreign_letters(scene: Scene) -> None:
    """Letters that no key has."""
    good_key = key(scene, "letters")
    for text in (f"{good_key}é", "ｔｒ_" + good_key[3:], good_key.replace("_", "ˍ"), "\xff\xfe", good_key.swapcase()):
        raw = text.encode("utf-8").decode("latin-1")
        stays_out(scene, *(bearing(raw, place) for place in PLACES))


def revoked(scene: Scene) -> None:
    """A key that was taken away is refused from the next request on, wherever it is shown."""
    text = key(scene, "revoked")
    assert knock(scene, "chat", bearing(text)).status == 200
    assert scene.house.ask("DELETE", "/treadle/v1/keys/revoked").status == 200
    stays_out(scene, *(bearing(text, place) for place in PLACES))


def expired(scene: Scene) -> None:
    """A key whose time is over; it was good for an instant."""
    text = key(scene, "expired", expires_s=0.001)
    stays_out(scene, *(bearing(text, place) for place in PLACES))


def in_query(scene: Scene) -> None:
    """Taken, since Google's clients put it there; and in no log, no metric, no error."""
    text = key(scene, "query")
    path = f"/v1beta/models/good:generateContent?key={text}"
    nobody = {"authorization": ""}
    assert scene.house.ask("POST", path, APIS["gemini"].body(), nobody).status == 200
    lost = scene.house.ask("GET", f"/nowhere?key={text}", headers=nobody)
    failing = scene.house.ask("POST", path.replace("good", "bad-pay") + "&alt=%00", b"{", nobody)
    wrong = scene.house.ask("POST", path + "x", APIS["gemini"].body(), nobody)
    check_refusal("gemini", wrong, 401)
    metrics = scene.house.ask("GET", "/metrics")
    for answer in (lost, failing, wrong, metrics):
        assert text not in answer.text
    assert text not in (scene.house.folder / "server.log").read_text()


def others_things(scene: Scene) -> None:
    """What belongs to another key is answered exactly like what is not there."""
    mine, theirs = key(scene, "mine"), key(scene, "theirs")
    made = scene.house.ask("POST", "/v1/responses", {"model": "good", "input": "mine"}, bearing(mine))
    assert made.status == 200, made.text
    response, run = made.json["id"], made.headers["x-treadle-run"]
    talk = scene.house.ask("POST", "/v1/conversations", {}, bearing(mine)).json["id"]
    paths = {
        f"/v1/responses/{response}": ("GET", "DELETE"),
        f"/v1/responses/{response}/input_items": ("GET",),
        f"/v1/responses/{response}/cancel": ("POST",),
        f"/v1/conversations/{talk}": ("GET", "DELETE"),
        f"/v1/conversations/{talk}/items": ("GET",),
        f"/treadle/v1/runs/{run}": ("GET",),
        f"/treadle/v1/runs/{run}/events": ("GET",),
        f"/treadle/v1/runs/{run}/plans": ("GET",),
        f"/treadle/v1/runs/{run}/trace": ("GET",),
        f"/treadle/v1/runs/{run}/cancel": ("POST",),
        f"/treadle/v1/runs/{run}/fork": ("POST",),
        f"/treadle/v1/runs/{run}/export": ("GET",),
    }
    for path, methods in paths.items():
        absent = path.replace(response, "resp_absent").replace(run, "run_absent").replace(talk, "conv_absent")
        for method in methods:
            data = b"{}" if method == "POST" else None
            found = scene.house.ask(method, path, data, bearing(theirs))
            missing = scene.house.ask(method, absent, data, bearing(theirs))
            assert (found.status, missing.status) == (404, 404), f"{method} {path}: {found.text[:300]}"
            assert _shape(found) == _shape(missing), path
    assert run not in scene.house.ask("GET", "/treadle/v1/runs", headers=bearing(theirs)).text
    assert scene.house.ask("GET", f"/v1/responses/{response}", headers=bearing(mine)).status == 200


def _shape(answer: Answer) -> tuple[str, str | None]:
    error = answer.json["error"]
    return error["code"], error["param"]


def others_previous(scene: Scene) -> None:
    """Nobody goes on with another's conversation."""
    mine, theirs = key(scene, "first"), key(scene, "second")
    first = scene.house.ask("POST", "/v1/responses", {"model": "good", "input": "mine"}, bearing(mine)).json["id"]
    body = {"model": "good", "input": "and?", "previous_response_id": first}
    refused = scene.house.ask("POST", "/v1/responses", body, bearing(theirs))
    check_refusal("responses", refused, 404, "previous_response_not_found", "previous_response_id")
    assert scene.house.ask("POST", "/v1/responses", body, bearing(mine)).status == 200


def forwarded(scene: Scene) -> None:
    """Who claims another address is still who they are: nothing is let in by it, and no limit is dodged."""
    stays_out(scene, {"x-forwarded-for": "127.0.0.1", "forwarded": "for=127.0.0.1", "x-real-ip": "127.0.0.1"})
    text = key(scene, "slow", rates={"requests_per_min": 3})
    statuses = [
        knock(scene, "chat", {**bearing(text), "x-forwarded-for": f"10.0.0.{number}"}).status for number in range(5)
    ]
    assert statuses == [200, 200, 200, 429, 429]


def other_body(scene: Scene) -> None:
    """One key of that kind is one request; and another client's is another."""
    mine, theirs = key(scene, "once"), key(scene, "also")
    for api in VENDORS:
        path = APIS[api].path.replace("MODEL", "good")
        headers = {**bearing(mine), "idempotency-key": f"once-{api}"}
        assert scene.house.ask("POST", path, APIS[api].body(), headers).status == 200
        again = scene.house.ask("POST", path, APIS[api].body(b'"other"'), headers)
        check_refusal(api, again, 409, "idempotency_key_reused")
        assert again.headers["x-should-retry"] == "false"
        other = scene.house.ask("POST", path, APIS[api].body(b'"other"'), {**headers, **bearing(theirs)})
        assert other.status == 200, other.text[:300]


def commits(line: Line) -> None:
    """Call what only people may do, in every spelling."""
    if line.asked["messages"][-1]["role"] == "tool":
        good(line)
        return
    line.open()
    names = ("facts.commit", "facts_commit", "Facts.Commit", "functions.facts.commit")
    calls = [call('{"proposal":"p"}', name=name, call_id=f"c{n}", index=n) for n, name in enumerate(names)]
    line.send(b"".join(calls) + chunk(finish="tool_calls") + DONE)


def commit(scene: Scene) -> None:
    """A model is told no, whatever it calls it, and no fact changes."""
    before = scene.house.ask("GET", "/treadle/v1/workspaces").text
    for api in VENDORS:
        answer = send(scene, api, APIS[api].body(model="bad-commit"), "bad-commit")
        assert answer.status == 200, answer.text[:300]
        results = [each["content"] for each in scene.received[-1]["messages"] if each["role"] == "tool"]
        assert len(results) == 4, results
        assert all("error" in json.loads(each) for each in results), results
    after = scene.house.ask("GET", "/treadle/v1/workspaces").text
    assert json.loads(after)["workspaces"] == json.loads(before)["workspaces"]
    body = APIS["chat"].body(more=b'"tools":[{"type":"function","function":{"name":"facts.commit"}}]')
    send(scene, "chat", body)
    assert "facts_commit" not in json.dumps(scene.received[-1].get("tools", []))


REPLIES: dict[str, Reply] = {"bad-commit": commits}


def _row(name: str, comes: Any, why: str, tries: Any) -> Row:
    return Row(id=name, comes=comes, why=why, tries=tries, needs_keys=True)


ROWS = (
    _row("protocol.previous_id_of_another_tenant", "refused", "as if it were not there", others_previous),
    _row("auth.no_or_empty_bearer", "refused", "every program has a key", no_bearer),
    _row("auth.key_1_mb", "refused", "before anybody compares it", huge),
    _row("auth.key_not_ascii", "refused", "no letter is taken for another", foreign_letters),
    _row("auth.key_revoked", "refused", "at once", revoked),
    _row("auth.key_expired", "refused", "to the second", expired),
    _row("auth.key_in_query", "accepted", "Google's clients do so; it is never shown", in_query),
    _row("auth.ids_of_another_tenant", "refused", "as if they were not there", others_things),
    _row("auth.spoofed_forwarded_for", "refused", "only configured proxies are believed", forwarded),
    _row("auth.idempotency_key_reused", "refused", "one key, one request, one client", other_body),
    _row("auth.model_calls_facts_commit", "refused", "facts are for people to confirm", commit),
)
