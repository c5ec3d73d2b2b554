"""Cassettes end to end: what a real upstream sent is recorded, and played again without it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.gateway import Gateway
from treadle import tool
from treadle.config import Upstream
from treadle.providers.cassettes.file_format import data_of, load_cassette
from treadle.providers.fakes.fake_server import Canned, CannedTable
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from warm.start import run

NOTHING = Script()
"""What stands behind a gateway that must not ask it."""


@tool(effect="read")
def get_price(article: str) -> float:
    """Tell a price."""
    return 12.5


def script() -> Script:
    """A round with a call, and an answer."""
    return Script(
        turns=(
            ScriptTurn(reasoning="A price.", calls=(ReplyCall(name="get_price", args={"article": "A7 ö"}),)),
            ScriptTurn(text="It costs 12.5 €."),
        )
    )


def ask(gateway: Gateway, text: str = "What is A7?") -> httpx2.Response:
    """Ask on Treadle's own API's neighbour, Chat, and return the answer as it is."""
    body = {"model": "script", "messages": [{"role": "user", "content": text}]}
    return httpx2.post(f"{gateway.url}/chat/completions", json=body, timeout=20)


def said(answer: httpx2.Response) -> str:
    """Return the text of an answer."""
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def record(folder: Path, protocol: str = "chat", chunk_bytes: int | None = 7) -> Path:
    """Record one run against a scripted upstream and return the folder of cassettes."""
    tapes = folder / "tapes"
    (folder / "live").mkdir()
    live = Gateway(
        script(), folder / "live", tools=[get_price], protocol=protocol, chunk_bytes=chunk_bytes, record=str(tapes)
    )
    with live as gateway:
        assert said(ask(gateway)) == "It costs 12.5 €."
    return tapes


def playing(folder: Path, tapes: Path, **fields: Any) -> Gateway:
    """A gateway whose only upstream is a cassette."""
    (folder / "played").mkdir(exist_ok=True)
    upstream = Upstream(name="script", base_url=f"cassette:{tapes}", **fields)
    return Gateway(NOTHING, folder / "played", tools=[get_price], upstream=(upstream,))


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages", "gemini"])
def test_a_recorded_run_plays_again_without_its_upstream(tmp_path: Path, protocol: str) -> None:
    """Both rounds are found by their requests, whatever the upstream's protocol, and nobody else is asked."""
    tapes = record(tmp_path, protocol)
    with playing(tmp_path, tapes) as gateway:
        assert said(ask(gateway)) == "It costs 12.5 €."
        assert gateway.upstream.received == []


def test_chunks_are_as_the_network_cut_them(tmp_path: Path) -> None:
    """What had come before a pause is a chunk of its own, and the end is recorded; the kernel may join the rest."""
    chunk = 'data: {"choices":[{"index":0,"delta":%s,"finish_reason":%s}]}\n\n'
    first = (chunk % ('{"content":"Hello"}', "null")).encode()
    rest = (chunk % ('{"content":" there."}', "null") + chunk % ("{}", '"stop"') + "data: [DONE]\n\n").encode()
    table = CannedTable(models={"script": Canned(body=first + rest, hold_after=len(first))})
    tapes = tmp_path / "tapes"
    with Gateway(table, tmp_path, record=str(tapes)) as gateway:
        body = {"model": "script", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        with httpx2.stream("POST", f"{gateway.url}/chat/completions", json=body, timeout=20) as answer:
            lines = answer.iter_lines()
            assert any("Hello" in line for line in lines)
            gateway.loop.call_soon_threadsafe(gateway.upstream.release.set)
            assert any(" there." in line for line in lines)
            assert any("[DONE]" in line for line in lines)
    (call,) = load_cassette(tapes).calls
    assert call.answered is not None
    assert (call.asked.method, call.asked.path, call.answered.status) == ("POST", "/chat/completions", 200)
    assert (data_of(call.chunks[0]), call.ended.how) == (first, "eof")
    assert b"".join(map(data_of, call.chunks[1:])) == rest


def test_a_request_that_was_not_recorded_is_refused_with_the_difference(tmp_path: Path) -> None:
    """A 502 with a code of its own, naming the first place that differs."""
    tapes = record(tmp_path)
    with playing(tmp_path, tapes) as gateway:
        answer = ask(gateway, "What is B8?")
    assert answer.status_code == 502
    error = answer.json()["error"]
    assert error["code"] == "cassette_mismatch"
    assert '$.messages[0].content: recorded "What is A7?", asked "What is B8?"' in error["message"]


def test_a_call_is_played_once(tmp_path: Path) -> None:
    """The same run again asks for more than was recorded, and is told so."""
    tapes = record(tmp_path)
    with playing(tmp_path, tapes) as gateway:
        assert said(ask(gateway)) == "It costs 12.5 €."
        answer = ask(gateway)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "cassette_mismatch")
    assert "recorded once" in answer.json()["error"]["message"]


def test_equal_requests_are_answered_in_their_order(tmp_path: Path) -> None:
    """Two runs that asked the same got two answers; they come again one after the other."""
    tapes = tmp_path / "tapes"
    (tmp_path / "live").mkdir()
    turns = (ScriptTurn(text="first"), ScriptTurn(text="second"))
    with Gateway(Script(turns=turns), tmp_path / "live", tools=[get_price], record=str(tapes)) as gateway:
        assert [said(ask(gateway)), said(ask(gateway))] == ["first", "second"]
    with playing(tmp_path, tapes) as gateway:
        assert [said(ask(gateway)), said(ask(gateway))] == ["first", "second"]


@pytest.mark.parametrize(
    ("faults", "how"),
    [(Faults(status=429, message="slow down", retry_after_s=3), "eof"), (Faults(disconnect_after=120), "reset")],
)
def test_failures_are_recorded_and_played_as_they_were(tmp_path: Path, faults: Faults, how: str) -> None:
    """A refusal and a cut give the client the same answer from the cassette as from the upstream."""
    tapes = tmp_path / "tapes"
    (tmp_path / "live").mkdir()
    failing = Script(turns=(ScriptTurn(text="a long enough answer", faults=faults),))
    with Gateway(failing, tmp_path / "live", tools=[get_price], record=str(tapes)) as gateway:
        live = ask(gateway)
        port = gateway.upstream.url
    assert [call.ended.how for call in load_cassette(tapes).calls] == [how]
    with playing(tmp_path, tapes) as gateway:
        played = ask(gateway)
    assert (played.status_code, played.json()["error"]["code"]) == (live.status_code, live.json()["error"]["code"])
    assert played.headers.get("retry-after") == live.headers.get("retry-after")
    assert port, "there was an upstream"


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the key, nor an auth header, nor a key that the upstream sends back, cut in two by the network."""
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("UP_KEY", key)
    body = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n' % key.encode()
    body += b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    headers = {"content-type": "text/event-stream", "set-cookie": "session=1", "x-request-id": "r1"}
    table = CannedTable(models={"script": Canned(body=body, headers=headers, chunk_bytes=5)})
    tapes = tmp_path / "tapes"
    gateway = Gateway(table, tmp_path, tools=[get_price], record=str(tapes))
    original = gateway._settings

    def keyed(url: str) -> Any:
        settings = original(url)
        upstream = msgspec.structs.replace(settings.upstream[0], key_env="UP_KEY")
        return msgspec.structs.replace(settings, upstream=(upstream,))

    monkeypatch.setattr(gateway, "_settings", keyed)
    with gateway:
        assert said(ask(gateway, f"Is it {key}?")) == key
    (file,) = tapes.iterdir()
    text = file.read_text(encoding="utf-8")
    whole = "".join(msgspec.json.decode(line).get("text", "") for line in text.splitlines())
    assert key not in text + whole
    assert "[redacted]" in whole
    assert "authorization" not in text.lower()
    assert "set-cookie" not in text
    assert '"x-request-id":"r1"' in text
    assert file.stat().st_mode & 0o077 == 0


def treadle(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, with an environment of its own."""
    return run(
        [sys.executable, "-m", "treadle.cli.main", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUTF8": "1", **variables},
        stdin=subprocess.DEVNULL,
    )


def test_the_command_line_records_and_plays(tmp_path: Path) -> None:
    """`--record DIR` writes, `cassette:DIR` answers the same without the upstream, at the recorded pace if wanted."""
    (tmp_path / "up").mkdir()
    answer = Script(turns=(ScriptTurn(text="Four, I think."),))
    with Gateway(answer, tmp_path / "up", chunk_bytes=11) as gateway:
        flags = ("-m", "script", "--record", "tapes")
        live = treadle(tmp_path, "run", "2 + 2?", *flags, OPENAI_BASE_URL=gateway.upstream.url)
    assert (live.returncode, live.stdout) == (0, "Four, I think.\n"), live.stderr
    (tmp_path / "treadle.toml").write_text(
        '[[upstream]]\nname = "openai"\nbase_url = "cassette:tapes"\ncassette_speed = 20.0\n', encoding="utf-8"
    )
    played = treadle(tmp_path, "run", "2 + 2?", "-m", "script", "--config", "treadle.toml")
    assert (played.returncode, played.stdout) == (0, "Four, I think.\n"), played.stderr
    other = treadle(tmp_path, "run", "3 + 3?", "-m", "script", "--config", "treadle.toml")
    assert (other.returncode, "cassette_mismatch" in other.stderr or "differs from call 1" in other.stderr) == (1, True)
    checked = treadle(tmp_path, "doctor", "--offline", "--config", "treadle.toml")
    assert "cassette:tapes, 1 recorded calls" in checked.stdout


def test_a_cassette_that_can_not_be_read_is_found_at_the_start(tmp_path: Path) -> None:
    """Before anything is asked, with the file and the line."""
    (tmp_path / "bad.jsonl").write_text('{"type":"song"}\n', encoding="utf-8")
    (tmp_path / "treadle.toml").write_text(
        '[[upstream]]\nname = "x"\nbase_url = "cassette:bad.jsonl"\n', encoding="utf-8"
    )
    failed = treadle(tmp_path, "run", "hi", "-m", "m", "--config", "treadle.toml")
    assert (failed.returncode, "bad.jsonl:1: Invalid value 'song'" in failed.stderr) == (2, True), failed.stderr
