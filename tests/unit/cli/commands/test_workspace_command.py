"""`treadle ws` and `treadle plan`: a workspace worked on from the command line, and what a model call sent."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.cli.main import main
from treadle.runtime import SystemClock


class Shell:
    """Runs commands on one journal."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._store = f"sqlite:///{folder / 'ws.db'}"
        self._capsys = capsys
        self.code = 0
        self.error = ""

    def __call__(self, *words: str) -> str:
        self.code = main([*words, "--store", self._store])
        said = self._capsys.readouterr()
        self.error = said.err
        return said.out

    def json(self, *words: str) -> Any:
        """Return what a command prints for a program."""
        return msgspec.json.decode(self(*words, "--json"))


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell whose journal is empty, and a demo model that does not take its time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: asyncio.sleep(0))
    return Shell(tmp_path, capsys)


def test_a_workspace_is_made_patched_locked_and_read(shell: Shell, tmp_path: Path) -> None:
    """Values are JSON where they can be, else text; a file may hold a section."""
    (tmp_path / "draft.json").write_text('{"tags": []}')
    shell("ws", "new", "card", "--facts", '{"name": "Ada"}', "--draft", "draft.json")
    shell("ws", "set", "card", "/draft/title", "The smith", "--by", "kim", "-r", "a start")
    shell("ws", "append", "card", "/draft/tags", "2")
    shell("ws", "insert", "card", "/draft/tags/0", '"one"')
    shell("ws", "lock", "card", "/draft/title")
    assert shell("ws", "delete", "card", "/draft/title") == ""
    assert (shell.code, "lock `/draft/title`" in shell.error) == (1, True)
    assert msgspec.json.decode(shell("ws", "show", "card", "/draft")) == {"tags": ["one", 2], "title": "The smith"}
    history = shell.json("ws", "history", "card")
    assert [each["kind"] for each in history] == ["locked", "patched", "patched", "patched", "created"]
    assert (history[3]["who"], history[3]["reason"]) == ("kim", "a start")
    assert '+ "The smith"' in shell("ws", "history", "card", "--diff")
    assert shell("ws", "audit", "card") == "5 versions, 0 problems\n"
    assert shell.json("ws")[0]["name"] == "card"


def propose(shell: Shell, *changes: tuple[str, Any]) -> str:
    """Let a program propose facts, and return the id of the proposal."""

    from treadle.journal.sqlite.store import SqliteStore
    from treadle.runtime import RandomIds
    from treadle.workspace.workspace_service import Workspaces
    from treadle.workspace.workspace_state import Change
    from treadle.workspace.workspace_store import PROGRAM

    async def work() -> str:
        store = SqliteStore("ws.db")
        await store.open()
        edits = [Change(path=path, value=value) for path, value in changes]
        made = await Workspaces(store, ids=RandomIds()).propose("card", edits, author=PROGRAM)
        await store.close()
        return made.proposal.id

    return asyncio.run(work())


def test_a_proposal_is_read_and_decided(shell: Shell) -> None:
    """With the version that was seen; nobody is asked where nobody can answer."""
    shell("ws", "new", "card", "--facts", '{"name": "Ada"}')
    proposal = propose(shell, ("/facts/name", "Eve"), ("/facts/age", 36))
    listed = shell("ws", "proposals", "card")
    assert '- "Ada"' in listed
    assert '+ "Eve"' in listed
    shell("ws", "confirm", "card", proposal)
    assert (shell.code, "--version 0" in shell.error) == (1, True)
    shell("ws", "confirm", "card", proposal, "--version", "0", "--only", "2")
    assert msgspec.json.decode(shell("ws", "show", "card", "/facts")) == {"name": "Ada", "age": 36}
    shell("ws", "reject", "card", proposal)
    assert (shell.code, "confirmed" in shell.error) == (1, True)
    assert shell("ws", "proposals", "card") == "nothing waits for a decision\n"
    assert "confirmed" in shell("ws", "proposals", "card", "--all")


def test_a_stale_proposal_is_shown_from_three_sides(shell: Shell) -> None:
    """And can be settled by hand."""
    shell("ws", "new", "card", "--facts", '{"name": "Ada"}')
    first, second = propose(shell, ("/facts/name", "Eve")), propose(shell, ("/facts/name", "Zoe"))
    shell("ws", "confirm", "card", first, "--yes")
    shown = shell("ws", "confirm", "card", second, "--yes")
    assert shell.code == 1
    assert "CLASH" in shown
    asked = shell("ws", "confirm", "card", second)
    assert (shell.code, asked) == (1, shown)
    assert "cannot be confirmed as it is: it is stale: /facts/name was changed since it was made" in shell.error
    assert "nobody can be asked" not in shell.error
    assert [line.split()[0] for line in shown.splitlines() if line.startswith("    ")] == ["was", "is", "proposed"]
    shell("ws", "confirm", "card", second, "--version", "1", "--set", '/facts/name="Zoë"')
    assert msgspec.json.decode(shell("ws", "show", "card", "/facts/name")) == "Zoë"


def test_versions_are_compared_and_brought_back(shell: Shell) -> None:
    """By their numbers; what is no version is refused."""
    shell("ws", "new", "card")
    shell("ws", "set", "card", "/draft/a", "1")
    assert shell.json("ws", "diff", "card", "0") == [{"path": "/draft/a", "after": 1}]
    shell("ws", "restore", "card", "0", "--section", "draft")
    assert msgspec.json.decode(shell("ws", "show", "card", "/draft")) == {}
    shell("ws", "restore", "card", "x")
    assert "'x' is no version" in shell.error
    shell("ws", "rename", "card", "other")
    shell("ws", "forget", "other")
    assert shell("ws") == "no workspaces yet\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("show", "none"), "there is no workspace 'none'"),
        (("new", "b", "--facts", "[1]"), "--facts"),
        (("new", "b", "--draft", "missing.json"), "--draft"),
        (("new", "b", "--session", "none"), "There is no session 'none'"),
        (("confirm", "card", "none", "--yes"), "there is no proposal `none`"),
        (("set", "card", "draft", "1"), "cannot follow `draft`"),
    ],
)
def test_bad_input_is_one_clear_line(shell: Shell, words: tuple[str, ...], error: str) -> None:
    """And an exit code."""
    shell("ws", "new", "card")
    shell("ws", *words)
    assert shell.code != 0
    assert error in shell.error


def test_a_plan_is_shown_with_its_fingerprint_and_its_equals(shell: Shell) -> None:
    """Equal requests are found by it."""
    for _ in range(2):
        shell("run", "hello")
    rows = shell.json("plan", "last")
    shown = shell.json("plan", "last#1")
    assert [row["fingerprint"] for row in rows] == [shown["fingerprint"]]
    [other] = shown["equal"]
    assert (other["run_id"] != shown["run_id"], other["round"]) == (True, 1)
    assert shown["plan"]["items"][-1]["content"][0]["text"] == "hello"
    printed = shell("plan", "last#1")
    assert shown["fingerprint"] in printed
    assert f"the same was sent in {other['run_id']}#1" in printed
    assert [each["run_id"] for each in shell.json("plan", shown["fingerprint"])] == [shown["run_id"], other["run_id"]]
    assert f"{other['run_id']}#1  completed" in shell("plan", shown["fingerprint"])
    shell("plan", "0" * 64)
    assert "no model call sent the plan" in shell.error
    shell("plan", "last#9")
    assert "has 1 rounds, not 9" in shell.error
    shell("plan", "last#0")
    assert "'0' is no round" in shell.error


def test_a_plan_says_what_changed_since_the_round_before(shell: Shell) -> None:
    """The call and its result, and nothing else."""
    shell("run", "What is the weather in Paris?")
    assert [row["round"] for row in shell.json("plan", "last")] == [1, 2]
    assert "since round 1: items +2 -0\n" in shell("plan", "last#2")
    assert [item["type"] for item in shell.json("plan", "last#2")["diff"]["items_added"]] == ["call", "result"]
    assert "since round" not in shell("plan", "last#1")
