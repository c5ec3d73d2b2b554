"""`treadle export`: print runs as JSON Lines, exactly as stored, or one run as a scenario."""

import argparse
import os
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.cli.progress_bar import show_progress
from treadle.core.errors import RequestError
from treadle.terminal.rendering.sanitize import clean, escape_json

if TYPE_CHECKING:
    from treadle.journal.journal_interface import Store

EPILOG = """\
A line for each run, then one for each of its entries with its hash. `treadle audit verify --file` checks such a file
on any machine. `last` is the newest run.

examples:
  treadle export last
  treadle export --session trip -o trip.jsonl
  treadle export --all --since 7d -o week.jsonl
  treadle export last --scenario my_scenarios/weather.toml"""


class Sink(Protocol):
    """The destination of an export."""

    def write(self, data: bytes, /) -> object:
        """Write a text."""
        ...

    def writelines(self, lines: Iterable[bytes], /) -> None:
        """Write lines that bring their own ends."""
        ...


class _Screen:
    """A terminal: control characters are escaped in JSON lines, and shown as symbols in other text."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, data: bytes, /) -> None:
        self._out.write(clean(data.decode("utf-8", "replace")).encode())

    def writelines(self, lines: Iterable[bytes], /) -> None:
        self._out.writelines(escape_json(line.decode("utf-8", "replace")).encode() for line in lines)


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs or responses, or `last`")
    parser.add_argument("--session", metavar="NAME", help="all runs of a session")
    parser.add_argument("--since", metavar="WHEN", help="only runs since a day, a time or an age such as 7d")
    parser.add_argument("--all", action="store_true", help="every run")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write here instead of standard output")
    parser.add_argument("--scenario", type=Path, metavar="FILE", help="write the run as a scenario for treadle eval")
    command.add_store_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Export the named runs."""
    if args.scenario is not None:
        from treadle.cli.commands.cassette_command import export_scenario

        if len(args.runs) != 1:
            raise RequestError("a scenario is made of one run", param="runs", hint="treadle export RUN --scenario FILE")
        return opened.with_store(args, lambda store: export_scenario(store, args.runs[0], args.scenario))
    if not (args.runs or args.session or args.since or args.all):
        raise RequestError("which runs?", param="runs", hint="name some, or --session NAME, --since WHEN, --all")
    if args.runs and (args.session or args.all):
        raise RequestError("runs are named one by one or all at once, not both", param="runs")
    since = None if args.since is None else opened.read_since(args.since, time.time())
    return opened.with_store(args, lambda store: _export(store, args, since))


async def _export(store: "Store", args: argparse.Namespace, since: float | None) -> int:
    from treadle.terminal.rendering.event_messages import plural

    rows = await opened.find_runs(store, args.runs, session=args.session, since=since)
    with written(args.output) as out, show_progress("writing") as progress:
        for done, row in enumerate(rows, start=1):
            await export_run(store, row.id, out)
            progress(done, len(rows))
    if args.output is not None:
        print(f"{plural(len(rows), 'run')} in {args.output}", file=sys.stderr)
    return command.OK


async def export_run(store: "Store", run_id: str, out: Sink) -> None:
    """Write the lines of one run; entries that a running run adds during the export are left out."""
    from treadle.journal.jsonl_export import write_run

    out.writelines(write_run(await store.evidence(run_id)))


@contextmanager
def written(file: Path | None) -> Generator[Sink, None, None]:
    """Open a file that is there whole or not at all; without one, standard output."""
    if file is None:
        yield _Screen(sys.stdout.buffer) if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as out:
            yield out
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
