"""The interface for pipes, dumb terminals and screen readers: plain lines, numbered choices, nothing drawn over."""

import asyncio
import contextlib
import os
import threading
from typing import TextIO

from treadle.terminal.editor.screen_interface import Actions
from treadle.terminal.rendering.approval_card import CardChoice
from treadle.terminal.rendering.drawing_surface import Painter, Stream
from treadle.terminal.rendering.sanitize import clean

READ_BYTES = 65_536
LINE_BYTES_MAX = 8_388_608
PROMPT = "> "


class PlainScreen(Stream):
    """Reads lines from a descriptor and writes lines to a stream."""

    def __init__(self, source_fd: int, out: TextIO) -> None:
        super().__init__(out)
        self._fd = source_fd
        self._rest = b""
        self._is_over = False
        self._reading: asyncio.Future[bytes] | None = None

    @property
    def can_ask(self) -> bool:
        """Return whether a person types: a pipe holds prompts, and none of them is an answer."""
        return os.isatty(self._fd)

    @property
    def echoes(self) -> bool:
        """Return whether a terminal has shown what was typed."""
        return os.isatty(self._fd)

    async def open(self) -> None:
        """Do nothing: there is nothing to set up."""

    def serve(self, actions: Actions) -> None:
        """Do nothing: there are no key bindings."""

    async def close(self) -> None:
        """Do nothing: the terminal was not changed."""

    def paint(self, painter: Painter | None) -> None:
        """Draw nothing: unfinished lines cannot be taken back here."""

    def redraw(self) -> None:
        """Do nothing: lines cannot be redrawn."""

    def clear(self) -> None:
        """Do nothing: lines cannot be erased."""

    def copy(self, text: str) -> bool:
        """Return that there is no clipboard."""
        return False

    def refresh(self) -> None:
        """Do nothing: there is no status line."""

    def offer(self, text: str) -> None:
        """Print the text: it cannot be edited on a line that only grows."""
        self.write(f"{clean(text)}\n")

    async def left(self) -> None:
        """Wait for ever: Ctrl-C is a signal here."""
        await asyncio.Event().wait()

    async def read(self) -> str | None:
        """Return the next line; None at the end."""
        return await self._line(PROMPT)

    async def line(self, label: str, text: str = "") -> str | None:
        """Ask for a line; an empty answer means the given text."""
        if not self.can_ask:
            return None
        if text:
            self.write(f"{clean(text)}\n")
        answer = await self._line(f"{label} ")
        return answer if answer or answer is None else text

    async def choose(self, choices: list[CardChoice]) -> str | None:
        """Show the choices by number and read one; the key or the word of one is understood too."""
        if not self.can_ask:
            return None
        for number, choice in enumerate(choices, 1):
            self.write(f"{number}. {choice.word}: {clean(choice.meaning)}\n")
        while True:
            answer = await self._line("number: ")
            if answer is None:
                return None
            if (found := _chosen(choices, answer.strip())) is not None:
                return found
            self.write(f"1 to {len(choices)}, please\n")

    async def _line(self, label: str) -> str | None:
        if os.isatty(self._fd):
            self.write(label)
        while b"\n" not in self._rest and len(self._rest) < LINE_BYTES_MAX and not self._is_over:
            more = await self._more()
            self._is_over = not more
            self._rest += more
        if not self._rest:
            self.write("\n" if os.isatty(self._fd) else "")  # the shell's own prompt begins on a line of its own
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    async def _more(self) -> bytes:
        """Return the next bytes; if the caller is cancelled, the next call gets them."""
        self._reading = self._reading or asyncio.ensure_future(_in_thread(self._fd))
        data = await asyncio.shield(self._reading)
        self._reading = None
        return data


def _chosen(choices: list[CardChoice], answer: str) -> str | None:
    if answer.isdigit() and 1 <= int(answer) <= len(choices):
        return choices[int(answer) - 1].key
    return next((choice.key for choice in choices if answer in (choice.key, choice.word)), None)


async def _in_thread(fd: int) -> bytes:
    """Read in a thread that may be abandoned: a blocked read must not keep the program from ending.

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
        with contextlib.suppress(RuntimeError):  # the loop has ended by now
            loop.call_soon_threadsafe(hand_over, data)

    threading.Thread(target=work, name="treadle-stdin", daemon=True).start()
    return await piece
