"""`treadle logs`: search runs by the text of their messages and calls, or by how they ended."""

import argparse
import time
from datetime import datetime
from typing import TYPE_CHECKING, get_args

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.core.events import Status
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import one_line

if TYPE_CHECKING:
    from treadle.journal.journal_interface import RunRow, Store

LIMIT = 20
ASKED_CHARS_MAX = 60
_SHOWN = ("id", "created_at", "ended_at", "model", "status", "stop", "limit", "rounds", "calls", "usage", "error")
EPILOG = """\
The newest run comes first. `treadle plan RUN`, `treadle export RUN` and `treadle replay RUN` show one of them.

examples:
  treadle logs
  treadle logs -q "train to Lyon"
  treadle logs --tool bash --since 7d
  treadle logs --status failed --json"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("-q", "--query", metavar="TEXT", help="only runs in which this was asked, said or called")
    parser.add_argument("--tool", metavar="NAME", help="only runs that called this tool")
    parser.add_argument("--model", metavar="NAME", help="only runs of this model")
    parser.add_argument("--status", choices=get_args(Status), help="only runs that ended so, or go on")
    parser.add_argument("--since", metavar="TIME", help="only runs since a day, a time, or an age such as 7d")
    parser.add_argument("-n", "--limit", type=int, default=LIMIT, help=f"how many at most (default: {LIMIT})")
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """List the runs."""
    return opened.with_store(args, lambda store: _list(store, args))


async def _list(store: "Store", args: argparse.Namespace) -> int:
    from treadle.journal.journal_interface import RunSearch

    since = None if args.since is None else opened.read_since(args.since, time.time())
    wanted = RunSearch(status=args.status, model=args.model, tool=args.tool, text=args.query, since=since)
    rows = await store.search_runs(wanted, limit=max(1, args.limit))
    asked = await store.questions([row.id for row in rows])
    if args.json:
        found = [{**{name: getattr(row, name) for name in _SHOWN}, "asked": asked.get(row.id)} for row in rows]
        command.print_json(found)
    elif not rows:
        print("no run is like that" if wanted != RunSearch() else "no runs yet")
    else:
        cells = [("run", "when", "model", "status", "work", "asked"), *(_cells(row, asked) for row in rows)]
        print("\n".join(opened.aligned(cells)))
    return command.OK


def _cells(row: "RunRow", asked: dict[str, str]) -> tuple[str, ...]:
    when = datetime.fromtimestamp(row.created_at).astimezone().isoformat(" ", "minutes")[:16]
    work = f"{plural(row.rounds, 'round')}, {plural(row.calls, 'call')}"
    return row.id, when, one_line(row.model), row.status, work, one_line(asked.get(row.id, ""))[:ASKED_CHARS_MAX]
