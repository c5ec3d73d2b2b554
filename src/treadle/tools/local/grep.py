"""`grep`: search the contents of files, by ripgrep where it can be confined, else by a Python process.

Ripgrep opens files by name after it has looked at them, so a link swapped in between would lead it out; it is used only
in a sandbox that lets it read nothing else. Without one our own worker opens every file beneath the root.
"""

import functools
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from treadle.canon.errors import ToolError, ToolFailed
from treadle.canon.json import cut_text, write_json
from treadle.canon.tools import Envelope
from treadle.tools.context import ToolContext
from treadle.tools.envelope import Answer
from treadle.tools.local.opener import MASKED_FOLDERS, Root
from treadle.tools.local.pattern import BadPattern, glob_pattern
from treadle.tools.local.walk import printable
from treadle.tools.sandbox import Sandbox
from treadle.tools.sandbox.order import Ended, Order, bare_command

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
PER_FILE_MAX = 20
COLUMNS_MAX = 300
CONTEXT_MAX = 10
DEADLINE_S = 10.0
RECORDS_MAX = 20_000
NOISE_BYTES_MAX = 2_000
BAD_PATTERN_CODE = 2
ENVELOPE_BYTES = 300
"""What the JSON around the lines takes at most."""
_RECORD = re.compile(rb"^(\d+)([:-])(.*)$", re.DOTALL)
_RG_OPTIONS = (
    "--no-config",
    "--no-require-git",
    "--no-messages",
    "--color=never",
    "--no-heading",
    "--with-filename",
    "--null",
    "--no-follow",
    "--one-file-system",
)

Mode = Literal["content", "files", "count"]


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asks for; `path` is relative to the root, links followed."""

    pattern: str
    path: str
    include: str
    mode: Mode
    context: int
    ignore_case: bool
    fixed: bool
    limit: int


class Record(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One line that was found, or one of its neighbours; in the other modes one file, `line` being its count."""

    path: str
    line: int
    is_hit: bool = True
    text: str = ""


class Records:
    """Reads `path NUL line:text` as it comes; what is in another form is kept as noise, for the errors."""

    def __init__(self, mode: Mode, is_masked: Callable[[str], bool]) -> None:
        self.found: list[Record] = []
        self.noise = bytearray()
        self._mode = mode
        self._is_masked = is_masked
        self._rest = b""

    def take(self, piece: bytes) -> bool:
        """Take a piece and tell whether more is wanted."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._read(line)
        return len(self.found) < RECORDS_MAX

    def _read(self, line: bytes) -> None:
        name, nul, rest = line.partition(b"\0")
        if not nul:
            self.noise += (line + b"\n")[: max(0, NOISE_BYTES_MAX - len(self.noise))]
            return
        path = os.fsdecode(name).removeprefix("./")
        if self._is_masked(path):
            return
        if self._mode != "content":
            self.found.append(Record(path=path, line=int(rest) if rest.isdigit() else 0))
        elif match := _RECORD.match(rest):
            text = match[3].rstrip(b"\r").decode("utf-8", "replace")
            self.found.append(Record(path=path, line=int(match[1]), is_hit=match[2] == b":", text=text))


class Grep:
    """The function behind the tool, for one root."""

    def __init__(self, root: Root, sandbox: Sandbox, ripgrep: str | None) -> None:
        self._root = root
        self._sandbox = sandbox
        self._ripgrep = ripgrep

    async def run(self, search: Search, bytes_max: int) -> Answer:
        """Search and answer with what was found, files in order of their paths."""
        uses_ripgrep = self._ripgrep is not None and self._sandbox.found.level > 0
        order = self._by_ripgrep(search) if uses_ripgrep else self._by_worker(search)
        records = Records(search.mode, lambda path: self._root.is_masked(path, is_folder=False))
        ended = await self._sandbox.run(order, records.take)
        _check(ended, records)
        return _answer(search, sorted(records.found), ended, bytes_max, len(records.found) >= RECORDS_MAX)

    def _by_ripgrep(self, search: Search) -> Order:
        program = self._ripgrep or ""
        options = [*_RG_OPTIONS, *_rg_mode(search)]
        options += ["--ignore-case"] * search.ignore_case + ["--fixed-strings"] * search.fixed
        options += [f"--glob={search.include}"] if search.include != "*" else []
        if not self._root.allow:
            options += [f"--iglob=!{name}" for name in (*self._root.masked_names, *MASKED_FOLDERS)]
        target = f"./{search.path}" if search.path != "." else "./"
        argv = [program, *options, f"--regexp={search.pattern}", "--", target]
        read = [self._root.real_path, program]
        return self._sandbox.search(argv, cwd=self._root.real_path, read=read, timeout_s=DEADLINE_S)

    def _by_worker(self, search: Search) -> Order:
        wanted = {
            **msgspec.structs.asdict(search),
            "root": self._root.real_path,
            "allow": self._root.allow,
            "hidden": self._root.hidden,
            "per_file": PER_FILE_MAX,
            "columns": COLUMNS_MAX,
        }
        packages = str(Path(msgspec.__file__).parents[1])
        argv = [*bare_command("treadle.tools.local.worker", extra=(packages,)), write_json(wanted).decode()]
        source = str(Path(__file__).parents[2])
        read = [self._root.real_path, source, packages, sys.prefix, sys.base_prefix]
        return self._sandbox.search(argv, cwd=self._root.real_path, read=read, timeout_s=DEADLINE_S)


@functools.cache
def find_ripgrep() -> str | None:
    """Return where ripgrep is: beside this Python, where its package puts it, or on PATH."""
    folders = f"{sysconfig.get_path('scripts')}:{os.environ.get('PATH', '')}"
    found = shutil.which("rg", path=folders)
    return None if found is None else os.path.realpath(found)


def make_grep(root: Root, sandbox: Sandbox, ripgrep: str | None) -> Callable[..., Coroutine[Any, Any, Answer]]:
    """Return the function behind the tool, for one root."""
    tool = Grep(root, sandbox, ripgrep)

    async def grep(  # noqa: PLR0913 - these are the options that models know
        call: ToolContext,
        pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)],
        path: str = ".",
        include: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] = "*",
        mode: Mode = "content",
        context: Annotated[int, msgspec.Meta(ge=0, le=CONTEXT_MAX)] = 0,
        ignore_case: bool = False,
        fixed: bool = False,
        limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    ) -> Answer:
        """Search file contents by regular expression. Files that .gitignore leaves out are not searched.

        Args:
            pattern: The regular expression, without look-around and back-references.
            path: The file or directory to search, relative to the root.
            include: Only files whose names look like this, such as *.py or *.{js,ts}.
            mode: The matching lines (content), the names of their files (files), or how many in each (count).
            context: How many lines to show around each match.
            ignore_case: Treat upper and lower case alike.
            fixed: Take the pattern as plain text.
            limit: How many matches or files to return at most.
        """
        search = Search(
            pattern=_checked(pattern),
            path=_real_name(root, path),
            include=_included(include),
            mode=mode,
            context=context,
            ignore_case=ignore_case,
            fixed=fixed,
            limit=limit,
        )
        return await tool.run(search, call.output_bytes_max)

    return grep


def _rg_mode(search: Search) -> list[str]:
    if search.mode != "content":
        return ["--count"]
    columns = [f"--max-columns={COLUMNS_MAX}", "--max-columns-preview"]
    return ["--line-number", f"--max-count={PER_FILE_MAX}", f"--context={search.context}", *columns]


def _checked(pattern: str) -> str:
    if "\0" in pattern or "\n" in pattern:
        raise ToolError(
            "The pattern contains a NUL or a line end; lines are searched one by one.", code="invalid_pattern"
        )
    return pattern


def _included(include: str) -> str:
    try:
        glob_pattern(include)
    except BadPattern as error:
        raise ToolError(f"Invalid include: {error}", code="invalid_pattern") from None
    return include


def _real_name(root: Root, path: str) -> str:
    opened = root.open(path)
    os.close(opened.fd)
    return opened.name


def _check(ended: Ended, records: Records) -> None:
    if ended.ending == "refused":
        raise ToolFailed(f"The search could not be confined: {ended.message}", code="sandbox_failed")
    if ended.ending == "exited" and ended.code >= BAD_PATTERN_CODE and not records.found:
        words = " ".join(records.noise.decode("utf-8", "replace").split()).removeprefix("rg: ")
        raise ToolError(f"Invalid pattern: {words or 'the search failed'}", code="invalid_pattern")


def _answer(search: Search, found: list[Record], ended: Ended, bytes_max: int, is_full: bool) -> Answer:
    shown: list[str] = []
    room, hits = bytes_max - ENVELOPE_BYTES, 0
    is_cut = False
    for record in found:
        line = _line(search.mode, record)
        room -= len(write_json(line))
        if room < 0 or (record.is_hit and hits == search.limit):
            is_cut = True
            break
        hits += record.is_hit
        shown.append(line)
    body: dict[str, Any] = {"output": "\n".join(shown), "count": hits}
    total = sum(record.is_hit for record in found)
    if is_cut or is_full or ended.ending == "timeout":
        body["truncated"] = True
    if ended.ending == "timeout":
        body["code"] = "stopped_early"
    elif is_cut and room >= 0 and search.limit < min(total, LIMIT_MAX):
        body["next"] = {"limit": min(total, LIMIT_MAX)}
    noun = ("match", "matches") if search.mode == "content" else ("file", "files")
    summary = f"{hits} {noun[hits != 1]} found"
    return Answer(envelope=Envelope(ok=True, data=msgspec.Raw(write_json(body))), summary=summary)


def _line(mode: Mode, record: Record) -> str:
    path = printable(record.path)
    if mode == "files":
        return path
    if mode == "count":
        return f"{path}: {record.line}"
    mark = ":" if record.is_hit else "-"
    return f"{path}{mark}{record.line}{mark} {cut_text(record.text, 4 * COLUMNS_MAX)}"
