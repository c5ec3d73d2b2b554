"""`treadle audit`: verify the hash chains of stored runs, or of an exported file."""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.cli import open_journal as opened
from treadle.cli.progress_bar import show_progress
from treadle.core.errors import NotFound, RequestError, StoreError
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.journal.audit_verification import AuditFinding
    from treadle.journal.journal_interface import Store

EPILOG = """\
Checks the run's row and request, the chain of hashes, the numbers without a gap, the epochs, one result for each call,
and one recorded end. A run from before there were hashes is `unchained`, one whose content was forgotten on purpose is
`forgotten`. With --json, `row` says whether the hashes cover the run's row too.

examples:
  treadle audit verify                       every run
  treadle audit verify last --json
  treadle audit verify --file week.jsonl     a file that treadle export wrote

exit codes: 0 all is as it was written, 1 something is not"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser("verify", help="check the runs of the store, or of an exported file")
    verify.add_argument("runs", nargs="*", metavar="RUN", help="ids of runs or responses, or `last` (default: all)")
    verify.add_argument("--session", metavar="NAME", help="all runs of a session")
    verify.add_argument("--since", metavar="WHEN", help="only runs since a day, a time or an age such as 7d")
    verify.add_argument("--file", type=Path, metavar="FILE", help="check an exported file instead of the store")
    command.add_journal_flags(verify)


def run(args: argparse.Namespace) -> int:
    """Check, print, and return whether all is well."""
    if args.file is not None and (args.runs or args.session or args.since):
        raise RequestError("a file is checked whole", param="file", hint="leave the runs out")
    problems: list[str] = []
    strays: dict[str, int] = {}
    if args.file is not None:
        findings = _in_file(args.file)
    else:
        problems, findings, strays = _in_store(args)
    is_sound = not problems and not strays and all(finding.is_sound for finding in findings)
    if args.json:
        command.print_json({"ok": is_sound, "runs": findings, "strays": strays, "problems": problems})
    else:
        table = _table(findings, strays) if findings or not problems else ()
        for line in (*table, *(f"the journal itself: {problem}" for problem in problems)):
            print(clean(line))
    return command.OK if is_sound else command.ERROR


def _in_store(args: argparse.Namespace) -> "tuple[list[str], list[AuditFinding], dict[str, int]]":
    """Return what is wrong with the file under the runs (read whole where all runs are asked for), and the runs."""
    from treadle.cli.doctor.journal_file_checks import file_problems, find_damage
    from treadle.config import sqlite_path
    from treadle.config.settings import SQLITE

    settings = command.read_flags(args).settings
    problems: list[str] = []
    if settings.store.persistence != "off" and settings.store.url.startswith(SQLITE):
        path = sqlite_path(settings.store.url)
        if problems := file_problems(path):
            return problems, [], {}
        if not (args.runs or args.session or args.since):
            with show_progress("reading") as progress:
                # Rows that belong to no run are found among the runs, and counted there.
                problems = [each for each in find_damage(path, progress) if not each.startswith("a row of ")]
    try:
        return problems, *opened.with_store(args, lambda each: _in(each, args))
    except StoreError:
        if not problems:
            raise
        return problems, [], {}


async def _in(store: "Store", args: argparse.Namespace) -> "tuple[list[AuditFinding], dict[str, int]]":
    """Check the runs that were asked for; where that is all of them, also for rows that belong to none."""
    from treadle.journal.audit_verification import audit_run

    is_all = not (args.runs or args.session or args.since)
    since = None if args.since is None else opened.read_since(args.since, time.time())
    findings: list[AuditFinding] = []
    rows = await opened.find_runs(store, args.runs, session=args.session, since=since)
    with show_progress("checking") as progress:
        for row in rows:
            try:
                findings.append(audit_run(await store.evidence(row.id)))
            except NotFound:
                continue  # it was forgotten just now, as it may be
            progress(len(findings), len(rows))
    return findings, await store.strays() if is_all else {}


def _in_file(file: Path) -> "list[AuditFinding]":
    from treadle.journal.audit_verification import audit_export
    from treadle.journal.jsonl_export import read_runs

    size = file.stat().st_size
    findings: list[AuditFinding] = []
    with file.open("rb") as lines, show_progress("checking") as progress:
        for exported in read_runs(lines, file.name):
            findings.append(audit_export(exported))
            progress(lines.tell(), size)
    return findings


def _table(findings: "list[AuditFinding]", strays: dict[str, int]) -> Iterable[str]:
    cells = [("run", "status", "entries", "epochs", "chain", "")]
    for each in findings:
        verdict = "ok" if each.is_sound else plural(len(each.problems), "problem")
        cells.append((each.run_id, each.status, str(each.entries), str(each.epochs), each.chain, verdict))
    yield from opened.aligned(cells) if findings else []
    for each in findings:
        yield from (f"{each.run_id}: {problem}" for problem in each.problems)
    yield from (f"{plural(count, 'row')} of {table} of runs that are not there" for table, count in strays.items())
    broken = sum(not each.is_sound for each in findings)
    yield f"{plural(len(findings), 'run')}, {'all as written' if not broken else f'{broken} not as written'}"
