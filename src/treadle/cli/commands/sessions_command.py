"""`treadle sessions`: list, show, search, rename, fork, delete and export conversations."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.journal.journal_interface import SessionRow, Store

LIMIT = 50
EPILOG = """\
Without an action the sessions are listed, the one used last first. A session is named by its id or its name.

examples:
  treadle sessions --here
  treadle sessions search "train to Lyon"
  treadle sessions show trip
  treadle sessions rename trip "Trip to Lyon"
  treadle sessions fork trip --at RUN --name "Trip by car"
  treadle sessions export trip --format md -o trip.md
  treadle sessions delete trip --runs"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.set_defaults(limit=LIMIT, query=None, here=False)
    _add_list_flags(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")

    def action(name: str, help_text: str, *, has_session: bool = True) -> argparse.ArgumentParser:
        # A flag that is left out here must not overwrite the one given before the action.
        inner = actions.add_parser(name, help=help_text, argument_default=argparse.SUPPRESS)
        if has_session:
            inner.add_argument("session", metavar="SESSION", help="its id or name")
            command.add_journal_flags(inner)
        return inner

    _add_list_flags(action("list", "list them, the one used last first (default)", has_session=False))
    action("show", "print what was said")
    search = action("search", "list those whose name or messages hold a text", has_session=False)
    search.add_argument("text", metavar="TEXT", help="what to look for, whatever its case")
    _add_list_flags(search)
    action("rename", "give one another name").add_argument("name", metavar="NAME", help="its new name")
    fork = action("fork", "go on from the same place under another name")
    fork.add_argument("--at", metavar="RUN", default=None, help="a run of the session to go on from, not its last")
    fork.add_argument("--name", metavar="NAME", default=None, help="the name of the fork")
    delete = action("delete", "forget one")
    delete.add_argument("--runs", action="store_true", default=False, help="forget also what was said in it")
    export = action("export", "write one down")
    export.add_argument("--format", choices=("jsonl", "md"), default="jsonl", help="exact (default), or for people")
    export.add_argument("-o", "--output", type=Path, default=None, metavar="FILE", help="write here, not to stdout")


def _add_list_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--query", metavar="TEXT", help="only those whose name or messages hold a text")
    parser.add_argument("--here", action="store_true", help="only those that were begun in this folder")
    parser.add_argument("-n", "--limit", type=int, help=f"how many at most (default: {LIMIT})")
    command.add_journal_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    work = _ACTIONS[args.action or "list"]
    return opened.with_store(args, lambda store: work(store, args))


async def _list(store: "Store", args: argparse.Namespace) -> int:
    text = vars(args).get("text") or args.query
    rows = await store.list_sessions(max(1, args.limit), search=text)
    if args.here:
        from treadle.terminal.conversation.local_host import folder_of

        here = str(command.project_root(Path.cwd()))
        rows = [row for row in rows if folder_of(row.metadata) == here]
    if args.json:
        command.print_json([view_of(row) for row in rows])
        return command.OK
    if not rows:
        print("no session holds that" if text else "no sessions yet")
        return command.OK
    cells = [("name", "used", "id")]
    cells += [(_one_line(row.name) or "-", _when(row.updated_at), row.id) for row in rows]
    for line in opened.aligned(cells):
        print(clean(line))
    return command.OK


async def _show(store: "Store", args: argparse.Namespace) -> int:
    from treadle.journal.session_operations import read_items, write_markdown

    row = await _find(store, args.session)
    messages = await read_items(store, row)
    if args.json:
        command.print_json({**view_of(row), "messages": messages})
    else:
        print(clean(write_markdown(row, messages)), end="")
    return command.OK


async def _rename(store: "Store", args: argparse.Namespace) -> int:
    from treadle.journal.session_operations import check_name

    row = await _find(store, args.session)
    return _print_session(await store.update_session(row.id, name=check_name(args.name)), args, "is now")


async def _fork(store: "Store", args: argparse.Namespace) -> int:
    from treadle.core.ids import SESSION
    from treadle.journal.journal_interface import SessionRow
    from treadle.journal.session_operations import fork_session
    from treadle.runtime import RandomIds

    source = await _find(store, args.session)
    now = (await opened.clock_of(store)).now()
    row = SessionRow(id=RandomIds().new(SESSION), created_at=now, updated_at=now)
    return _print_session(await fork_session(store, source, row, at=args.at, name=args.name), args, "forked as")


async def _delete(store: "Store", args: argparse.Namespace) -> int:
    from treadle.journal.session_operations import chain_of, forget_session

    row = await _find(store, args.session)
    own = [each for each in await chain_of(store, row.head_run_id) if each.session_id == row.id]
    await forget_session(store, row, with_runs=args.runs)
    if args.json:
        command.print_json({"deleted": row.id, "runs": len(own) if args.runs else 0})
    else:
        what = f" and {plural(len(own), 'run')}" if args.runs else ""
        print(clean(f"{_one_line(row.name) or row.id}{what} deleted"))
    return command.OK


async def _export(store: "Store", args: argparse.Namespace) -> int:
    from treadle.cli.commands.export_command import export_run, written
    from treadle.journal.session_operations import chain_of, read_items, write_markdown

    row = await _find(store, args.session)
    with written(args.output) as out:
        if args.format == "md":
            out.write(write_markdown(row, await read_items(store, row)).encode())
        else:
            for each in reversed(await chain_of(store, row.head_run_id)):
                await export_run(store, each.id, out)
    if args.output is not None:
        print(clean(f"{_one_line(row.name) or row.id} in {args.output}"), file=sys.stderr)
    return command.OK


_ACTIONS: "dict[str, Callable[[Store, argparse.Namespace], Awaitable[int]]]" = {
    "list": _list,
    "search": _list,
    "show": _show,
    "rename": _rename,
    "fork": _fork,
    "delete": _delete,
    "export": _export,
}


async def _find(store: "Store", name: str) -> "SessionRow":
    from treadle.journal.session_operations import get_session

    return await get_session(store, name, key_id=None)


def view_of(row: "SessionRow") -> dict[str, object]:
    """Return a session as a program reads it."""
    names = ("id", "name", "created_at", "updated_at", "head_run_id", "metadata")
    return {name: getattr(row, name) for name in names}


def _print_session(row: "SessionRow", args: argparse.Namespace, verb: str) -> int:
    if args.json:
        command.print_json(view_of(row))
    else:
        print(clean(f"{args.session} {verb} {_one_line(row.name)} ({row.id})"))
    return command.OK


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _when(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(" ", "minutes")[:16]
