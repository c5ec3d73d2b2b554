"""Reading what a person types: with history, several lines and completion where there is a screen, else line by line.

prompt_toolkit is imported only when there is a screen.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from treadle.config.reader import data_directory

if TYPE_CHECKING:
    from prompt_toolkit.completion import CompleteEvent, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

QUIT_S = 1.0
"""How soon a second Ctrl-C must follow the first to leave an idle chat."""

READ_BYTES = 65_536
LINE_BYTES_MAX = 8_388_608


class Prompt(Protocol):
    """Where the next thing to say comes from."""

    def between(self) -> contextlib.AbstractContextManager[None]:
        """Take care of what is typed while nothing is read."""
        ...

    async def read(self) -> str | None:
        """Return what was typed; None when the person is done."""
        ...


class PlainPrompt:
    """Lines from a pipe or a dumb terminal."""

    def __init__(self, source_fd: int, out: TextIO) -> None:
        self._fd = source_fd
        self._out = out
        self._rest = b""

    def between(self) -> contextlib.AbstractContextManager[None]:
        """Leave it to the terminal, which keeps whole lines."""
        return contextlib.nullcontext()

    async def read(self) -> str | None:
        """Return the next line; None at the end."""
        if os.isatty(self._fd):
            self._out.write("> ")
            self._out.flush()
        while b"\n" not in self._rest and len(self._rest) < LINE_BYTES_MAX:
            more = await _in_thread(self._fd)
            if not more:
                break
            self._rest += more
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")


class RichPrompt:
    """An editor of one prompt on a screen that keeps its scrollback."""

    def __init__(self, out: TextIO, history: Path, commands: Mapping[str, str], toolbar: Callable[[], str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.output import create_output

        class Slash(Completer):
            """Completes the commands of the chat."""

            def get_completions(self, document: "Document", complete_event: "CompleteEvent") -> "Iterable[Completion]":
                typed = document.text
                if typed.startswith("/") and " " not in typed and "\n" not in typed:
                    for name, summary in commands.items():
                        if name.startswith(typed):
                            yield Completion(name, start_position=-len(typed), display_meta=summary)

        self._interrupted_at = 0.0
        self._notice = ""
        self._toolbar = toolbar
        self._session: PromptSession[str | None] = PromptSession(
            message="> ",
            history=_file_history(history) or InMemoryHistory(),
            multiline=True,
            prompt_continuation="  ",
            key_bindings=self._bindings(),
            completer=Slash(),
            complete_while_typing=False,
            bottom_toolbar=lambda: self._notice or self._toolbar(),
            enable_history_search=True,
            output=create_output(stdout=out),
        )

    def between(self) -> contextlib.AbstractContextManager[None]:
        """Keep the keys that are typed during a turn, unseen, for the next prompt."""
        return held_keys(sys.stdin)

    async def read(self) -> str | None:
        """Return what was typed; None after Ctrl-D, or Ctrl-C twice."""
        self._notice = ""
        try:
            return await self._session.prompt_async(handle_sigint=False)
        except EOFError:
            return None

    def _bindings(self) -> "KeyBindings":
        from prompt_toolkit.application.current import get_app
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.key_binding import KeyBindings

        bindings = KeyBindings()
        is_empty = Condition(lambda: not get_app().current_buffer.text)

        @bindings.add("enter")
        def _(event: "KeyPressEvent") -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @bindings.add("escape", "enter")
        @bindings.add("c-j")
        def _(event: "KeyPressEvent") -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("c-c")
        def _(event: "KeyPressEvent") -> None:
            self._interrupt(event)

        @bindings.add("c-d", filter=is_empty)
        def _(event: "KeyPressEvent") -> None:
            event.app.exit(result=None)

        return bindings

    def _interrupt(self, event: "KeyPressEvent") -> None:
        """Ctrl-C clears what was typed; on an empty line it leaves, if it comes twice."""
        if event.current_buffer.text:
            event.current_buffer.reset()
            return
        now = time.monotonic()
        if now - self._interrupted_at <= QUIT_S:
            event.app.exit(result=None)
        self._interrupted_at = now
        self._notice = "Ctrl-C again to quit, or Ctrl-D"


def _file_history(path: Path) -> Any:
    """Return the history kept in a file, for the eyes of its owner only; None where none can be kept."""
    from prompt_toolkit.history import FileHistory

    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return None
    return FileHistory(str(path))


async def _in_thread(fd: int) -> bytes:
    """Read in a thread that may be left behind: a blocked read must not keep the program from ending.

    It reads the descriptor itself: a thread that holds the lock of sys.stdin would crash the interpreter at exit.
    """
    loop = asyncio.get_running_loop()
    piece: asyncio.Future[bytes] = loop.create_future()

    def hand_over(data: bytes) -> None:
        if not piece.done():
            piece.set_result(data)

    def work() -> None:
        try:
            data = os.read(fd, READ_BYTES)
        except OSError:
            data = b""
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(hand_over, data)

    threading.Thread(target=work, name="treadle-stdin", daemon=True).start()
    return await piece


@contextlib.contextmanager
def held_keys(source: TextIO) -> Generator[None]:
    """Have the terminal keep what is typed as keys, without echo: Enter and Ctrl-D then mean what they always mean.

    An editor that reads between goes back to this state, so that no key is lost on the way. Ctrl-C stays a signal.
    """
    if not source.isatty():
        yield
        return
    import termios

    fd = source.fileno()
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[0] &= ~termios.ICRNL
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    quiet[6][termios.VMIN], quiet[6][termios.VTIME] = 1, 0
    termios.tcsetattr(fd, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def make_prompt(is_rich: bool, out: TextIO, commands: Mapping[str, str], toolbar: Callable[[], str]) -> Prompt:
    """Return the best prompt that standard input allows; what was typed is remembered in the data directory."""
    if is_rich and sys.stdin.isatty():
        return RichPrompt(out, data_directory(os.environ) / "chat_history", commands, toolbar)
    return PlainPrompt(sys.stdin.fileno(), out)
