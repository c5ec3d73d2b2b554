"""Checks of the journal: its file or database, schema, disk space and clock. Nothing is changed."""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from treadle.cli.doctor.check_result import Check, broken
from treadle.cli.doctor.journal_file_checks import file_problems, holder_of
from treadle.config import Settings, sqlite_path
from treadle.core.errors import StoreError
from treadle.journal.open_store import JournalInspection, inspect_store
from treadle.journal.store_url import PostgresAddress, is_postgres

SKEW_S_MAX = 5.0
"""Leases are counted by the clocks of those who hold them and last 15 s."""
FREE_BYTES_WANTED = 1_073_741_824
FREE_BYTES_MIN = 67_108_864

READ_S = 5.0
"""How long a journal is read to see whether it is sound."""

_STOP = "stop that process, but not with SIGKILL: while it leaves, it saves what it can"
_RESTORE = "stop every Treadle that uses it, and restore a copy: treadle store restore FILE --replace"
_OTHER = "name another file: --store sqlite:///FILE, or store.url in treadle.toml"


def check_store(settings: Settings, env: Mapping[str, str] | None = None, *, is_offline: bool = False) -> Check:
    """Check whether the journal can be written, without making it."""
    if settings.store.persistence == "off":
        return Check(name="store", state="note", detail="persistence is off: runs are kept only while they last")
    if is_postgres(settings.store.url):
        return _check_postgres(settings, env or {}, is_offline=is_offline)
    path = sqlite_path(settings.store.url)
    if problems := file_problems(path):
        return Check(name="store", state="broken", detail="\n".join((str(path), *problems)), advice=_STOP)
    if problem := write_problem(path):
        detail = f"{path} can not be written: {problem}"
        return Check(name="store", state="broken", detail=detail, advice=_OTHER)
    if not path.exists() or not path.stat().st_size:
        return _with_disk(path, f"{path} (will be made)")
    from treadle.journal.sqlite.backup import check
    from treadle.journal.sqlite.migrations import inspect_file

    try:
        seen = inspect_file(str(path))
        problems = check(path, lambda _done, _of: None, within_s=READ_S)
    except StoreError as error:
        holder = holder_of(path) if error.info.code == "store_busy" else ""
        found = broken("store", error, _OTHER)
        return _with_detail(found, f"{found.detail}: {holder}") if holder else found
    if problems:
        return Check(name="store", state="broken", detail="\n".join((f"{path} is damaged", *problems)), advice=_RESTORE)
    rest = "" if problems is not None else "; too large to read whole here, `treadle store check` does"
    return _with_disk(path, f"{path}, {_size(seen)}, schema {seen.state}{rest}")


def _with_detail(check: Check, detail: str) -> Check:
    return Check(name=check.name, state=check.state, detail=detail, advice=check.advice)


def _with_disk(path: Path, detail: str) -> Check:
    """Add the free disk space if it is low."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if free >= FREE_BYTES_WANTED:
        return Check(name="store", state="ok", detail=detail)
    state = "broken" if free < FREE_BYTES_MIN else "note"
    advice = "free some space, put the journal elsewhere, or `treadle store prune --older-than 90d`"
    detail = f"{detail}; only {free // 1_048_576} MiB are free on its disk"
    return Check(name="store", state=state, detail=detail, advice=advice)


def _check_postgres(settings: Settings, env: Mapping[str, str], *, is_offline: bool) -> Check:
    """Ask PostgreSQL for its version, that of our schema, its time, and how many connections it has left."""
    address = PostgresAddress(settings.store.url, password=env.get(settings.store.password_env, ""))
    if is_offline:
        return Check(name="store", state="note", detail=f"{address.shown}, not asked")
    try:
        seen = asyncio.run(inspect_store(address))
    except StoreError as error:
        return broken("store", error)
    return report_postgres(address, seen)


def report_postgres(address: PostgresAddress, seen: JournalInspection) -> Check:
    """Report on a PostgreSQL that answers."""
    detail = f"{address.shown}, {seen.engine}, {_size(seen)}, schema {address.schema} {seen.state}"
    notes: list[tuple[str, str]] = []
    if abs(seen.skew_s) > SKEW_S_MAX:
        where = "behind" if seen.skew_s > 0 else "ahead of"
        notes.append(
            (
                f"this machine's clock is {abs(seen.skew_s):.0f} s {where} that of the database",
                "set both by NTP: what is due is counted by the database's, log lines and spans by this one",
            )
        )
    if seen.connections_left is not None and seen.connections_left < address.pool_size:
        notes.append(
            (
                f"it has {seen.connections_left} connections left, and this process wants {address.pool_size}",
                "raise max_connections, or add ?pool_size=N to the address",
            )
        )
    if not notes:
        return Check(name="store", state="ok", detail=detail)
    lines, advice = zip(*notes, strict=True)
    return Check(name="store", state="note", detail="\n".join((detail, *lines)), advice="\n".join(advice))


def _size(seen: JournalInspection) -> str:
    return f"{seen.runs} runs, {seen.size_bytes / 1_048_576:.1f} MiB"


def write_problem(path: Path) -> str:
    """Return why a file cannot be written; SQLite also writes to its folder.

    Permission bits are not enough: root passes them and still cannot create files in /proc. A temporary file shows it.
    """
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not os.access(path, os.W_OK):
        return os.strerror(errno.EACCES)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
