"""A run and the decision on what it proposed: it waits or goes on, also across a SIGKILL of the server."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.restart import BOUND_S, PROGRAM, Life, Upstream, life
from person import person_headers
from treadle.cli.main import main
from treadle.providers.fakes.scripted_model import Script, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import ReplyCall

WAITING = PROGRAM.replace(
    'default_model="script",',
    'default_model="script", workspace=WorkspaceSection(enabled=True, default="card", wait_s=500.0),',
).replace("import uvloop\n", "import uvloop\nfrom treadle.config.settings import WorkspaceSection\n")
GOING_ON = WAITING.replace("wait_s=500.0", "wait_s=0.0")
PROPOSE = ScriptTurn(
    calls=(ReplyCall(name="facts.propose", args={"changes": [{"path": "/facts/name", "value": "Eve"}], "reason": "x"}),)
)


def ask(served: Life, method: str, path: str, **given: Any) -> Any:
    """Call Treadle's own API."""
    where = f"{served.origin}/treadle/v1{path}"
    answer = httpx2.request(method, where, headers=person_headers(), timeout=BOUND_S, **given)
    assert answer.status_code < 300, answer.text
    return answer.json()


def begin(served: Life) -> str:
    """Make the workspace, start a run, and return its id once its proposal is there."""
    ask(served, "POST", "/workspaces", json={"name": "card", "facts": {"name": "Ada"}})
    run_id = str(ask(served, "POST", "/runs", json={"input": "Go on."})["id"])
    until(lambda: proposals(served))
    return run_id


def proposals(served: Life, status: str = "open") -> list[Any]:
    """Return the proposals that stand so."""
    return ask(served, "GET", "/workspaces/card/proposals", params={"status": status})["proposals"]


def until(found: Callable[[], Any]) -> Any:
    """Return what is found, once it is."""
    deadline = time.monotonic() + BOUND_S
    while not (value := found()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return value


def ended(served: Life, run_id: str) -> Any:
    """Return a run, once it has ended."""
    return until(lambda: (row := ask(served, "GET", f"/runs/{run_id}"))["ended_at"] and row)


def decide(served: Life, deed: str, **body: Any) -> None:
    """Decide the one proposal that waits."""
    [waiting] = proposals(served)
    ask(served, "POST", f"/workspaces/card/proposals/{waiting['id']}/{deed}", json=body)


def decide_offline(folder: Path, deed: str, *words: str) -> None:
    """Decide the one proposal that waits while no server is there."""
    store = ("--store", f"sqlite:///{folder}/treadle.db")
    assert main(["ws", deed, "card", *words, *store]) == 0


def history(served: Life) -> list[str]:
    """Return the kinds of change, oldest first."""
    return [each["kind"] for each in reversed(ask(served, "GET", "/workspaces/card/history")["changes"])]


@pytest.fixture
def confirmed() -> Iterator[Upstream]:
    """A model that proposes, and expects to be told that it was confirmed."""
    turns = (PROPOSE, ScriptTurn(sees=Sees(contains='"status":"confirmed"'), text="Thanks."))
    with Upstream(Script(turns=turns)) as upstream:
        yield upstream


def assert_confirmed_once(served: Life, run_id: str) -> None:
    """The run ended well, and the facts changed by one proposal and one decision."""
    row = ended(served, run_id)
    assert (row["status"], row["calls"]) == ("completed", 1)
    assert ask(served, "GET", "/workspaces/card")["facts"] == {"name": "Eve"}
    assert history(served) == ["created", "proposed", "confirmed"]
    assert ask(served, "GET", "/workspaces/card/audit")["problems"] == []


def test_a_waiting_run_hears_the_decision_after_a_kill(tmp_path: Path, confirmed: Upstream) -> None:
    """The call is made again in the next life, finds its proposal, and waits on for the same person."""
    with life(tmp_path, confirmed, 1, WAITING) as first:
        run_id = begin(first)
        first.kill()
    with life(tmp_path, confirmed, 2, WAITING) as second:
        assert ask(second, "GET", f"/runs/{run_id}")["ended_at"] is None
        decide(second, "confirm", version=0)
        assert_confirmed_once(second, run_id)


def test_a_waiting_run_hears_what_was_decided_while_it_was_dead(
    tmp_path: Path, confirmed: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person need not wait for the server: the decision is in the workspace."""
    with life(tmp_path, confirmed, 1, WAITING) as first:
        run_id = begin(first)
        [waiting] = proposals(first)
        first.kill()
    decide_offline(tmp_path, "confirm", waiting["id"], "--version", "0")
    capsys.readouterr()
    with life(tmp_path, confirmed, 2, WAITING) as second:
        assert_confirmed_once(second, run_id)


def test_a_decision_of_another_process_ends_the_waiting(
    tmp_path: Path, confirmed: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal on the same journal decides while the server waits."""
    with life(tmp_path, confirmed, 1, WAITING) as served:
        run_id = begin(served)
        [waiting] = proposals(served)
        decide_offline(tmp_path, "confirm", waiting["id"], "--version", "0")
        capsys.readouterr()
        assert_confirmed_once(served, run_id)


def test_a_rejection_with_its_reason_is_read_and_repaired_after_a_kill(tmp_path: Path) -> None:
    """The model reads why, proposes otherwise in the same run, and that is confirmed."""
    better = ReplyCall(
        name="facts.propose", args={"changes": [{"path": "/facts/sister", "value": "Eve"}], "reason": "as you say"}
    )
    turns = (
        PROPOSE,
        ScriptTurn(sees=Sees(contains=('"status":"rejected"', "That is her sister.")), calls=(better,)),
        ScriptTurn(sees=Sees(contains='"status":"confirmed"'), text="Thanks."),
    )
    with Upstream(Script(turns=turns)) as upstream:
        with life(tmp_path, upstream, 1, WAITING) as first:
            run_id = begin(first)
            first.kill()
        with life(tmp_path, upstream, 2, WAITING) as second:
            decide(second, "reject", reason="That is her sister.")
            until(lambda: proposals(second))
            decide(second, "confirm", version=0)
            assert ended(second, run_id)["status"] == "completed"
            assert ask(second, "GET", "/workspaces/card")["facts"] == {"name": "Ada", "sister": "Eve"}
            assert history(second) == ["created", "proposed", "rejected", "proposed", "confirmed"]


def test_a_run_that_goes_on_leaves_the_decision_to_later(tmp_path: Path) -> None:
    """It ends with the proposal open; decided in another life, the next run reads the reason, once."""
    look = ReplyCall(name="state.get", args={"path": "/facts"})
    turns = (
        PROPOSE,
        ScriptTurn(sees=Sees(contains='"waiting_for":"a person"'), text="Please decide."),
        ScriptTurn(calls=(look,)),
        ScriptTurn(sees=Sees(contains="was rejected: That is her sister."), calls=(look,)),
        ScriptTurn(text="I see."),
    )
    with Upstream(Script(turns=turns)) as upstream:
        with life(tmp_path, upstream, 1, GOING_ON) as first:
            run_id = begin(first)
            assert ended(first, run_id)["status"] == "completed"
            first.kill()
        with life(tmp_path, upstream, 2, GOING_ON) as second:
            decide(second, "reject", reason="That is her sister.")
            again = str(ask(second, "POST", "/runs", json={"input": "And now?"})["id"])
            assert ended(second, again)["status"] == "completed"
        assert upstream.server.received[-1].body.decode().count("That is her sister.") == 1


def test_a_cancelled_run_leaves_its_proposal_to_the_person(tmp_path: Path) -> None:
    """To stop waiting is not to take it back."""
    with Upstream(Script(turns=(PROPOSE,))) as upstream, life(tmp_path, upstream, 1, WAITING) as served:
        run_id = begin(served)
        ask(served, "POST", f"/runs/{run_id}/cancel")
        assert ended(served, run_id)["status"] == "cancelled"
        decide(served, "confirm", version=0)
        assert ask(served, "GET", "/workspaces/card")["facts"] == {"name": "Eve"}
