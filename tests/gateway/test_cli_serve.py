"""`treadle serve` as a real process: it says where to look, answers, and leaves when told."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

TREADLE = [sys.executable, "-m", "treadle.cli.main"]


class Served:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], lines: list[str], url: str) -> None:
        self.process = process
        self.lines = lines
        self.url = url

    def ask(self, path: str, body: object = None) -> bytes:
        """Ask the server."""
        data = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(self.url + path, data=data, headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.read()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a person who has nothing set."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "PYTHONUTF8": "1"}


@pytest.fixture
def served(tmp_path: Path, env: dict[str, str]) -> Iterator[Served]:
    """Start a server on a free port, and end it."""
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*TREADLE, "serve", "--port", "0"], env=env, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("Ctrl-C"):
            break
    found = re.search(r"http://127\.0\.0\.1:\d+", lines[0]) if lines else None
    assert found, (tmp_path / "log").read_text()
    yield Served(process, lines, found[0])
    if process.poll() is None:
        process.kill()
    process.wait(30)
    process.stdout.close()


def test_it_says_where_to_look_and_answers_there(served: Served, tmp_path: Path) -> None:
    """The first line is the page; what answers, the tools and the journal follow; Chat Completions works at once."""
    assert served.lines[0] == f"Treadle is at {served.url}/"
    assert "  models   the demo model (a key such as OPENAI_API_KEY brings a real one)" in served.lines
    assert "  tools    add, convert, get_weather" in served.lines
    assert f"  journal  sqlite:///{tmp_path}/.local/share/treadle/treadle.db" in served.lines
    body = {"model": "demo", "messages": [{"role": "user", "content": "what is the weather in Paris?"}]}
    answer = msgspec.json.decode(served.ask("/v1/chat/completions", body))
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert b"<html" in served.ask("/").lower()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_leaves_when_told(served: Served, number: int) -> None:
    """Ctrl-C and SIGTERM end it in good order: code 0, no traceback."""
    served.ask("/healthz")
    served.process.send_signal(number)
    assert served.process.wait(30) == 0


def test_logs_for_programs_are_json_lines_without_arguments(served: Served, tmp_path: Path) -> None:
    """A tool call is logged by name and size; what was asked and answered is not."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "what is the weather in Timbuktu?"}]}
    served.ask("/v1/chat/completions", body)
    served.process.send_signal(signal.SIGTERM)
    served.process.wait(30)
    text = (tmp_path / "log").read_text(encoding="utf-8")
    records = [msgspec.json.decode(line) for line in text.splitlines()]
    assert any(record.get("tool_name") == "get_weather" for record in records)
    assert "Timbuktu" not in text


def test_a_taken_port_is_one_line(served: Served, env: dict[str, str], tmp_path: Path) -> None:
    """Starting it twice says what is wrong and what to do."""
    port = served.url.rsplit(":", 1)[1]
    done = subprocess.run(
        [*TREADLE, "serve", "--port", port],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("treadle: ")
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_host_for_others_must_be_meant(env: dict[str, str], tmp_path: Path) -> None:
    """Without --allow-remote nothing listens where other machines reach it."""
    done = subprocess.run(
        [*TREADLE, "serve", "--host", "0.0.0.0", "--port", "0"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--allow-remote" in done.stderr
