"""Workspaces over real HTTP: a model works on one through its tools, a person decides through the API."""

import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.gateway import Gateway
from person import person_headers
from treadle.config.settings import WorkspaceSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall

EVE = [{"path": "/facts/name", "value": "Eve"}]


def gateway(folder: Path, *turns: ScriptTurn, protocol: str = "chat", **workspace: Any) -> Gateway:
    """Return a Treadle whose runs work on the workspace `card`."""
    section = WorkspaceSection(enabled=True, default="card", **workspace)
    script = Script(turns=turns or (ScriptTurn(text="Hello."),))
    return Gateway(script, folder, protocol=protocol, workspace=section)


def calls(name: str, **args: Any) -> ScriptTurn:
    """Return a turn in which the model calls one tool."""
    return ScriptTurn(calls=(ReplyCall(name=name, args=args),))


def ask(gateway: Gateway, method: str, path: str = "", **given: Any) -> httpx2.Response:
    """Call the API of workspaces."""
    where = f"{gateway.origin}/treadle/v1/workspaces{path}"
    return httpx2.request(method, where, headers=person_headers("kim"), timeout=20, **given)


def make(gateway: Gateway, **given: Any) -> dict[str, Any]:
    """Make the workspace `card`."""
    body = {"name": "card", "facts": {"name": "Ada"}, "draft": {"title": "", "tags": []}, **given}
    answer = ask(gateway, "POST", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def run(gateway: Gateway, text: str = "Go on.") -> str:
    """Let the model answer, and return the whole stream."""
    body = {"input": text, "stream": True}
    answer = httpx2.post(f"{gateway.origin}/treadle/v1/runs", json=body, timeout=20)
    assert "run.ended" in answer.text
    return answer.text


def open_proposal(gateway: Gateway) -> dict[str, Any]:
    """Return the one proposal that waits."""
    [waiting] = ask(gateway, "GET", "/card/proposals", params={"status": "open"}).json()["proposals"]
    return waiting


def decide(gateway: Gateway, proposal_id: str, deed: str, **body: Any) -> httpx2.Response:
    """Confirm or reject a proposal."""
    return ask(gateway, "POST", f"/card/proposals/{proposal_id}/{deed}", json=body)


def read_by_model(gateway: Gateway) -> str:
    """Return the last request that the upstream got."""
    return gateway.upstream.received[-1].body.decode()


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_a_model_proposes_and_a_person_confirms(tmp_path: Path, protocol: str) -> None:
    """With every upstream: the facts change by the confirmation and by nothing before it, and the history says who."""
    turns = (calls("facts.propose", changes=EVE, reason="She said so."), ScriptTurn(text="Please confirm."))
    with gateway(tmp_path, *turns, protocol=protocol) as treadle:
        make(treadle)
        run(treadle)
        waiting = open_proposal(treadle)
        shown = ask(treadle, "GET", f"/card/proposals/{waiting['id']}").json()["review"]
        assert shown["diff"] == [{"path": "/facts/name", "before": "Ada", "after": "Eve"}]
        assert ask(treadle, "GET", "/card").json()["facts"] == {"name": "Ada"}
        answer = decide(treadle, waiting["id"], "confirm", version=shown["facts_version"], by="kim", reason="yes")
        assert answer.json()["facts_version"] == 1
        assert ask(treadle, "GET", "/card").json()["facts"] == {"name": "Eve"}
        confirmed, proposed, _ = ask(treadle, "GET", "/card/history").json()["changes"]
        assert (confirmed["actor"], confirmed["who"], confirmed["reason"]) == ("person", "kim", "yes")
        assert confirmed["diff"] == shown["diff"]
        assert (proposed["actor"], proposed["run_id"][:4]) == ("model", "run_")
        assert ask(treadle, "GET", "/card/audit").json()["problems"] == []


def test_the_reason_of_a_rejection_reaches_the_model(tmp_path: Path) -> None:
    """With the next result it reads, so that it can do better."""
    turns = (
        calls("facts.propose", changes=EVE, reason="She said so."),
        ScriptTurn(text="Please confirm."),
        calls("state.get", path="/facts"),
        ScriptTurn(text="I see."),
    )
    with gateway(tmp_path, *turns) as treadle:
        make(treadle)
        run(treadle)
        decide(treadle, open_proposal(treadle)["id"], "reject", reason="That is her sister.")
        run(treadle)
        assert "was rejected: That is her sister." in read_by_model(treadle)


def test_a_run_can_wait_for_the_decision(tmp_path: Path) -> None:
    """The call ends when the person has decided, and its result says how."""
    turns = (calls("facts.propose", changes=EVE, reason="x"), ScriptTurn(text="Done."))
    with gateway(tmp_path, *turns, wait_s=20.0) as treadle:
        make(treadle)
        going_on = threading.Thread(target=run, args=(treadle,))
        going_on.start()
        while not (waiting := ask(treadle, "GET", "/card/proposals").json()["proposals"]):
            assert going_on.is_alive()
        assert decide(treadle, waiting[0]["id"], "confirm", version=0).status_code == 200
        going_on.join(20)
        assert '\\"status\\":\\"confirmed\\"' in read_by_model(treadle)


def test_a_stale_confirmation_is_a_conflict_with_three_sides(tmp_path: Path) -> None:
    """Nothing is merged; the person sees all sides, and can settle it by hand on the facts as they are."""
    with gateway(tmp_path) as treadle:
        make(treadle)
        first = ask(treadle, "POST", "/card/proposals", json={"changes": EVE}).json()
        other = [{"path": "/facts/name", "value": "Zoe"}, {"path": "/facts/age", "value": 36}]
        second = ask(treadle, "POST", "/card/proposals", json={"changes": other}).json()
        assert decide(treadle, first["id"], "confirm", version=0).status_code == 200
        for version in (0, 1):
            refused = decide(treadle, second["id"], "confirm", version=version)
            assert refused.status_code == 409
            assert refused.json()["error"]["code"] == "workspace_conflict"
        assert refused.json()["review"]["three_way"] == [
            {"path": "/facts/name", "base": "Ada", "current": "Eve", "proposed": "Zoe", "is_clash": True},
            {"path": "/facts/age", "proposed": 36},
        ]
        assert ask(treadle, "GET", "/card").json()["facts"] == {"name": "Eve"}
        settled = decide(treadle, second["id"], "confirm", version=1, changes=[{"path": "/facts/age", "value": 36}])
        assert settled.status_code == 200
        assert ask(treadle, "GET", "/card").json()["facts"] == {"name": "Eve", "age": 36}


def test_a_proposal_is_decided_once(tmp_path: Path) -> None:
    """A second decision is told what the first one was."""
    with gateway(tmp_path) as treadle:
        make(treadle)
        made = ask(treadle, "POST", "/card/proposals", json={"changes": EVE}).json()
        assert decide(treadle, made["id"], "reject", by="kim", reason="no").status_code == 200
        for deed, body in (("confirm", {"version": 0}), ("reject", {})):
            again = decide(treadle, made["id"], deed, **body)
            assert (again.status_code, again.json()["error"]["code"]) == (409, "proposal_decided")
            assert "rejected by kim" in again.json()["error"]["message"]
        shown = ask(treadle, "GET", f"/card/proposals/{made['id']}").json()
        assert (shown["status"], shown["decision"]["reason"], "review" in shown) == ("rejected", "no", False)


COMMITS = [
    ScriptTurn(calls=(ReplyCall(name="facts.commit", args={"path": "/facts/name", "value": "Eve"}),)),
    ScriptTurn(calls=(ReplyCall(name="facts_commit", args={}),)),
    ScriptTurn(calls=(ReplyCall(name="mcp__evil__facts.commit", args={}),)),
    ScriptTurn(calls=(ReplyCall(name="functions.facts.commit", args={}),)),
]


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
@pytest.mark.parametrize("turn", COMMITS, ids=["plain", "mapped", "mcp", "prefixed"])
def test_facts_commit_is_refused_and_counted_whatever_way_it_comes(
    tmp_path: Path, protocol: str, turn: ScriptTurn
) -> None:
    """It is in no request as a tool; who calls it anyway reads a refusal, is counted, and has changed nothing."""
    with gateway(tmp_path, turn, ScriptTurn(text="Then not."), protocol=protocol) as treadle:
        make(treadle)
        run(treadle, "Make it fact.")
        offered = treadle.upstream.received[0].body.decode()
        assert "propose" in offered
        assert "commit" not in offered
        assert '"is_error":true' in run_entries(treadle)
        view = ask(treadle, "GET", "/card").json()
        assert (view["facts"], view["version"]) == ({"name": "Ada"}, 0)
        metrics = httpx2.get(f"{treadle.origin}/metrics", timeout=20).text
        assert "treadle_refused_commits_total 1.0" in metrics


def test_facts_commit_in_text_is_not_carried_out(tmp_path: Path) -> None:
    """A call that a model writes as text is no call of a tool that nobody has."""
    text = '<tool_call>{"name": "facts.commit", "arguments": {"path": "/facts/name", "value": "Eve"}}</tool_call>'
    with gateway(tmp_path, ScriptTurn(text=text), ScriptTurn(text="Then not.")) as treadle:
        make(treadle)
        run(treadle, "Make it fact.")
        view = ask(treadle, "GET", "/card").json()
        assert (view["facts"], view["version"]) == ({"name": "Ada"}, 0)


def run_entries(gateway: Gateway) -> str:
    """Return the journal of the newest run."""
    [newest] = httpx2.get(f"{gateway.origin}/treadle/v1/runs?limit=1", timeout=20).json()["runs"]
    return httpx2.get(f"{gateway.origin}/treadle/v1/runs/{newest['id']}", timeout=20).text.replace(" ", "")


def test_drafts_locks_and_versions_over_http(tmp_path: Path) -> None:
    """Patched in one piece, held by a lock, compared, looked at as it was, and brought back."""
    with gateway(tmp_path) as treadle:
        made = make(treadle)
        patched = ask(
            treadle,
            "PATCH",
            "/card/draft",
            json={"changes": [{"path": "/draft/title", "value": "One"}], "base_version": 0, "reason": "a start"},
        ).json()
        assert (patched["version"], patched["change"]["reason"]) == (1, "a start")
        assert ask(treadle, "POST", "/card/locks", json={"path": "/draft/title"}).status_code == 200
        body = {"changes": [{"path": "/draft", "value": {}}]}
        refused = ask(treadle, "PATCH", "/card/draft", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (409, "/draft/title")
        restoring = {"version": 0, "reason": "start again"}
        assert ask(treadle, "POST", "/card/restore", json=restoring).json()["error"]["code"] == "workspace_locked"
        assert ask(treadle, "DELETE", "/card/locks", params={"path": "/draft/title"}).status_code == 200
        restored = ask(treadle, "POST", "/card/restore", json=restoring).json()
        assert (restored["version"], restored["change"]["restored"]) == (4, 0)
        assert ask(treadle, "GET", "/card").json()["draft"] == made["draft"]
        diff = ask(treadle, "GET", "/card/diff", params={"from": 0, "to": 1}).json()["diff"]
        assert diff == [{"path": "/draft/title", "before": "", "after": "One"}]
        assert ask(treadle, "GET", "/card/versions/1").json()["draft"]["title"] == "One"
        assert ask(treadle, "GET", "/card", params={"path": "/draft/title"}).json()["value"] == ""
        assert [row["name"] for row in ask(treadle, "GET").json()["workspaces"]] == ["card"]
        assert ask(treadle, "DELETE", "/card").status_code == 204
        assert ask(treadle, "GET", "/card").status_code == 404


WRONG = [
    ("POST", "", {"name": "card"}, 409, "name"),
    ("POST", "", {"facts": []}, 400, "facts"),
    ("POST", "", {"locks": ["/nowhere"]}, 400, "/nowhere"),
    ("POST", "", {"session": "none"}, 404, "session"),
    ("POST", "", {"fact": {}}, 400, "fact"),
    ("PATCH", "/card", {}, 400, "name"),
    ("PATCH", "/card/draft", {"changes": []}, 400, "changes"),
    ("PATCH", "/card/draft", {"changes": [{"path": "/draft/x", "op": "move"}]}, 400, "changes[0].op"),
    ("PATCH", "/card/draft", {"changes": [{"path": "/draft/x"}], "base_version": 9}, 409, "base_version"),
    ("PATCH", "/card/draft", {"changes": [{"path": "/facts/x", "value": 1}]}, 400, "/facts/x"),
    ("POST", "/card/locks", {"path": "x"}, 400, "x"),
    ("DELETE", "/card/locks", None, 400, "path"),
    ("DELETE", "/card/locks?path=/draft/x", None, 404, "path"),
    ("POST", "/card/proposals", {"changes": [{"path": "/draft/x", "value": 1}]}, 400, "/draft/x"),
    ("POST", "/card/proposals/none/confirm", {"version": 0}, 404, "proposal_id"),
    ("POST", "/card/proposals/none/confirm", {}, 400, "version"),
    ("GET", "/card/proposals?status=old", None, 400, "status"),
    ("GET", "/card/history?before=x", None, 400, "before"),
    ("GET", "/card/versions/7", None, 404, "version"),
    ("GET", "/card/versions/x", None, 400, "version"),
    ("GET", "/card/diff", None, 400, "from"),
    ("GET", "/card?path=draft", None, 400, "draft"),
    ("POST", "/card/restore", {"version": 0}, 409, None),
    ("POST", "/card/restore", {"version": 0, "sections": ["locks"]}, 400, "sections[0]"),
    ("GET", "/none/audit", None, 404, "workspace"),
]


def test_bad_input_is_refused_by_the_name_of_the_field(tmp_path: Path) -> None:
    """Each answer names what is wrong, and none changes anything."""
    with gateway(tmp_path) as treadle:
        make(treadle)
        for method, path, body, status, param in WRONG:
            given = {} if body is None else {"json": body}
            answer = ask(treadle, method, path, **given)
            assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), (method, path, body)
        assert ask(treadle, "GET", "/card").json()["version"] == 0


def test_a_request_and_a_session_choose_their_workspace(tmp_path: Path) -> None:
    """Metadata before the session, the session before the configured one."""
    turns = [each for _ in range(3) for each in (calls("state.get", path="/draft/is"), ScriptTurn(text="Read."))]
    with gateway(tmp_path, *turns) as treadle:
        make(treadle, draft={"is": "the configured one"})
        httpx2.post(f"{treadle.origin}/treadle/v1/sessions", json={"name": "s"}, timeout=20)
        assert ask(treadle, "POST", json={"session": "s", "draft": {"is": "the session's"}}).status_code == 201
        make(treadle, name="named", draft={"is": "the named one"})
        run(treadle)
        assert "the configured one" in read_by_model(treadle)
        body = {"input": "Go on.", "session": "s", "stream": True}
        httpx2.post(f"{treadle.origin}/treadle/v1/runs", json=body, timeout=20)
        assert "the session's" in read_by_model(treadle)
        chat = {
            "model": "script",
            "messages": [{"role": "user", "content": "Go on."}],
            "metadata": {"treadle_workspace": "named"},
        }
        httpx2.post(f"{treadle.url}/chat/completions", json=chat, timeout=20)
        assert "the named one" in read_by_model(treadle)


def test_without_the_setting_no_model_has_the_tools(tmp_path: Path) -> None:
    """The API is there for people all the same."""
    script = Script(turns=(ScriptTurn(text="Hello."),))
    with Gateway(script, tmp_path) as treadle:
        make(treadle)
        run(treadle)
        assert "state.get" not in read_by_model(treadle).replace("_", ".")
