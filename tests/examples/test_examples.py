"""Every example does what its README says: as it is, offline, on free ports."""

import json
import re
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from examples.stage import BOUND_S, EXAMPLES, SERVE, Stage
from person import person_key
from postgres import postgres_server

ELSEWHERE = {"card_editor": "tests/gateway/test_card_editor.py", "guests": "tests/toolchains/test_languages.py"}
"""Examples that have tests of their own, and where those are."""

QUESTION = {"role": "user", "content": "What is the status of order 17?"}


def sdk(url: str) -> dict[str, str]:
    """Return the variables that point a script of the openai SDK at an address."""
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "unused"}


def test_a_script_gains_server_tools_unchanged(tmp_path: Path) -> None:
    """The script has no tools, and is answered through the server's; a mistake is answered too."""
    stage = Stage("sdk_script", tmp_path)
    with stage.serving(*SERVE, "--tools", "prices.py") as url:
        assert "12.5" in stage.run("ask.py", **sdk(url))
        assert "there is no article Z9" in stage.run("ask.py", "What is the price of article Z9?", **sdk(url))
    assert "treadle" not in (stage.folder / "ask.py").read_text().lower().replace("knows nothing of treadle", "")


def test_calls_that_a_local_model_writes_as_text_are_made(tmp_path: Path) -> None:
    """Two spellings become two calls, the answer has neither, and the run's notes say what was repaired."""
    stage = Stage("local_model", tmp_path)
    loopback = ("-m", "treadle.providers.fakes.fake_server", "--port", "0", "--script", "model.toml")
    with stage.serving(*loopback) as model:
        settings = stage.folder / "treadle.toml"
        settings.write_text(settings.read_text().replace("http://127.0.0.1:8101/v1", model))
        stage.treadle("trust")
        with stage.serving(*SERVE) as url:
            printed = stage.run("ask.py", TREADLE_URL=url)
    answer, _, notes = printed.partition("  call_recovered: ")
    assert answer.split() == ["Let", "me", "look.", "There", "are", "41", "of", "A7", "and", "7", "of", "B2."]
    assert notes.count("call_recovered: ") == 1


def test_treadle_is_mounted_in_another_application(tmp_path: Path) -> None:
    """The application's own route answers, and below the mount a model calls the application's function."""
    stage = Stage("mounted", tmp_path)
    source = (stage.folder / "app.py").read_text()
    starting = 'uvicorn.run(app, port=int(os.environ.get("PORT", "8730")), log_level="warning", ws="none")'
    assert starting in source
    announced = "import serving\n    serving.announce(app)"
    (stage.folder / "app.py").write_text(source.replace(starting, announced))
    (stage.folder / "serving.py").write_text(ANNOUNCE)
    with stage.serving("app.py") as url:
        assert ask(f"{url}/orders/17") == {"status": "packed"}
        answered = ask(f"{url}/ai/v1/chat/completions", {"model": "demo", "messages": [QUESTION]})
        assert "packed" in answered["choices"][0]["message"]["content"]  # pyright: ignore[reportCallIssue]
        assert ask(f"{url}/ai/healthz") == {"status": "ok"}


ANNOUNCE = """
import socket
import uvicorn


def announce(app):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none")).run(sockets=[listening])
"""
"""Serves an application on a port that the system picks, and says which."""


def ask(url: str, body: dict[str, object] | None = None) -> dict[str, object] | list[object]:
    """Ask an address and read its JSON."""
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"content-type": "application/json"}), timeout=BOUND_S) as answer:
        return json.load(answer)


def test_a_call_waits_until_somebody_decides(tmp_path: Path) -> None:
    """Approved it runs; denied it does not, and the reason reaches the model. The asking client knows of neither."""
    stage = Stage("approvals", tmp_path)
    with stage.serving(*SERVE, "--tools", "logs.py") as url:
        for choice, outcome, answer in (
            ("deny", "denied", "not during the audit"),
            ("approve", "approved", "old.log is gone, 2 are left"),
        ):
            with stage.beside("ask.py", **sdk(url)) as asking:
                shown = stage.run("decide.py", choice, TREADLE_URL=url, TREADLE_KEY=person_key()).splitlines()
                said, _ = asking.communicate(timeout=BOUND_S)
            assert shown[0] == 'delete_log {"file":"old.log"}'
            assert shown[-1].strip() == outcome
            assert (asking.returncode, answer in said) == (0, True), said


def test_tools_of_an_mcp_server_come_in_and_go_out(tmp_path: Path) -> None:
    """An MCP client of Treadle calls Treadle's own tool and, through it, that of the other server."""
    stage = Stage("mcp", tmp_path)
    with (stage.folder / "treadle.toml").open("a") as settings:
        settings.write("connect_s = 60.0\n")
    stage.treadle("trust")
    with stage.serving(*SERVE) as url:
        printed = stage.run("client.py", TREADLE_URL=url).splitlines()
    assert printed == [
        "tools: get_price, mcp__warehouse__count_stock",
        "get_price: 12.5",
        "mcp__warehouse__count_stock: 41",
    ]


def test_tools_in_two_languages_run_as_guests(tmp_path: Path) -> None:
    """Both are called alone, and one by a model; arguments that do not fit are refused before the guest runs."""
    stage = Stage("wasm_tools", tmp_path)
    stage.treadle("trust")
    valid = json.dumps({"iban": "DE89370400440532013000"})
    assert json.loads(stage.treadle("wasm", "call", "iban", "check_iban", valid)) == {"valid": True}
    wrong = valid.replace("DE89", "DE98")
    assert json.loads(stage.treadle("wasm", "call", "iban", "check_iban", wrong)) == {"valid": False}
    words = json.dumps({"text": "one two three"})
    assert json.loads(stage.treadle("wasm", "call", "words", "count_words", words)) == {"words": 3}
    asked = stage.treadle("run", "Use check_iban with `DE89370400440532013000`")
    assert "**valid**: true" in asked


def test_a_suite_of_ones_own_passes_and_can_fail(tmp_path: Path) -> None:
    """All pass as they are; one that expects something else fails, so the expectations do judge."""
    stage = Stage("eval_suite", tmp_path)
    report = json.loads(stage.treadle("eval", ".", "--json"))
    assert (report["exit_code"], len({each["scenario"] for each in report["samples"]})) == (0, 3)
    large = stage.folder / "refund_large.toml"
    large.write_text(large.read_text().replace('mines = ["call:refund ok"]', 'mines = ["call:hand_over ok"]'))
    with pytest.raises(AssertionError, match=r"refunds\.large"):
        stage.treadle("eval", ".")


def test_replicas_share_conversations_and_streams(tmp_path: Path) -> None:
    """Two processes on one PostgreSQL; the kill of one is for `make chaos`."""
    stage = Stage("replicas", tmp_path)
    printed = stage.run("replicas.py", TREADLE_STORE__URL=postgres_server().url()).splitlines()
    assert printed == [
        "conversation: begun at one, the other read 3 items of it and answered",
        "stream: begun at one, the other told response.created to response.completed",
    ]


def test_replicas_need_a_database(tmp_path: Path) -> None:
    """Without an address the script says what to set, and starts nothing."""
    with pytest.raises(AssertionError, match="set TREADLE_STORE__URL"):
        Stage("replicas", tmp_path).run("replicas.py")


def test_every_example_is_listed_has_a_readme_and_is_tested() -> None:
    """A folder that nobody lists is not found, and one that nobody runs goes stale."""
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))}
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {name for name in folders if f"]({name}/README.md)" not in listed} == set()
    assert {name for name in folders if not (EXAMPLES / name / "README.md").exists()} == set()
    played = set(re.findall(r'Stage\("(\w+)"', Path(__file__).read_text(encoding="utf-8")))
    assert folders - played == set(ELSEWHERE)
    root = EXAMPLES.parent
    assert [place for place in ELSEWHERE.values() if not (root / place).exists()] == []
