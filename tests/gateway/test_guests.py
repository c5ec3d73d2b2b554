"""A configured guest over real HTTP: run to its end, refused clearly, and gone when its client is."""

from pathlib import Path

import httpx2
import pytest

from gateway.gateway import Gateway
from guests.wat import Wat, with_tool
from treadle.config.settings import Guest, GuestsSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall

SCRIPT = Script(
    turns=(
        ScriptTurn(calls=(ReplyCall(name="t", args={"a": 1}),)),
        ScriptTurn(text="done"),
    )
)


def served(folder: Path, wat: str, **limits: object) -> Gateway:
    """Return a gateway with one guest."""
    path = folder / "guest.wat"
    path.write_text(wat)
    guest = Guest(name="planner", path=str(path), model="gpt-test")
    return Gateway(SCRIPT, folder, guest=(guest,), guests=GuestsSection(cache=False, **limits))


def post(gateway: Gateway, name: str, body: object) -> httpx2.Response:
    """Run a guest."""
    return httpx2.post(f"{gateway.origin}/treadle/v1/guests/{name}/runs", json=body, timeout=60)


def test_a_guest_is_run_to_its_end(tmp_path: Path) -> None:
    """The answer says how it ended and names the runs it made; they can be looked up."""
    with served(tmp_path, with_tool()) as gateway:
        answer = post(gateway, "planner", {"input": "hello"})
        assert answer.status_code == 200
        body = answer.json()
        assert (body["status"], body["exit_code"], body["stop"]) == ("completed", 1001, None)
        [run_id] = body["runs"]
        row = httpx2.get(f"{gateway.origin}/treadle/v1/runs/{run_id}", timeout=20).json()
        assert (row["status"], row["calls"]) == ("completed", 1)
        assert 'treadle_guest_stops_total{code="ok"} 1.0' in httpx2.get(f"{gateway.origin}/metrics", timeout=20).text


def test_the_guests_are_listed_with_what_they_may_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolation, grants and limits; no path of this machine and no value of a variable."""
    monkeypatch.setenv("GUEST_WORD", "s3cr3t-word")
    (tmp_path / "in").mkdir()
    more = {"isolation": "process", "wasi_read": (f"{tmp_path}/in:/data",), "wasi_env": ("GUEST_WORD",)}
    (tmp_path / "guest.wat").write_text(with_tool())
    guest = Guest(name="planner", path=str(tmp_path / "guest.wat"), model="gpt-test", grants=("get_*",), **more)
    with Gateway(SCRIPT, tmp_path, guest=(guest,), guests=GuestsSection(cache=False)) as gateway:
        answer = httpx2.get(f"{gateway.origin}/treadle/v1/guests", timeout=20)
    assert answer.json() == {
        "guests": [
            {
                "name": "planner",
                "model": "gpt-test",
                "isolation": "process",
                "engine": "safe",
                "grants": ["get_*"],
                "folders": [{"path": "/data", "is_writable": False}],
                "env": ["GUEST_WORD"],
                "cpu_s": 10.0,
                "wall_s": 300.0,
                "memory_bytes_max": 67_108_864,
            }
        ],
        "live": 0,
    }
    assert str(tmp_path) not in answer.text
    assert "s3cr3t-word" not in answer.text


def test_a_guest_that_was_stopped_is_an_answer_too(tmp_path: Path) -> None:
    """What a guest does wrong is no error of the server."""
    with served(tmp_path, Wat().build("(loop br 0) (i32.const 0)"), cpu_s=0.2) as gateway:
        body = post(gateway, "planner", {}).json()
    assert (body["status"], body["stop"]["code"]) == ("stopped", "timeout")


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("other", {}, 404, "There are planner."),
        ("planner", {"inputs": "x"}, 400, "inputs"),
        ("planner", {"input": 7}, 400, "input"),
        ("planner", {"input": "x" * 1_100_000}, 400, "input is over"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, name: str, body: object, status: int, words: str) -> None:
    """A guest that nobody configured, and a body that is none."""
    with served(tmp_path, Wat().build("(i32.const 0)")) as gateway:
        answer = post(gateway, name, body)
    assert answer.status_code == status
    assert words in answer.text
