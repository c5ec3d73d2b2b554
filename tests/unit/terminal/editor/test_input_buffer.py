"""What the person is writing."""

import os
import sys
from pathlib import Path

from prompt_toolkit.history import FileHistory, InMemoryHistory

from places import needs_programs
from treadle.terminal.editor import input_buffer as draft
from treadle.terminal.editor.input_buffer import Draft


def test_what_was_sent_is_remembered_once_and_within_bounds() -> None:
    """The same again is not kept twice, and a whole book not at all."""
    history = InMemoryHistory()
    buffer = Draft(sys.stdout, history=history)
    for text in ("one", "one", "two", "x" * (draft.REMEMBERED_CHARS_MAX + 1)):
        buffer.remember(text)
    assert history.get_strings() == ["one", "two"]


def test_a_history_that_can_not_be_written_is_no_error(tmp_path: Path) -> None:
    """A full disk, or a folder that is gone: the message is sent all the same."""
    buffer = Draft(sys.stdout, history=FileHistory(str(tmp_path / "gone" / "history")))
    buffer.remember("one")


@needs_programs
def test_the_editor_writes_to_the_screen_and_not_to_what_stdout_is_now(tmp_path: Path, monkeypatch) -> None:
    """Standard output may belong to tools; the first editor that can be started is taken."""
    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\necho drawn; echo moaned >&2; echo edited > "$1"\n', encoding="utf-8")
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(tmp_path / "not-there"))
    monkeypatch.setenv("EDITOR", f"{script}")
    name = tmp_path / "draft.md"
    with (tmp_path / "screen").open("w+", encoding="utf-8") as screen:
        assert Draft(screen)._open_file_in_editor(str(name))
    assert (tmp_path / "screen").read_text(encoding="utf-8") == "drawn\nmoaned\n"
    assert name.read_text(encoding="utf-8") == "edited\n"


def test_an_editor_that_fails_changes_nothing(tmp_path: Path, monkeypatch) -> None:
    """Leaving vi with :cq keeps the draft."""
    monkeypatch.setenv("VISUAL", "false")
    with open(os.devnull, "w", encoding="utf-8") as screen:
        assert not Draft(screen)._open_file_in_editor(str(tmp_path / "draft.md"))
