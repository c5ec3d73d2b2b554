"""`treadle store`: manage the journal: back up, restore, check, migrate, and delete old conversations."""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from treadle.cli import command_base as command
from treadle.cli.progress_bar import show_progress
from treadle.core.errors import ConfigError, Conflict, StoreError
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.journal.journal_interface import Store
    from treadle.journal.open_store import JournalInspection
    from treadle.journal.pruning import Pruned
    from treadle.journal.store_url import PostgresAddress

EPILOG = """\
A backup can be made while Treadle runs, and is the journal as it was at one moment. To restore one, stop every Treadle
that uses the journal first. On PostgreSQL the work is done by its own pg_dump and pg_restore, which must be installed.
A backup does not hold the secret that clients' keys are known by (secret.key beside the journal, or TREADLE_SECRET):
keep that in another place.

examples:
  treadle store info
  treadle store backup journal-2026-11-16.db
  treadle store restore journal-2026-11-16.db --replace
  treadle store check                              read all of it and say what is damaged
  treadle store prune --older-than 90d --dry-run   what would be forgotten
  treadle store migrate                            bring the schema to this version, before a rolling upgrade

exit codes: 0 done, 1 an error, or the journal is damaged; 2 usage or configuration"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, help_text: str) -> argparse.ArgumentParser:
        inner = actions.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
        command.add_journal_flags(inner)
        return inner

    action("info", "say where the journal is, how large, and at which version")
    backup = action("backup", "copy the journal into a file, also while Treadle runs")
    backup.add_argument("file", type=Path, metavar="FILE", help="the copy; a file of that name is replaced")
    restore = action("restore", "put a copy in the journal's place, while nothing uses it")
    restore.add_argument("file", type=Path, metavar="FILE", help="what `treadle store backup` wrote")
    restore.add_argument("--replace", action="store_true", help="although there is a journal already")
    action("check", "read the whole journal and say what is damaged")
    action("migrate", "bring the schema to this version of Treadle, or make it")
    prune = action("prune", "forget whole conversations that nobody went on with")
    prune.add_argument(
        "--older-than", required=True, metavar="WHEN", help="last used before a day, a time or an age such as 90d"
    )
    prune.add_argument("--dry-run", action="store_true", help="say how much it would be, and forget nothing")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    settings = command.read_flags(args).settings
    if settings.store.persistence == "off":
        hint = 'store.persistence = "on" keeps a journal'
        raise ConfigError("store.persistence is off: nothing is kept", param="store.persistence", hint=hint)
    return _ACTIONS[args.action](_Place(settings), args)


class _Place:
    """The journal that the settings name."""

    def __init__(self, settings: "Settings") -> None:
        from treadle.config import sqlite_path
        from treadle.journal.store_url import PostgresAddress, is_postgres

        self.settings = settings
        self.postgres: PostgresAddress | None = None
        self.path = Path()
        if is_postgres(settings.store.url):
            password = os.environ.get(settings.store.password_env, "")
            self.postgres = PostgresAddress(settings.store.url, password=password)
            self.shown = self.postgres.shown
        else:
            self.path = sqlite_path(settings.store.url)
            self.shown = str(self.path)

    def inspect(self) -> "JournalInspection":
        """Return the state of the journal.

        Raises: NotFound, StoreError.
        """
        if self.postgres is not None:
            from treadle.journal.open_store import inspect_store

            return asyncio.run(inspect_store(self.postgres))
        from treadle.journal.sqlite.migrations import inspect_file

        self.check_exists()
        return inspect_file(str(self.path))

    def check_exists(self) -> None:
        """Raises: NotFound, where there is no journal yet."""
        from treadle.core.errors import NotFound

        if self.postgres is None and not self.path.exists():
            hint = "name another with --store; the first run makes one"
            raise NotFound(f"there is no journal at {self.path}", hint=hint)


def _info(place: _Place, args: argparse.Namespace) -> int:
    seen = place.inspect()
    if args.json:
        command.print_json({"store": place.shown, **msgspec.structs.asdict(seen), "state": seen.state})
        return command.OK
    print(clean(place.shown))
    print(f"  {seen.engine}, schema {seen.state} (this Treadle knows up to {seen.newest})")
    print(f"  {plural(seen.runs, 'run')}, {_mib(seen.size_bytes)}")
    return command.OK


def _backup(place: _Place, args: argparse.Namespace) -> int:
    began = time.monotonic()
    with show_progress("copying") as progress:
        if address := place.postgres:
            from treadle.journal.postgres.backup import back_up as dump

            seen = place.inspect()
            if not seen.version:
                raise StoreError(f"there is no journal in the store {place.shown}", hint="the first run makes one")
            _waiting(lambda: dump(address, args.file, os.environ), progress)
        else:
            from treadle.journal.sqlite.backup import back_up

            seen = back_up(place.path, args.file, progress)
    size = args.file.stat().st_size
    if args.json:
        command.print_json({"file": str(args.file), "runs": seen.runs, "version": seen.version, "size_bytes": size})
        return command.OK
    took = time.monotonic() - began
    print(clean(f"{args.file}: {plural(seen.runs, 'run')}, {_mib(size)}, in {took:.1f} s"))
    if where := _secret_of(place):
        print(clean(f"not in it: {where}, without which clients' keys are not known again"), file=sys.stderr)
    return command.OK


def _secret_of(place: _Place) -> str:
    """Return the name of the secret that keys depend on, if there is one."""
    from treadle.server.auth.installation_secret import FILE, VARIABLE

    if os.environ.get(VARIABLE):
        return VARIABLE
    beside = place.path.parent / FILE
    return str(beside) if place.postgres is None and beside.exists() else ""


def _restore(place: _Place, args: argparse.Namespace) -> int:
    with show_progress("restoring") as progress:
        if place.postgres is not None:
            aside = _restore_postgres(place, place.postgres, args, progress)
        else:
            from treadle.journal.sqlite.backup import restore

            aside = restore(args.file, place.path, progress, is_replacing=args.replace)
    seen = place.inspect()
    if args.json:
        command.print_json(
            {"store": place.shown, "runs": seen.runs, "version": seen.version, "aside": aside and str(aside)}
        )
        return command.OK
    print(clean(f"{place.shown}: {plural(seen.runs, 'run')}, schema {seen.state}"))
    if aside is not None:
        print(clean(f"what was there is now {aside}"), file=sys.stderr)
    return command.OK


def _restore_postgres(
    place: _Place, address: "PostgresAddress", args: argparse.Namespace, progress: Callable[[int, int], None]
) -> None:
    from treadle.journal.postgres.backup import restore, schema_in

    if place.inspect().version and not args.replace:
        raise Conflict(
            f"there is a journal in the store {address.shown} already",
            hint="--replace drops it; copy it first: treadle store backup FILE",
        )
    name = schema_in(args.file, os.environ) if args.file.is_file() else address.schema
    if name != address.schema:
        raise Conflict(
            f"the copy holds the schema {name!r}, and the store is {address.schema!r}",
            hint=f"restore it with ?schema={quote(name, safe='')} in the address",
        )
    _waiting(lambda: restore(address, args.file, os.environ), progress)


def _check(place: _Place, args: argparse.Namespace) -> int:
    problems: list[str] = []
    if place.postgres is None:
        from treadle.cli.doctor.journal_file_checks import find_damage

        with show_progress("reading") as progress:
            problems = find_damage(place.path, progress)
    seen = None if problems else place.inspect()
    runs = 0 if seen is None else seen.runs
    if args.json:
        command.print_json({"ok": not problems, "store": place.shown, "problems": problems, "runs": runs})
    else:
        for problem in problems:
            print(clean(problem))
        verdict = "damaged" if problems else f"sound, {plural(runs, 'run')}"
        print(clean(f"{place.shown}: {verdict}"))
        if problems:
            print("  hint: restore a copy: treadle store restore FILE --replace", file=sys.stderr)
        else:
            print("`treadle audit verify` checks that each run is as it was written", file=sys.stderr)
    return command.ERROR if problems else command.OK


def _migrate(place: _Place, args: argparse.Namespace) -> int:
    from treadle.cli.open_journal import opened

    async def main() -> None:
        async with opened(place.settings, may_create=True):
            pass

    command.quiet_logs()
    asyncio.run(main())
    seen = place.inspect()
    if args.json:
        command.print_json({"store": place.shown, "version": seen.version})
    else:
        print(clean(f"{place.shown}: schema {seen.state}"))
    return command.OK


def _prune(place: _Place, args: argparse.Namespace) -> int:
    from treadle.cli.open_journal import opened, read_since
    from treadle.journal.pruning import prune

    before = read_since(args.older_than, time.time(), flag="--older-than")
    place.check_exists()

    async def work(store: "Store") -> "Pruned":
        with show_progress("forgetting") as progress:
            return await prune(store, before, progress, is_dry=args.dry_run)

    async def main() -> "Pruned":
        async with opened(place.settings) as store:
            return await work(store)

    command.quiet_logs()
    found = asyncio.run(main())
    if args.json:
        command.print_json({**msgspec.structs.asdict(found), "dry_run": args.dry_run})
        return command.OK
    what = f"{plural(found.conversations, 'conversation')} ({plural(found.runs, 'run')})"
    empty = f" and {plural(found.sessions, 'session')}" if found.sessions else ""
    print(f"{what}{empty} {'would be' if args.dry_run else 'are'} forgotten")
    return command.OK


_ACTIONS: dict[str, Callable[[_Place, argparse.Namespace], int]] = {
    "info": _info,
    "backup": _backup,
    "restore": _restore,
    "check": _check,
    "migrate": _migrate,
    "prune": _prune,
}


def _waiting(work: Callable[[], None], progress: Callable[[int, int], None]) -> None:
    """Run work of another program, and show that it is running."""
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait((future,), timeout=0.1).done:
            progress(0, 0)
        future.result()


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 1_048_576:.1f} MiB"
