"""The same screen over HTTP: a chat and a run at a Treadle elsewhere."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.cutting import CuttingProxy
from gateway.server_process import served
from gateway.terminal import BOUND_S, TREADLE, Terminal, person_env
from treadle.server.auth.installation_secret import VARIABLE
from warm.start import Popen
from warm.start import run as warm

PRICED = '[[price]]\nmodel = "demo"\ninput = 1000\noutput = 1000\n'


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a person, with the secret of the server: its journal is another than theirs."""
    return {**person_env(tmp_path), VARIABLE: os.environ[VARIABLE]}


@pytest.fixture
def server(env: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """Start a server with tools of its own and return its address."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "treadle.toml").write_text(PRICED, encoding="utf-8")
    command = [*TREADLE, "serve", "--config", "treadle.toml", "--port", "0", "--tools", "../mine.py"]
    command += ["--store", "sqlite:///served.db"]
    process = Popen(
        command, env=env, cwd=tmp_path / "served", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        words = next(word for line in process.stdout for word in line.split() if word.startswith("http://127"))
        yield words.rstrip("/.,")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(BOUND_S)
        assert process.stdout is not None
        process.stdout.close()


def run(*words: str, env: dict[str, str], cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command as a script does."""
    return warm(
        [*TREADLE, *words],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        timeout=BOUND_S,
    )


def test_a_chat_elsewhere_is_the_same_chat(server: str, env: dict[str, str], tmp_path: Path) -> None:
    """Turns, questions, tools, sessions and resuming."""
    here = Terminal([*TREADLE, "--server", server], env, tmp_path)
    try:
        here.until(f"Treadle at {server}")
        here.type("Use wipe_disk `sda`\r")
        here.until("wipe_disk wants to run")
        here.until("[y] once")
        here.type("y")
        here.until("wiped sda")
        here.until("tokens · $")
        here.type("Use wait_for `gone`\r")
        here.until("● wait_for")
        here.type("\x03")
        here.until("cancelled")
        here.type("/tools\r")
        here.until("wipe_disk (destructive)")
        here.type("/model nope\r")
        here.until("✗ the server has no model 'nope'")
        here.type("/rename far away\r")
        here.until("this is now far away")
        here.type("\x04")
        assert here.wait() == 0
    finally:
        here.close()
    assert not (tmp_path / ".local/share/treadle/treadle.db").exists(), "nothing is kept here"
    again = Terminal([*TREADLE, "--server", server, "-r", "far away"], env, tmp_path)
    try:
        again.until("— resumed: far away —")
        assert "● wipe_disk" in again.text
        again.type("/undo\r")
        again.until("taken back, in far away (fork)")
        again.until_live("> Use wait_for `gone`")
        again.type("\x03")
        again.until_gone("> Use wait_for `gone`\n ask")
        again.type("/delete far away (fork)\r")
        again.until("is forgotten")
    finally:
        again.close()


def test_a_run_elsewhere_has_the_same_events_and_codes(server: str, env: dict[str, str], tmp_path: Path) -> None:
    """Denied without anybody to ask; approved when that is said."""
    denied = run("run", "Use wipe_disk `sda`", "--server", server, "--output", "jsonl", env=env, cwd=tmp_path)
    assert denied.returncode == 3, denied.stderr
    types = [msgspec.json.decode(line)["type"] for line in denied.stdout.splitlines()]
    assert types[:3] == ["session.started", "turn.started", "approval.requested"]
    assert types[-1] == "turn.finished"
    assert msgspec.json.decode(denied.stdout.splitlines()[-1])["cost"] > 0, "the server knows what its models cost"
    costly = run("run", "Use wait_short `ada`", "--server", server, "--max-cost", "1e-9", env=env, cwd=tmp_path)
    assert (costly.returncode, "max_cost" in costly.stderr) == (4, True), costly.stderr
    done = run("run", "-c", "Use wipe_disk `sda`", "--server", server, "--yes", env=env, cwd=tmp_path)
    assert (done.returncode, "wiped sda" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_run_whose_decisions_are_refused_ends(server: str, env: dict[str, str], tmp_path: Path, output: str) -> None:
    """A person's key of another installation decides nothing, and cancels nothing: the command says so and ends."""
    other = {**env, VARIABLE: "another secret than the one of the server, and as long"}
    words = ("run", "Use wipe_disk `sda`", "--server", server, "--output", output)
    done = run(*words, env=other, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "wipe_disk" in done.stderr
    assert "could not be cancelled" in done.stderr
    if output == "json":
        assert "could not be cancelled" in msgspec.json.decode(done.stdout)["error"]["message"]
    listed = run("run", "Hello", "--server", server, env=env, cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--server", "http://127.0.0.1:1"], 1, "http://127.0.0.1:1 can not be reached"),
        (["--server", "{server}", "-r", "nope"], 1, "There is no session 'nope'"),
    ],
)
def test_what_the_server_refuses_is_said(
    server: str, env: dict[str, str], tmp_path: Path, flags: list[str], code: int, words: str
) -> None:
    """In its own words, with an exit code."""
    given = [flag.replace("{server}", server) for flag in flags]
    done = run("run", "hello", *given, env=env, cwd=tmp_path)
    assert done.returncode in (code, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stream_that_breaks_is_gone_on_with(env: dict[str, str], tmp_path: Path) -> None:
    """The answer is whole although the connection was cut in the middle of it, and the key was sent."""
    with served(tmp_path, delay_s=0.005) as behind, CuttingProxy(behind.port, cut_after=2_000) as proxy:
        words = ["run", "hello", "--server", proxy.url, "--key-env", "MY_KEY"]
        cut = run(*words, env={**env, "MY_KEY": "secret-key"}, cwd=tmp_path)
        whole = run("run", "hello", "--server", behind.url, env=env, cwd=tmp_path)
        assert proxy.cuts >= 1
        assert b"authorization: bearer secret-key" in proxy.seen.lower()
    assert cut.returncode == 0, cut.stderr
    assert cut.stdout == whole.stdout
    assert os.linesep in cut.stdout
