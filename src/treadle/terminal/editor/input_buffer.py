"""The input buffer: completion, history, folded pastes, and editing in an external editor."""

import contextlib
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, TextIO

from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, Completion, get_common_complete_suffix
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

REMEMBERED_CHARS_MAX = 50_000
PASTE_LINES_MAX = 20
PASTE_CHARS_MAX = 2_000
_MARK = re.compile(r"\[pasted #(\d+), [^\]]*\]")
_EDITORS = ("editor", "nano", "vi", "emacs")


class Draft(Buffer):
    """A buffer whose history never fails, and whose external editor gets the terminal even if stdout is redirected."""

    def __init__(self, out: TextIO, **options: Any) -> None:
        super().__init__(**options)
        self._out = out

    def remember(self, text: str) -> None:
        """Store sent text in the history unchanged, unless it is very long; a full disk is ignored."""
        known = self.history.get_strings()
        if len(text) > REMEMBERED_CHARS_MAX or (known and known[-1] == text):
            return
        with contextlib.suppress(OSError):
            self.history.append_string(text)

    def complete(self) -> None:
        """Insert the only completion, else the common prefix, and show all."""
        if self.complete_state is not None:
            self.complete_next()
            return
        found = self._find_completions()
        if len(found) == 1:
            self.apply_completion(found[0])
            return
        if common := get_common_complete_suffix(self.document, found):
            self.insert_text(common)
            found = self._find_completions()
        if found:
            self.complete_state = CompletionState(self.document, found)

    def _find_completions(self) -> list[Completion]:
        return list(self.completer.get_completions(self.document, CompleteEvent(completion_requested=True)))

    def _open_file_in_editor(self, filename: str) -> bool:
        """Run the first editor that there is; return whether it ended well."""
        wanted = [os.environ.get("VISUAL"), os.environ.get("EDITOR"), *_EDITORS]
        screen: int | None = None
        with contextlib.suppress(OSError):
            screen = self._out.fileno()
        for editor in filter(None, wanted):
            with contextlib.suppress(OSError, ValueError):
                words = [*shlex.split(editor), filename]
                return subprocess.call(words, stdout=screen, stderr=screen) == 0
        return False


def open_history(path: Path | None) -> History:
    """Return the history from a file that only its owner can read; in memory where there is no such file."""
    if path is None:
        return InMemoryHistory()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        return FileHistory(str(path))
    return InMemoryHistory()


class Pastes:
    """Long pastes of this conversation: the editor shows a short mark for each, and sends the whole text."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def fold(self, text: str) -> str:
        """Return the text that the editor shows for a paste: itself if it is short, else a mark."""
        plain = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = plain.removesuffix("\n").count("\n") + 1
        if lines <= PASTE_LINES_MAX and len(plain) <= PASTE_CHARS_MAX:
            return plain
        self._texts.append(plain)
        size = f"{lines} lines" if lines > PASTE_LINES_MAX else f"{len(plain)} characters"
        return f"[pasted #{len(self._texts)}, {size}]"

    def unfold(self, text: str) -> str:
        """Replace the marks by the pasted texts."""

        def whole(match: re.Match[str]) -> str:
            number = int(match[1])
            return self._texts[number - 1] if 1 <= number <= len(self._texts) else match[0]

        return _MARK.sub(whole, text)
