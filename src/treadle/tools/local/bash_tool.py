"""The `bash` tool: runs one command in the sandbox, ends it with all its processes, and returns its output.

Long output is shown as head and tail. Everything is limited: time, the output shown, the output stored, and the output
read before the command is ended.
"""

import asyncio
import fnmatch
import os
import re
import shlex
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from treadle.core.errors import ToolError, ToolFailed
from treadle.core.json import cut_json_text, write_json
from treadle.core.tool_definitions import OUTSIDE_ROOT, Fault
from treadle.tools.local.file_write import session_of
from treadle.tools.local.output_read import OutputStore, end_on_character, keepable
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps, answer, decoded, readable, replaced_words
from treadle.tools.local.safe_open import MASKED_FOLDERS, Root
from treadle.tools.result_rendering import ToolAnswer, write_text
from treadle.tools.sandbox import CommandSandbox
from treadle.tools.sandbox.helper_client import CWD_NAME
from treadle.tools.sandbox.helper_messages import CommandEnded, CommandOrder
from treadle.tools.sandbox.protected_paths import GIT, is_allowed
from treadle.tools.tool_context import ToolContext

SHELL = "/bin/bash"
TIMEOUT_S = 120.0
TIMEOUT_MAX_S = 600.0
COMMAND_CHARS_MAX = 65_536
SHOWN_BYTES_MIN = 64
"""With less room than this only the beginning is shown, not a head and a tail with a note between them."""
READ_BYTES_MAX = 67_108_864
MASK_SEARCH_MAX = 500_000
"""How many directory entries are searched for secrets; folders not searched are hidden from read-only commands."""
CWD_BYTES_MAX = 4_096
PROTECTED_MAX = 20
READ_ONLY_WORDS = (
    "The git repository is read-only for commands. A person can allow writing it: call again with git=true."
)
GIT_WRITERS = frozenset(["add", "am", "cherry-pick", "commit", "merge", "mv", "rebase", "revert", "rm"])
"""Subcommands of git that always write the repository."""
_CONTROL = frozenset(";&|()")
_SCRIPT = 'trap \'pwd -P > "$TREADLE_CWD"\' EXIT\neval "$1"'
READ_ONLY_NOTE = (
    "This ran read-only: it could not write, change or send anything. If it has to, call bash again with "
    '"read_only": false; a person is asked then.'
)
NETWORK_OFF = "Commands have no network here. Whoever runs Treadle can allow it: tools.local.network."
NETWORK_ASKED = (
    'This ran without a network. If it needs one, call bash again with "network": true; a person is asked then.'
)
_NO_NETWORK = re.compile(
    rb"could not resolve|name resolution|name or service not known|network is unreachable|getaddrinfo|enotfound"
    rb"|eai_again|socket: operation not permitted",
    re.IGNORECASE,
)
"""Error messages of programs that have no network."""
SEARCHED_BYTES = 65_536
"""How much of the output's end is searched for these messages."""
_REFUSED = re.compile(rb"Read-only file system|Permission denied|Operation not permitted")
_ENDINGS = {
    "timeout": "The command did not finish within {timeout_s:g} s and was ended.",
    "processes": "The command started too many processes and was ended.",
    "memory": "The command used too much memory and was ended.",
    "output": f"The command wrote more than {READ_BYTES_MAX} bytes and was ended.",
}


class ShownOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The shown text, its count of replaced bytes, and the offset of the first byte left out, if any."""

    text: str
    replaced: int
    missing_from: int | None = None


class CommandOutput:
    """The output of a command so far: its stored beginning, its last bytes, and its size."""

    def __init__(self, caps: LocalCaps = DEFAULT_CAPS) -> None:
        self.bytes = 0
        self.stored = bytearray()
        self._head_max = caps.bash_bytes_max // 4
        self._tail_max = caps.bash_bytes_max - self._head_max
        self._stored_max = caps.kept_bytes_max
        self._tail = bytearray()

    @property
    def is_too_much(self) -> bool:
        """Return whether the output exceeds the limit at which the command is ended."""
        return self.bytes > READ_BYTES_MAX

    @property
    def is_whole(self) -> bool:
        """Return whether all of the output is stored."""
        return self.bytes <= len(self.stored)

    @property
    def end(self) -> bytes:
        """Return the end of the stored output."""
        return bytes(self.stored[-SEARCHED_BYTES:])

    def take(self, piece: bytes) -> bool:
        """Add a piece of output; return whether to continue reading."""
        self.bytes += len(piece)
        self.stored += piece[: max(0, self._stored_max - len(self.stored))]
        self._tail = (self._tail + piece)[-self._tail_max :]
        return not self.is_too_much

    def stored_text(self) -> bytes:
        """Return the stored output as valid UTF-8; the offsets given to the model refer to this text."""
        text = readable(decoded(bytes(self.stored)))[0].encode()
        return keepable(text, len(text) + self.bytes - len(self.stored))

    def shown(self, room: int, handle: str | None) -> ShownOutput:
        """Return as much of the output as fits in `room` bytes of JSON."""
        start = _marked(self.stored)
        end = start if self.is_whole else _marked(self._tail)
        if self.is_whole and len(start) <= self._head_max + self._tail_max:
            text, count = _readable(start)
            if len(write_json(text)) - 2 <= room:
                return ShownOutput(text=text, replaced=count)
        head, tail = self._head_max, self._tail_max
        # JSON escapes make the size unpredictable, so shrink until it fits.
        while head + tail >= SHOWN_BYTES_MIN:
            shown = self._cut(start, end, head, tail, handle)
            size = len(write_json(shown.text)) - 2
            if size <= room:
                return shown
            share = min(0.9, max(0.1, room / size))
            head, tail = int(head * share), int(tail * share)
        text, count = _readable(end_on_character(start[: max(0, room)]))
        text = cut_json_text(text, room)
        return ShownOutput(text=text, replaced=count, missing_from=len(text.encode()))

    def _cut(self, start: bytes, end: bytes, head: int, tail: int, handle: str | None) -> ShownOutput:
        first, last = end_on_character(start[:head]), _start_on_character(end[max(len(end) - tail, 0) :])
        missing = (len(start) if self.is_whole else self.bytes) - len(first) - len(last)
        how = f'; output_read with handle "{handle}" and offset {len(first)} shows them' if handle else ""
        if handle and not self.is_whole:
            how += f" as far as the first {len(self.stored)} bytes go"
        (opening, replaced), (closing, more) = _readable(first), _readable(last)
        text = f"{opening}\n[{missing} bytes left out{how}]\n{closing}"
        return ShownOutput(text=text, replaced=replaced + more, missing_from=len(first))


_LARGEST = ShownOutput(text="", replaced=READ_BYTES_MAX, missing_from=READ_BYTES_MAX)
"""A placeholder of the largest size, to measure the JSON around the output."""


class Bash:
    """Implements the tool for one root."""

    def __init__(self, root: Root, sandbox: CommandSandbox, shelf: OutputStore, caps: LocalCaps) -> None:
        self._caps = caps
        self._root = root
        self._sandbox = sandbox
        self._shelf = shelf
        # Combined into one expression: it is matched against hundreds of thousands of names for each command.
        self._secret = re.compile("|".join(fnmatch.translate(pattern) for pattern in root.masked_names))

    async def read(self, context: ToolContext, command: str, cwd: str, timeout_s: float) -> ToolAnswer:
        """Run one command read-only and return its output and exit code."""
        folder = self._folder(cwd)
        async with self._sandbox.private() as place:
            hidden, unseen = await asyncio.to_thread(self.masked)
            order = self._sandbox.reading(
                _argv(command),
                cwd=folder,
                top=self._root.real_path,
                hidden=hidden,
                unseen=unseen,
                place=place,
                timeout_s=timeout_s,
            )
            return await self._execute(context, order, place, folder)

    async def run(  # noqa: PLR0913 - the arguments of the tool
        self,
        context: ToolContext,
        command: str,
        cwd: str,
        timeout_s: float,
        *,
        network: bool,
        git: bool,
        protected: Sequence[str],
    ) -> ToolAnswer:
        """Run one command and return its output and exit code."""
        if network and not self._sandbox.rules.network:
            raise ToolError(NETWORK_OFF, code="network_off")
        folder = self._folder(cwd)
        place = self._sandbox.scratch(session_of(context))
        order = self._sandbox.command(
            _argv(command),
            cwd=folder,
            write=[self._root.real_path],
            place=place,
            timeout_s=timeout_s,
            network=network,
            git=git,
            allowed=[self._inside(each) for each in (*self._root.writable, *protected)],
        )
        if order.level > 2:
            order.masked.extend((await asyncio.to_thread(self.masked))[0])
        return await self._execute(context, order, place, folder)

    async def _execute(self, context: ToolContext, order: CommandOrder, place: str, folder: str) -> ToolAnswer:
        """Execute a command order and build the result."""
        cwd_file = f"{place}/{CWD_NAME}"
        order.env["TREADLE_CWD"] = cwd_file
        written = CommandOutput(self._caps)
        ended = await self._sandbox.run(order, written.take)
        if ended.ending == "refused":
            raise ToolFailed(f"The sandbox could not be set up: {ended.message}", code="sandbox_failed")
        return await self._answer(context, written, ended, order, self._moved(cwd_file, folder))

    async def _answer(
        self, context: ToolContext, written: CommandOutput, ended: CommandEnded, order: CommandOrder, moved: str | None
    ) -> ToolAnswer:
        def build(shown: ShownOutput, handle: str | None) -> ToolAnswer:
            return self._build(written, ended, order, moved, shown, handle)

        def fit(handle: str | None) -> ToolAnswer:
            around = write_text(build(_LARGEST, handle), "s3")
            return build(written.shown(context.output_bytes_max - len(around.encode()), handle), handle)

        first = fit(None)
        if not first.is_cut:
            return first
        handle = await self._shelf.put(written.stored_text(), context)
        return first if handle is None else fit(handle)

    def _build(
        self,
        written: CommandOutput,
        ended: CommandEnded,
        order: CommandOrder,
        moved: str | None,
        shown: ShownOutput,
        handle: str | None,
    ) -> ToolAnswer:
        """Build the result with this much of the output."""
        body: dict[str, Any] = {"output": shown.text, "exit_code": ended.code}
        if shown.missing_from is not None:
            body["truncated"] = True
            if handle:
                body["next"] = {"handle": handle, "offset": shown.missing_from}
        if moved is not None:
            body["cwd"] = moved
        level = self._sandbox.found.name
        body["sandbox"] = level
        warnings = (*replaced_words(shown.replaced), *ended.undone)
        if order.read_only:
            body["read_only"] = True
            level += ", read-only"
            warnings = (*warnings, READ_ONLY_NOTE) if _REFUSED.search(written.end) else warnings
        else:
            warnings = (*warnings, *self._advice(written, ended))
        if ended.code != 0 and not order.network and _NO_NETWORK.search(written.end):
            warnings = (*warnings, NETWORK_ASKED if self._sandbox.rules.network else NETWORK_OFF)
        ending = "output" if written.is_too_much else ended.ending
        if ending == "exited":
            return answer(body, f"exit {ended.code}, sandbox {level}", warnings=warnings)
        words = _ENDINGS[ending].format(timeout_s=order.timeout_s)
        fault = Fault(code="timeout" if ending == "timeout" else f"{ending}_limit", message=words)
        return answer(body, f"{words} Sandbox {level}.", warnings=warnings, fault=fault)

    def _advice(self, written: CommandOutput, ended: CommandEnded) -> tuple[str, ...]:
        """Return the hint for a command that failed to write a read-only repository."""
        is_refused = ended.code != 0 and b"Read-only file system" in written.stored and b".git" in written.stored
        return (READ_ONLY_WORDS,) if is_refused else ()

    def _inside(self, path: str) -> str:
        """Return the absolute form of a protected path. Raises: ToolError, if it is outside the root."""
        place = os.path.normpath(os.path.join(self._root.real_path, path))
        if not place.startswith(self._root.real_path.rstrip("/") + "/"):
            raise ToolError(f"Outside the root: {path}", code=OUTSIDE_ROOT)
        return place

    def _folder(self, cwd: str) -> str:
        opened = self._root.open(cwd, os.O_RDONLY | os.O_DIRECTORY)
        os.close(opened.fd)
        return os.path.normpath(os.path.join(self._root.real_path, opened.name))

    def _moved(self, cwd_file: str, started_in: str) -> str | None:
        """Return the shell's last working folder relative to the root, if it changed and is inside the root."""
        try:
            # The command controls this path: it may be a link, or a pipe that would block.
            fd = os.open(cwd_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            ended = os.fsdecode(os.read(fd, CWD_BYTES_MAX)).rstrip("\n")
            os.unlink(cwd_file)
        except OSError:
            return None
        finally:
            os.close(fd)
        top = self._root.real_path
        if ended == started_in or not (ended == top or ended.startswith(top.rstrip("/") + "/")):
            return None
        return os.path.relpath(ended, top).encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def masked(self) -> tuple[list[str], list[str]]:
        """Return the paths below the root that may hold secrets, and the folders not searched for them.

        The search is bounded and breadth-first: secrets seldom lie deep.
        """
        found: list[str] = []
        unsearched: list[str] = []
        waiting = deque([self._root.real_path])
        count = 0
        while waiting and count <= MASK_SEARCH_MAX:
            folder = waiting.popleft()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        count += 1
                        self._sort(entry, folder, found, waiting)
            except OSError:
                unsearched.append(folder)
        return found, [*unsearched, *waiting]

    def _sort(self, entry: os.DirEntry[str], folder: str, found: list[str], waiting: deque[str]) -> None:
        if not entry.is_dir(follow_symlinks=False):
            if self._hides(folder, entry.name):
                found.append(entry.path)
        elif entry.name.casefold() in MASKED_FOLDERS:
            found.append(entry.path)
        elif entry.name != ".git":
            waiting.append(entry.path)

    def _hides(self, folder: str, name: str) -> bool:
        if self._secret.match(name.casefold()) is None:
            return False
        inner = os.path.relpath(os.path.join(folder, name), self._root.real_path)
        return self._root.is_masked(inner, is_folder=False)


def make_bash(
    root: Root, sandbox: CommandSandbox, shelf: OutputStore, caps: LocalCaps = DEFAULT_CAPS
) -> Callable[..., Coroutine[Any, Any, ToolAnswer]]:
    """Return the tool's function for one root."""
    tool = Bash(root, sandbox, shelf, caps)

    async def bash(  # noqa: PLR0913 - the arguments of the tool
        context: ToolContext,
        command: Annotated[str, msgspec.Meta(min_length=1, max_length=COMMAND_CHARS_MAX)],
        cwd: str = ".",
        timeout_s: Annotated[float, msgspec.Meta(gt=0, le=TIMEOUT_MAX_S)] = TIMEOUT_S,
        network: bool = False,
        read_only: bool | None = None,
        git: bool = False,
        protected: Annotated[list[str], msgspec.Meta(max_length=PROTECTED_MAX)] | None = None,
    ) -> ToolAnswer:
        """Run a shell command in a sandbox. Its processes end with it; nothing stays in the background.

        Args:
            command: What bash shall run; standard input is empty.
            cwd: The folder to run it in, relative to the root. A cd does not last: use the cwd of the result.
            timeout_s: The seconds it may take.
            network: Ask for a network, which there is only where it was allowed.
            read_only: True runs it without approval where it can write nothing and has no network; false says that it
                must write. Left out, a command that usually only reads is run read-only.
            git: Ask a person to let it write the git repository (add, commit, checkout, stash, tag); hooks are off.
            protected: Ask a person to let it write these protected paths.
        """
        if "\0" in command:
            raise ToolError("The command contains a NUL character.", code="invalid_command")
        if read_only:
            if network:
                raise ToolError("A command that runs read-only has no network.", code="network_off")
            return await tool.read(context, command, cwd, timeout_s)
        return await tool.run(context, command, cwd, timeout_s, network=network, git=git, protected=protected or ())

    return bash


def git_refusal(root: Root, sandbox: CommandSandbox, arguments: Mapping[str, Any]) -> str:
    """Return why a command would fail even if it were approved: it writes a repository without asking to."""
    command, cwd = arguments.get("command"), arguments.get("cwd") or "."
    if not isinstance(command, str) or not isinstance(cwd, str) or sandbox.found.level == 0:
        return ""
    if arguments.get("git") or arguments.get("read_only") or not _writes_git(command):
        return ""
    return "" if is_allowed(os.path.normpath(os.path.join(cwd, GIT)), root.writable) else READ_ONLY_WORDS


def _writes_git(command: str) -> bool:
    """Return whether a simple command of the line is a git write; False for lines that are hard to parse."""
    if "git" not in command or "<<" in command or "\n" in command:
        return False
    lexer = shlex.shlex(command, posix=True, punctuation_chars="".join(_CONTROL))
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = [";", *lexer]
    except ValueError:
        return False
    simple = zip(words, words[1:], words[2:], strict=False)
    return any(set(a) <= _CONTROL and b == "git" and c in GIT_WRITERS for a, b, c in simple)


def _argv(command: str) -> list[str]:
    return [SHELL, "-c", _SCRIPT, "bash", command]


def _marked(data: bytes | bytearray) -> bytes:
    """Return the data with each undecodable byte sequence marked by three bytes, the size of U+FFFD shown for it."""
    return decoded(bytes(data)).encode("utf-8", "surrogatepass")


def _readable(marked: bytes) -> tuple[str, int]:
    return readable(marked.decode("utf-8", "surrogatepass"))


def _start_on_character(data: bytes) -> bytes:
    at = 0
    while at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return data[at:]
