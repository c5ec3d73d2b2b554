"""What the person is writing: an editor that keeps what was sent, and can be handed to a program of theirs."""

import contextlib
import os
import shlex
import subprocess
from typing import Any, TextIO

from prompt_toolkit.buffer import Buffer

REMEMBERED_CHARS_MAX = 50_000
_EDITORS = ("editor", "nano", "vi", "emacs")


class Draft(Buffer):
    """A buffer whose history never fails, and whose editor gets the terminal itself, whoever else stdout belongs to."""

    def __init__(self, out: TextIO, **options: Any) -> None:
        super().__init__(**options)
        self._out = out

    def remember(self, text: str) -> None:
        """Keep what was sent, as it was sent; what is very long is not kept, and a full disk is no reason to stop."""
        known = self.history.get_strings()
        if len(text) > REMEMBERED_CHARS_MAX or (known and known[-1] == text):
            return
        with contextlib.suppress(OSError):
            self.history.append_string(text)

    def _open_file_in_editor(self, filename: str) -> bool:
        """Run the first editor that there is; tell whether it ended well."""
        wanted = [os.environ.get("VISUAL"), os.environ.get("EDITOR"), *_EDITORS]
        screen: int | None = None
        with contextlib.suppress(OSError):
            screen = self._out.fileno()
        for editor in filter(None, wanted):
            with contextlib.suppress(OSError, ValueError):
                words = [*shlex.split(editor), filename]
                return subprocess.call(words, stdout=screen, stderr=screen) == 0
        return False
