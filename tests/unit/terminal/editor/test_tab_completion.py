"""Completion: files below the root, and nothing outside it."""

from pathlib import Path

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from treadle.terminal.editor.tab_completion import Completions, find_files


def tree(root: Path) -> str:
    """Make some files."""
    for name in ("src/app.py", "src/deep/inner_app.txt", "readme.md", ".git/config", ".hidden"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("", encoding="utf-8")
    return str(root)


def test_paths_are_completed_step_by_step_and_found_by_name(tmp_path: Path) -> None:
    """Folders end with a slash; what fits nowhere near is looked for below."""
    root = tree(tmp_path)
    assert find_files(root, "") == ["readme.md", "src/"]
    assert find_files(root, "src/") == ["src/app.py", "src/deep/"]
    assert find_files(root, "inner") == ["src/deep/inner_app.txt"]
    assert find_files(root, ".hid") == [".hidden"]


def test_nothing_outside_the_root_is_offered(tmp_path: Path) -> None:
    """Neither by dots nor by an absolute path."""
    root = tree(tmp_path)
    assert find_files(f"{root}/src", "../") == []
    assert find_files(root, "/etc/") == []
    assert find_files(root, "no/such/folder/") == []


def test_earlier_prompts_are_found_by_any_of_their_words(tmp_path: Path) -> None:
    """Each once, newest first, shown on one line without escapes."""
    completer = Completions({}, {}, str(tmp_path), lambda: ["fix the\ntest", "fix the\ntest", "build \x1b[2J"])
    found = list(completer.get_completions(Document("#THE"), CompleteEvent()))
    assert [each.text for each in found] == ["fix the\ntest"]
    assert found[0].display_text == "fix the⏎test"
    assert "\x1b" not in next(iter(completer.get_completions(Document("#build"), CompleteEvent()))).display_text


def test_ordinary_text_completes_nothing(tmp_path: Path) -> None:
    """Tab is no surprise."""
    completer = Completions({"/help": ""}, {}, str(tmp_path), list)
    assert list(completer.get_completions(Document("hello /he"), CompleteEvent())) == []
