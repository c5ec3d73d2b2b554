"""The `grep` tool: searches file contents, with ripgrep if it can be sandboxed, else with a Python process.

Ripgrep checks a file and opens it by name afterwards, so a link swapped in between would lead it outside; it is used
only in a sandbox that lets it read nothing else. Without one, `grep_worker` opens every file beneath the root.
"""

import functools
import os
import re
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from treadle.core.errors import ToolError, ToolFailed
from treadle.core.json import cut_text, write_json
from treadle.tools.local.directory_walk import printable
from treadle.tools.local.glob_pattern import BadPattern, glob_pattern
from treadle.tools.local.result_limits import (
    DEFAULT_CAPS,
    LocalCaps,
    answer,
    decoded,
    fitting,
    odd_names_words,
    readable,
    replaced_words,
    unread_words,
)
from treadle.tools.local.safe_open import MASKED_FOLDERS, Root
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.sandbox import CommandSandbox
from treadle.tools.sandbox.helper_messages import CommandEnded, CommandOrder, bare_command
from treadle.tools.tool_context import ToolContext

LIMIT_DEFAULT = 100
CONTEXT_MAX = 10
DEADLINE_S = 10.0
RECORDS_MAX = 20_000
COUNTED_MAX = 1_000_000
NAMED_MAX = 5
NOISE_BYTES_MAX = 2_000
BAD_PATTERN_CODE = 2
ENVELOPE_BYTES = 300
"""The most bytes of JSON around the lines."""
_UNREAD = b"rg: ./"
"""The start of ripgrep's message about an unreadable file; the worker writes the same."""
_RECORD = re.compile(rb"^(\d+)([:-])(.*)$", re.DOTALL)
_RG_OPTIONS = (
    "--no-config",
    "--no-require-git",
    "--color=never",
    "--no-heading",
    "--with-filename",
    "--null",
    "--no-follow",
    "--one-file-system",
)

Mode = Literal["content", "files", "count"]


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one search; `path` is relative to the root, with links resolved."""

    pattern: str
    path: str
    include: str
    mode: Mode
    context: int
    ignore_case: bool
    fixed: bool
    limit: int


class GrepRecord(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One matching line or a context line; in the other modes one file, with its count in `line`."""

    path: str
    line: int
    is_hit: bool = True
    text: str = ""
    replaced: int = 0


class Records:
    """Parses the output `path NUL line:text` incrementally; other lines are stored as noise, for error messages.

    All matches are counted, even those not stored: `found` has at most `per_file` of each file.
    """

    def __init__(self, mode: Mode, is_masked: Callable[[str], bool], per_file: int = DEFAULT_CAPS.grep_per_file_max):
        self.found: list[GrepRecord] = []
        self.count = 0
        self.dropped = 0
        self.unread = 0
        self.unread_names: list[str] = []
        self.notes: list[str] = []
        self.noise = bytearray()
        self._mode = mode
        self._is_masked = is_masked
        self._per_file = per_file
        self._hits: Counter[str] = Counter()
        self._rest = b""

    @property
    def is_full(self) -> bool:
        """Return whether the limit of matches is reached and the search must end."""
        return self.count >= COUNTED_MAX

    def take(self, piece: bytes) -> bool:
        """Parse a piece of output; return whether to continue."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._parse_line(line)
        return not self.is_full

    def _parse_line(self, line: bytes) -> None:
        name, nul, rest = line.partition(b"\0")
        if not nul:
            self._record_message(line)
        elif not name:
            self.notes.append(rest.decode("utf-8", "replace"))
        elif not self._is_masked(path := os.fsdecode(name).removeprefix("./")):
            self._record_match(path, rest)

    def _record_message(self, line: bytes) -> None:
        """Record a line that is not a match: an unreadable file, or an error of the search."""
        if line.startswith(_UNREAD):
            self.unread += 1
            if len(self.unread_names) < NAMED_MAX:
                name = os.fsdecode(line.removeprefix(_UNREAD)).rpartition(": ")[0]
                self.unread_names.append(printable(name))
            return
        self.noise += (line + b"\n")[: max(0, NOISE_BYTES_MAX - len(self.noise))]

    def _record_match(self, path: str, rest: bytes) -> None:
        if self._mode != "content":
            hits = int(rest) if rest.isdigit() else 0
            self.count += hits
            self._store(GrepRecord(path=path, line=hits))
        elif match := _RECORD.match(rest):
            is_hit = match[2] == b":"
            self.count += is_hit
            self._hits[path] += is_hit
            if self._hits[path] > self._per_file:
                self.dropped += is_hit
                return
            text, replaced = readable(decoded(match[3].rstrip(b"\r")))
            self._store(GrepRecord(path=path, line=int(match[1]), is_hit=is_hit, text=text, replaced=replaced))

    def _store(self, record: GrepRecord) -> None:
        if len(self.found) < RECORDS_MAX:
            self.found.append(record)
        else:
            self.dropped += record.is_hit


class Grep:
    """Implements the tool for one root."""

    def __init__(self, root: Root, sandbox: CommandSandbox, ripgrep: str | None, caps: LocalCaps) -> None:
        self._caps = caps
        self._root = root
        self._sandbox = sandbox
        self._ripgrep = ripgrep

    async def run(self, search: Search, bytes_max: int) -> ToolAnswer:
        """Search and return the matches, sorted by path."""
        uses_ripgrep = self._ripgrep is not None and self._sandbox.found.level > 0
        order = self._by_ripgrep(search) if uses_ripgrep else self._by_worker(search)
        records = Records(search.mode, self._is_masked, self._caps.grep_per_file_max)
        ended = await self._sandbox.run(order, records.take)
        _check(ended, records)
        return _answer(search, records, ended, bytes_max, self._caps)

    def _is_masked(self, path: str) -> bool:
        return self._root.is_masked(path, is_folder=False)

    def _by_ripgrep(self, search: Search) -> CommandOrder:
        program = self._ripgrep or ""
        options = [*_RG_OPTIONS, *_rg_mode(search, self._caps)]
        options += ["--ignore-case"] * search.ignore_case + ["--fixed-strings"] * search.fixed
        options += [f"--glob={search.include}"] if search.include != "*" else []
        if not self._root.allow:
            options += [f"--iglob=!{name}" for name in (*self._root.masked_names, *MASKED_FOLDERS)]
        target = f"./{search.path}" if search.path != "." else "./"
        argv = [program, *options, f"--regexp={search.pattern}", "--", target]
        read = [self._root.real_path, program]
        return self._sandbox.search(argv, cwd=self._root.real_path, read=read, timeout_s=DEADLINE_S)

    def _by_worker(self, search: Search) -> CommandOrder:
        wanted = {
            **msgspec.structs.asdict(search),
            "root": self._root.real_path,
            "allow": self._root.allow,
            "hidden": self._root.hidden,
            "columns": self._caps.grep_line_chars_max,
        }
        packages = str(Path(msgspec.__file__).parents[1])
        argv = [*bare_command("treadle.tools.local.grep_worker", extra=(packages,)), write_json(wanted).decode()]
        source = str(Path(__file__).parents[2])
        read = [self._root.real_path, source, packages, sys.prefix, sys.base_prefix]
        return self._sandbox.search(argv, cwd=self._root.real_path, read=read, timeout_s=DEADLINE_S)


@functools.cache
def find_ripgrep() -> str | None:
    """Return the path of ripgrep: beside this Python, where its package installs it, or on PATH."""
    folders = f"{sysconfig.get_path('scripts')}:{os.environ.get('PATH', '')}"
    found = shutil.which("rg", path=folders)
    return None if found is None else os.path.realpath(found)


def make_grep(
    root: Root, sandbox: CommandSandbox, ripgrep: str | None, caps: LocalCaps = DEFAULT_CAPS
) -> Callable[..., Coroutine[Any, Any, ToolAnswer]]:
    """Return the tool's function for one root."""
    tool = Grep(root, sandbox, ripgrep, caps)

    async def grep(  # noqa: PLR0913 - these are the options that models know
        call: ToolContext,
        pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)],
        path: str = ".",
        include: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)] = "*",
        mode: Mode = "content",
        context: Annotated[int, msgspec.Meta(ge=0, le=CONTEXT_MAX)] = 0,
        ignore_case: bool = False,
        fixed: bool = False,
        limit: Annotated[int, msgspec.Meta(ge=1, le=caps.grep_matches_max)] = min(LIMIT_DEFAULT, caps.grep_matches_max),
    ) -> ToolAnswer:
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


def _rg_mode(search: Search, caps: LocalCaps) -> list[str]:
    if search.mode != "content":
        return ["--count"]
    columns = [f"--max-columns={caps.grep_line_chars_max}", "--max-columns-preview"]
    return ["--line-number", f"--context={search.context}", *columns]


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


def _check(ended: CommandEnded, records: Records) -> None:
    if ended.ending == "refused":
        raise ToolFailed(f"The search could not be confined: {ended.message}", code="sandbox_failed")
    # Ripgrep has one exit code for an invalid pattern and an unreadable file; its output tells them apart.
    is_failed = ended.ending == "exited" and ended.code >= BAD_PATTERN_CODE
    if is_failed and not (records.found or records.unread):
        words = " ".join(records.noise.decode("utf-8", "replace").split()).removeprefix("rg: ")
        raise ToolError(f"Invalid pattern: {words or 'the search failed'}", code="invalid_pattern")


def _answer(search: Search, records: Records, ended: CommandEnded, bytes_max: int, caps: LocalCaps) -> ToolAnswer:
    found = sorted(records.found)
    wanted = list(_first_hits(found, search.limit))
    lines = fitting((_line(search.mode, record, caps) for record in wanted), bytes_max - ENVELOPE_BYTES)
    shown = wanted[: len(lines)]
    count = len(found) if search.mode == "files" else records.count
    body: dict[str, Any] = {"output": "\n".join(lines), "count": count}
    is_early = ended.ending == "timeout" or records.is_full
    if is_early or records.dropped or len(shown) < len(found):
        body["truncated"] = True
    hits = sum(record.is_hit for record in found)
    if is_early:
        body["code"] = "stopped_early"
    elif len(shown) == len(wanted) < len(found) and search.limit < min(hits, caps.grep_matches_max):
        body["next"] = {"limit": min(hits, caps.grep_matches_max)}
    noun = ("file", "files") if search.mode == "files" else ("match", "matches")
    warnings = (
        *records.notes,
        *odd_names_words({record.path for record in shown}),
        *replaced_words(sum(record.replaced for record in shown)),
        *unread_words(records.unread, "file", records.unread_names),
    )
    return answer(body, f"{count} {noun[count != 1]} found", warnings=warnings)


def _first_hits(found: list[GrepRecord], limit: int) -> Iterator[GrepRecord]:
    """Yield the records up to `limit` matches, with their context lines."""
    hits = 0
    for record in found:
        if record.is_hit and hits == limit:
            return
        hits += record.is_hit
        yield record


def _line(mode: Mode, record: GrepRecord, caps: LocalCaps) -> str:
    path = printable(record.path)
    if mode == "files":
        return path
    if mode == "count":
        return f"{path}: {record.line}"
    mark = ":" if record.is_hit else "-"
    return f"{path}{mark}{record.line}{mark} {cut_text(record.text, 4 * caps.grep_line_chars_max)}"
