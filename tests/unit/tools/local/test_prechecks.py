"""What is known of a local tool's call before a person is asked about it: whether it fails all the same."""

from pathlib import Path
from typing import Any

import pytest

from treadle.tools.local import Root, local_tools
from treadle.tools.sandbox import CommandSandbox

LEVEL = CommandSandbox().found.level
AGAIN = {"file": "protected=true", "bash": "git=true" if LEVEL else ""}


def refusal(root: Path, name: str, arguments: dict[str, Any], *, writable: tuple[str, ...] = ()) -> str:
    """Return what is said of a call before anybody is asked."""
    [made] = local_tools(Root(root, writable=writable), names=(name,))
    assert made.refuses is not None
    return made.refuses(arguments)


def bash(command: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """Return a call of a command."""
    return "bash", {"command": command, **more}


def write(path: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    """Return a call that writes."""
    return "file_write", {"path": path, "content": "x", **more}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (write("./AGENTS.md"), AGAIN["file"]),
        (write("missing/.vscode/tasks.json"), AGAIN["file"]),
        (("file_edit", {"path": "a/.git/config", "old": "x", "new": "y"}), AGAIN["file"]),
        (write("link/x.json"), 'path=".idea/x.json" and protected=true'),
        (write("link/x.json", protected=True), 'path=".idea/x.json" and protected=true'),
        (write("../x"), "Outside the root"),
        (write(".env", protected=True), "secrets"),
        (bash("git commit -m 'a; b'"), AGAIN["bash"]),
        (bash("touch x && git commit -m y"), AGAIN["bash"]),
        (bash("ls;(git add .)"), AGAIN["bash"]),
        (bash("git add .", read_only=False), AGAIN["bash"]),
    ],
)
def test_a_call_that_fails_whatever_a_person_says(tmp_path: Path, call: tuple[str, dict[str, Any]], words: str) -> None:
    """The words tell the model what to ask for, and nothing is made on the way."""
    (tmp_path / ".idea").mkdir()
    (tmp_path / "link").symlink_to(".idea")
    assert words in refusal(tmp_path, *call)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".idea", "link"]


@pytest.mark.parametrize(
    "call",
    [
        write("a.txt"),
        write("missing/a.txt"),
        write("AGENTS.md", protected=True),
        write(7),
        bash("git commit -m y", git=True),
        bash("git status", read_only=True),
        bash("git commit -m y", read_only=True),
        bash("git stash list"),
        bash("echo 'git commit'"),
        bash("git -C n commit"),
        bash("cat > x <<EOF\ngit add .\nEOF"),
        bash("echo 'git add"),
        bash(None),
    ],
)
def test_a_call_that_may_succeed(tmp_path: Path, call: tuple[str, dict[str, Any]]) -> None:
    """It asks already, writes nothing that is protected, or is not known to: then a person is asked."""
    assert refusal(tmp_path, *call) == ""


def test_what_the_settings_allow_is_asked_about_as_ever(tmp_path: Path) -> None:
    """`tools.local.writable` names paths that need no asking by name."""
    (tmp_path / "n").mkdir()
    assert refusal(tmp_path, *write("AGENTS.md"), writable=("AGENTS.md",)) == ""
    assert refusal(tmp_path, *bash("git commit -m y"), writable=(".git",)) == ""
    assert (refusal(tmp_path, *bash("git add .", cwd="n"), writable=(".git",)) != "") is (LEVEL > 0)
