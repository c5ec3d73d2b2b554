"""`bash`: one command in the sandbox, ended with all it started; the head and the tail of what it wrote.

Everything is bounded: time, what the model reads, what is kept, and what is read at all before the command is ended.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from fnmatch import fnmatchcase
from typing import Annotated, Any

import msgspec

from treadle.canon.errors import ToolError, ToolFailed
from treadle.canon.json import write_json
from treadle.canon.tools import Envelope, Fault
from treadle.tools.context import ToolContext
from treadle.tools.envelope import Answer
from treadle.tools.local.opener import FIXED, MASKED_FOLDERS, Root
from treadle.tools.local.output import Shelf
from treadle.tools.local.write import session_of
from treadle.tools.sandbox import Sandbox
from treadle.tools.sandbox.order import Ended

SHELL = "/bin/bash"
TIMEOUT_S = 120.0
TIMEOUT_MAX_S = 600.0
COMMAND_CHARS_MAX = 65_536
HEAD_BYTES = 8_192
TAIL_BYTES = 24_576
STORED_BYTES_MAX = 1_048_576
READ_BYTES_MAX = 67_108_864
ENVELOPE_BYTES = 600
"""What the JSON around the output takes at most."""
MASK_SEARCH_MAX = 20_000
CWD_BYTES_MAX = 4_096
_SCRIPT = 'trap \'pwd -P > "$TREADLE_CWD"\' EXIT\neval "$1"'
_ENDINGS = {
    "timeout": "The command did not finish within {timeout_s:g} s and was ended.",
    "processes": "The command started too many processes and was ended.",
    "memory": "The command used too much memory and was ended.",
    "output": f"The command wrote more than {READ_BYTES_MAX} bytes and was ended.",
}


class Written:
    """What a command has written so far: the first megabyte, the last bytes, and how much there was."""

    def __init__(self) -> None:
        self.bytes = 0
        self.kept = bytearray()
        self._tail = bytearray()

    @property
    def is_too_much(self) -> bool:
        """Tell whether the command is to be ended for what it writes."""
        return self.bytes > READ_BYTES_MAX

    def take(self, piece: bytes) -> bool:
        """Take what was written and tell whether more is wanted."""
        self.bytes += len(piece)
        self.kept += piece[: max(0, STORED_BYTES_MAX - len(self.kept))]
        self._tail = (self._tail + piece)[-TAIL_BYTES:]
        return not self.is_too_much

    def shown(self, room: int, handle: str | None) -> tuple[str, bool]:
        """Return what the model reads within so many bytes of JSON, and whether anything is missing."""
        head, tail = HEAD_BYTES, TAIL_BYTES
        if self.bytes <= HEAD_BYTES + TAIL_BYTES:
            text = _text(bytes(self.kept))
            if len(write_json(text)) <= room:
                return text, False
        while True:
            text = self._cut(head, tail, handle)
            size = len(write_json(text))
            if size <= room or head + tail < 64:
                return text, True
            share = min(0.9, room / size)
            head, tail = int(head * share), int(tail * share)

    def _cut(self, head: int, tail: int, handle: str | None) -> str:
        whole = bytes(self.kept) if self.bytes <= len(self.kept) else bytes(self._tail)
        start, end = _text(bytes(self.kept[:head])), _text(whole[max(len(whole) - tail, 0) :] if tail else b"")
        missing = max(0, self.bytes - head - tail)
        how = f'; output_read with handle "{handle}" and offset {head} shows them' if handle else ""
        return f"{start.rstrip(chr(0xFFFD))}\n[{missing} bytes left out{how}]\n{end.lstrip(chr(0xFFFD))}"


class Bash:
    """The function behind the tool, for one root."""

    def __init__(self, root: Root, sandbox: Sandbox, shelf: Shelf) -> None:
        self._root = root
        self._sandbox = sandbox
        self._shelf = shelf

    async def run(self, context: ToolContext, command: str, cwd: str, timeout_s: float, network: bool) -> Answer:
        """Run one command and answer with what it wrote and its exit code."""
        if network and not self._sandbox.rules.network:
            words = "Commands have no network here. Whoever runs Treadle can allow it: tools.local.network."
            raise ToolError(words, code="network_off")
        folder = self._folder(cwd)
        place = self._sandbox.scratch(session_of(context))
        order = self._sandbox.command(
            [SHELL, "-c", _SCRIPT, "bash", command],
            cwd=folder,
            write=[self._root.real_path],
            place=place,
            timeout_s=timeout_s,
            network=network,
        )
        left = f"{place}/cwd"
        order.env["TREADLE_CWD"] = left
        if order.level > 2:
            order.fixed.extend(self.fixed())
            order.masked.extend(await asyncio.to_thread(self.masked))
        written = Written()
        ended = await self._sandbox.run(order, written.take)
        if ended.ending == "refused":
            raise ToolFailed(f"The sandbox could not be set up: {ended.message}", code="sandbox_failed")
        return await self._answer(context, written, ended, timeout_s, self._moved(left, folder))

    async def _answer(
        self, context: ToolContext, written: Written, ended: Ended, timeout_s: float, moved: str | None
    ) -> Answer:
        handle = None
        if written.bytes > min(HEAD_BYTES + TAIL_BYTES, context.output_bytes_max // 2):
            handle = await self._shelf.put(_text(bytes(written.kept)).encode(), context)
        text, is_cut = written.shown(context.output_bytes_max - ENVELOPE_BYTES, handle)
        body: dict[str, Any] = {"output": text, "exit_code": ended.code}
        if is_cut:
            body["truncated"] = True
            if handle:
                body["next"] = {"handle": handle, "offset": min(HEAD_BYTES, len(written.kept))}
        if moved is not None:
            body["cwd"] = moved
        level = self._sandbox.found.name
        body["sandbox"] = level
        ending = "output" if written.is_too_much else ended.ending
        if ending == "exited":
            summary = f"exit {ended.code}, sandbox {level}"
            return Answer(envelope=Envelope(ok=True, data=msgspec.Raw(write_json(body))), summary=summary)
        words = _ENDINGS[ending].format(timeout_s=timeout_s)
        fault = Fault(code="timeout" if ending == "timeout" else f"{ending}_limit", message=words)
        envelope = Envelope(ok=False, data=msgspec.Raw(write_json(body)), errors=(fault,))
        return Answer(envelope=envelope, summary=f"{words} Sandbox {level}.")

    def _folder(self, cwd: str) -> str:
        opened = self._root.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
        os.close(opened.fd)
        return os.path.normpath(os.path.join(self._root.real_path, opened.name))

    def _moved(self, left: str, began: str) -> str | None:
        """Return where the shell ended, relative to the root, if that is inside and elsewhere than it began."""
        try:
            # The command could have put anything there: a link, or a pipe that nobody writes to.
            fd = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            ended = os.fsdecode(os.read(fd, CWD_BYTES_MAX)).rstrip("\n")
            os.unlink(left)
        except OSError:
            return None
        finally:
            os.close(fd)
        top = self._root.real_path
        if ended == began or not (ended == top or ended.startswith(top.rstrip("/") + "/")):
            return None
        return os.path.relpath(ended, top).encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def fixed(self) -> list[str]:
        """Return what is read-only in the root; the folder around it first, so that it cannot be moved away."""
        top = self._root.real_path
        names = dict.fromkeys("/".join(each[:depth]) for each in FIXED for depth in range(1, len(each) + 1))
        return [path for name in names if os.path.lexists(path := f"{top}/{name}")]

    def masked(self) -> list[str]:
        """Return the files below the root that may hold secrets, as far as a bounded search finds them."""
        found: list[str] = []
        count = 0
        for folder, folders, names in os.walk(self._root.real_path):
            count += len(names) + len(folders)
            found += [os.path.join(folder, name) for name in folders if name.casefold() in MASKED_FOLDERS]
            folders[:] = [name for name in folders if name != ".git" and name.casefold() not in MASKED_FOLDERS]
            found += [os.path.join(folder, name) for name in names if self._hides(folder, name)]
            if count > MASK_SEARCH_MAX:
                break
        return found

    def _hides(self, folder: str, name: str) -> bool:
        if not any(fnmatchcase(name.casefold(), pattern) for pattern in self._root.masked_names):
            return False
        inner = os.path.relpath(os.path.join(folder, name), self._root.real_path)
        return self._root.is_masked(inner, is_folder=False)


def make_bash(root: Root, sandbox: Sandbox, shelf: Shelf) -> Callable[..., Coroutine[Any, Any, Answer]]:
    """Return the function behind the tool, for one root."""
    tool = Bash(root, sandbox, shelf)

    async def bash(
        context: ToolContext,
        command: Annotated[str, msgspec.Meta(min_length=1, max_length=COMMAND_CHARS_MAX)],
        cwd: str = ".",
        timeout_s: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_MAX_S)] = TIMEOUT_S,
        network: bool = False,
    ) -> Answer:
        """Run a shell command in a sandbox. Its processes end with it; nothing stays in the background.

        Args:
            command: What bash shall run; standard input is empty.
            cwd: The folder to run it in, relative to the root. A cd does not last: use the cwd of the result.
            timeout_s: The seconds it may take.
            network: Ask for a network, which there is only where it was allowed.
        """
        if "\0" in command:
            raise ToolError("The command contains a NUL character.", code="invalid_command")
        return await tool.run(context, command, cwd, timeout_s, network)

    return bash


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
