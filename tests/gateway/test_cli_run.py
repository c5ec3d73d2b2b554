"""`treadle run` and its neighbours as real processes: output, exit codes, signals, and what they load."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from warm.start import Popen, run

TREADLE = [sys.executable, "-m", "treadle.cli.main"]
QUESTION = "what is the weather in Paris?"
TOOLS = '''
import subprocess
import time
from treadle import tool

print("imported")

@tool(effect="read")
def be_noisy(name: str) -> str:
    """Be noisy for a name."""
    print("noise")
    subprocess.run(["echo", "child"], check=True)
    print("open", end="")
    return "done"

@tool(effect="destructive")
def wipe_disk(name: str) -> str:
    """Wipe a disk."""
    return "wiped"

@tool(effect="read", timeout_s=60)
def wait_long(name: str) -> str:
    """Wait very long for a name."""
    time.sleep(30)
    return "done"
'''


BIG = '''
from treadle import tool

@tool(effect="read", output_bytes_max=500_000)
def be_big(name: str) -> str:
    """Be big for a name."""
    return "x" * 200_000
'''


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a person who has nothing set."""
    (tmp_path / "mine.py").write_text(TOOLS, encoding="utf-8")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    return {**kept, "HOME": str(tmp_path), "PYTHONUTF8": "1", "PYTHONWARNINGS": "error"}


def treadle(
    *arguments: str, env: dict[str, str], cwd: Path, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a person would."""
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    return run([*TREADLE, *arguments], env=env, cwd=cwd, **source)


def test_one_prompt_is_answered_through_a_tool(env: dict[str, str], tmp_path: Path) -> None:
    """No key, no file, no flag: the demo model calls a server tool and answers; calls are notes on stderr."""
    done = treadle("run", QUESTION, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout
    assert 'treadle: get_weather(city="Paris") → ok, ' in done.stderr
    assert (tmp_path / ".local/share/treadle/treadle.db").exists()


def test_json_is_one_object(env: dict[str, str], tmp_path: Path) -> None:
    """`-p` without a command is `run`; the object has every field that is promised."""
    done = treadle("-p", QUESTION, "--output", "json", env=env, cwd=tmp_path)
    result = msgspec.json.decode(done.stdout)
    assert done.returncode == 0
    assert list(result) == ["session", "run", "result", "status", "limit", "usage", "cost", "error"]
    assert result["run"].startswith("run_")
    assert result["session"].startswith("sess_")
    assert (result["status"], result["limit"], result["cost"], result["error"]) == ("completed", None, None, None)
    assert "Paris" in result["result"]
    assert done.stderr == ""


def test_jsonl_is_the_events_of_the_run(env: dict[str, str], tmp_path: Path) -> None:
    """One event a line, from the session to exactly one end, with the tool's result between."""
    done = treadle("run", QUESTION, "--output", "jsonl", env=env, cwd=tmp_path)
    events = [msgspec.json.decode(line) for line in done.stdout.splitlines()]
    types = [event["type"] for event in events]
    assert types[:4] == ["session.started", "turn.started", "tool.started", "tool.finished"]
    assert (types.count("turn.finished"), types[-1]) == (1, "turn.finished")
    assert events[2]["args"] == {"city": "Paris"}
    assert "Paris" in "".join(event["text"] for event in events if event["type"] == "text.delta")


@pytest.mark.parametrize("word", ["run", "-p"])
def test_piped_text_is_part_of_the_prompt(env: dict[str, str], tmp_path: Path, word: str) -> None:
    """A pipe alone is the prompt."""
    done = treadle(word, env=env, cwd=tmp_path, stdin=f"{QUESTION}\n")
    assert (done.returncode, "Paris" in done.stdout) == (0, True)


def test_a_tool_that_needs_approval_is_denied(env: dict[str, str], tmp_path: Path) -> None:
    """Nobody can be asked, so the call is denied, and the exit code says so."""
    done = treadle("run", "Use wipe_disk `sda`", "--tools", "mine.py", env=env, cwd=tmp_path)
    assert "→ denied" in done.stderr
    assert done.returncode == 3


def test_a_limit_has_its_exit_code(env: dict[str, str], tmp_path: Path) -> None:
    """The answer is there, and the limit is named on stderr."""
    done = treadle("run", QUESTION, env={**env, "TREADLE_TERMINAL__MAX_TOOL_CALLS": "0"}, cwd=tmp_path)
    assert done.returncode == 4
    assert "treadle: the limit max_total_tool_calls (the key terminal.max_tool_calls) was reached" in done.stderr


def test_the_demo_model_answers_under_no_other_name(env: dict[str, str], tmp_path: Path) -> None:
    """Without an upstream a model's name is refused, with a way out; the demo model by its own name works."""
    done = treadle("run", "hi", "-m", "gpt-5", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("treadle: no upstream serves 'gpt-5'\n  hint: set OPENAI_API_KEY ")
    assert treadle("serve", "-m", "gpt-5", env=env, cwd=tmp_path).returncode == 2
    assert treadle("run", QUESTION, "-m", "demo", env=env, cwd=tmp_path).returncode == 0


def test_what_a_tool_prints_is_not_part_of_the_answer(env: dict[str, str], tmp_path: Path) -> None:
    """JSON stays JSON, whatever the tool and its children print, and when."""
    done = treadle("run", "Use be_noisy `ada`", "--tools", "mine.py", "--output", "json", env=env, cwd=tmp_path)
    assert msgspec.json.decode(done.stdout)["status"] == "completed"
    assert sorted(done.stderr.split()) == ["child", "imported", "noise", "open"]
    listed = treadle("tools", "--tools", "mine.py", "--json", env=env, cwd=tmp_path)
    assert [row["name"] for row in msgspec.json.decode(listed.stdout)] == ["be_noisy", "wait_long", "wipe_disk"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [("run", QUESTION), ("config", "show")])
def test_a_full_disk_is_no_traceback(env: dict[str, str], tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Code 1 and one line, whether the output comes at once or at the end."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*TREADLE, *arguments],
            env=env,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, last) == (1, "treadle: the output can not be written: No space left on device")
    assert "Traceback" not in done.stderr


def test_a_wrong_configuration_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    """Code 2, the key, the file and the line."""
    (tmp_path / "treadle.toml").write_text("[limits]\nmax_itrations = 1\n", encoding="utf-8")
    done = treadle("run", "hi", env=env, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    first = done.stderr.splitlines()[0]
    assert first == "treadle: treadle.toml:2: limits.max_itrations: unknown key; did you mean max_iterations?"


def test_an_upstream_that_is_not_there_is_an_error(env: dict[str, str], tmp_path: Path) -> None:
    """Code 1 and no traceback, whatever the form."""
    gone = {**env, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = treadle("run", "hi", "-m", "x", env=gone, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("treadle: ")
    assert "Traceback" not in done.stderr
    result = msgspec.json.decode(treadle("run", "hi", "-m", "x", "--output", "json", env=gone, cwd=tmp_path).stdout)
    assert (result["status"], result["error"]["message"] != "") == ("failed", True)


def test_an_upstream_without_a_model_asks_for_one(env: dict[str, str], tmp_path: Path) -> None:
    """Code 2, and how to name it."""
    done = treadle("run", "hi", env={**env, "OPENAI_API_KEY": "k"}, cwd=tmp_path)
    assert done.returncode == 2
    assert "-m NAME" in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_cancels_the_run(env: dict[str, str], tmp_path: Path, number: int, code: int) -> None:
    """The run ends as cancelled, its open call gets a result, and the exit code is that of the signal."""
    arguments = ["run", "Use wait_long `ada`", "--tools", "mine.py", "--output", "jsonl"]
    seen: list[str] = []
    with Popen(
        [*TREADLE, *arguments], env=env, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if '"tool.started"' in line:
                process.send_signal(number)
    assert process.returncode == code
    events = [msgspec.json.decode(line) for line in seen]
    assert (events[-1]["type"], events[-1]["status"]) == ("turn.finished", "cancelled")
    assert [event["ok"] for event in events if event["type"] == "tool.finished"] == [False]


def test_what_may_run_is_said_by_flags(env: dict[str, str], tmp_path: Path) -> None:
    """`--yes` approves; without it a command that changes something is denied, one that reads runs."""
    words = ("run", "Use wipe_disk `sda`", "--tools", "mine.py")
    assert "wiped" in treadle(*words, "--yes", env=env, cwd=tmp_path).stdout
    changed = treadle("run", "Use bash `touch made`", env=env, cwd=tmp_path)
    assert (changed.returncode, (tmp_path / "made").exists()) == (3, False)
    assert "nobody can be asked" in changed.stdout


def test_a_conversation_is_gone_on_with_and_an_ephemeral_one_is_not_kept(env: dict[str, str], tmp_path: Path) -> None:
    """`-c` finds the last one of the folder; the answer goes into a file too."""
    treadle("run", QUESTION, "--ephemeral", env=env, cwd=tmp_path)
    lost = treadle("run", "-c", QUESTION, env=env, cwd=tmp_path)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "no conversation of this folder" in lost.stderr
    first = msgspec.json.decode(treadle("-p", QUESTION, "--output", "json", env=env, cwd=tmp_path).stdout)
    words = ("run", "-c", QUESTION, "--output", "json", "--last-message", "last.md")
    again = msgspec.json.decode(treadle(*words, env=env, cwd=tmp_path).stdout)
    assert again["session"] == first["session"]
    assert (tmp_path / "last.md").read_text(encoding="utf-8") == again["result"]


def test_an_answer_that_does_not_follow_the_schema_is_an_error(env: dict[str, str], tmp_path: Path) -> None:
    """The answer is there, what is wrong is said, and the exit code tells."""
    (tmp_path / "s.json").write_text('{"type":"object"}', encoding="utf-8")
    done = treadle("run", QUESTION, "--schema", "s.json", "--output", "json", env=env, cwd=tmp_path)
    result = msgspec.json.decode(done.stdout)
    assert (done.returncode, result["status"], result["error"]["code"]) == (1, "completed", "schema_mismatch")


@pytest.mark.parametrize(
    ("flags", "limit"), [(("--timeout", "1.5"), "timeout"), (("--max-turns", "1"), "max_iterations")]
)
def test_limits_of_the_flags_end_the_turn(
    env: dict[str, str], tmp_path: Path, flags: tuple[str, str], limit: str
) -> None:
    """With their exit code, and their name in the result."""
    prompt = "Use wait_long `ada`" if limit == "timeout" else QUESTION
    tools = ("--tools", "mine.py") if limit == "timeout" else ()
    done = treadle("run", prompt, *flags, *tools, "--output", "json", env=env, cwd=tmp_path)
    assert (done.returncode, msgspec.json.decode(done.stdout)["limit"]) == (4, limit)


@pytest.mark.parametrize("prompt", [QUESTION, "hello"], ids=["rounds", "stream"])
def test_a_cost_that_is_too_high_ends_the_turn(env: dict[str, str], tmp_path: Path, prompt: str) -> None:
    """Between rounds, and in the middle of a long answer, by the prices of the configuration."""
    (tmp_path / "treadle.toml").write_text('[[price]]\nmodel = "demo"\ninput = 1e9\noutput = 1e9\n', encoding="utf-8")
    named = ("--config", "treadle.toml", "--output", "json")
    done = treadle("run", prompt, "--max-cost", "0.5", *named, env=env, cwd=tmp_path)
    result = msgspec.json.decode(done.stdout)
    assert (done.returncode, result["limit"], result["status"]) == (4, "max_cost", "cancelled")
    assert len(result["result"]) < 1_000


def test_a_turn_that_never_begins_is_told_in_json(env: dict[str, str], tmp_path: Path) -> None:
    """A program gets an object, a person a line, and both the exit code."""
    done = treadle("-p", "hi", "-r", "nowhere", "--output", "json", env=env, cwd=tmp_path)
    result = msgspec.json.decode(done.stdout)
    assert (done.returncode, result["status"], result["error"]["code"]) == (1, "failed", "not_found")
    assert done.stderr == "treadle: There is no session 'nowhere'.\n"


def test_a_slow_reader_gets_everything(env: dict[str, str], tmp_path: Path) -> None:
    """Also through a pipe that another program made non-blocking: nothing is cut."""
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    (tmp_path / "big.py").write_text(BIG, encoding="utf-8")
    with Popen(
        [*TREADLE, "run", "Use be_big `ada`", "--tools", "big.py", "--output", "jsonl"],
        env={**env, "TREADLE_TERMINAL__MAX_TOOL_OUTPUT_BYTES": "1000000"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=sink,
    ) as process:
        os.close(sink)
        with open(source, "rb", buffering=0) as reader:
            data = b"".join(iter(lambda: reader.read(1000), b""))
    assert process.returncode == 0
    lines = [msgspec.json.decode(line) for line in data.splitlines()]
    assert (len(data) > 200_000, lines[-1]["type"]) == (True, "turn.finished")


def test_a_reader_that_leaves_is_no_traceback(env: dict[str, str], tmp_path: Path) -> None:
    """`treadle run … | head -0` ends quietly."""
    source, sink = os.pipe()
    os.close(source)
    done = subprocess.run(
        [*TREADLE, "run", QUESTION],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=sink,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(sink)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_run_loads_no_screen(env: dict[str, str], tmp_path: Path) -> None:
    """Neither the editor nor Markdown is loaded for a script."""
    program = (
        "import sys\nfrom treadle.cli.main import main\n"
        f"code = main(['run', {QUESTION!r}])\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not {"prompt_toolkit", "wcwidth", "pygments", "uvicorn"} & set(done.stderr.split())


def test_the_scenarios_pass(env: dict[str, str], tmp_path: Path) -> None:
    """`treadle eval` plays scenarios that come with it without a key, and writes JSON and JUnit."""
    done = treadle("eval", "--scenarios", "parallel.*", "--json", "--junit", "report.xml", env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    samples = msgspec.json.decode(done.stdout)["samples"]
    assert {sample["outcome"] for sample in samples} == {"pass"}
    assert {sample["protocol"] for sample in samples} == {"chat", "responses", "messages", "gemini"}
    assert (tmp_path / "report.xml").read_text(encoding="utf-8").startswith("<?xml")


def test_an_eval_of_nothing_is_refused(env: dict[str, str], tmp_path: Path) -> None:
    """A path without a scenario is a mistake, not a success."""
    done = treadle("eval", "nowhere", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr.startswith("treadle: ")) == (2, True)
