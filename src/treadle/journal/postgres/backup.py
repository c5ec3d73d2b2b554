"""Copies of a journal in PostgreSQL, made and taken back by PostgreSQL's own programs.

A password reaches them by the environment, never by the command line, which everybody on a machine can read.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from treadle.core.errors import NotFound, StoreError
from treadle.journal.store_url import PostgresAddress

TIMEOUT_S = 6 * 3_600.0
_LEDGER_LINE = re.compile(r"^\d+; \d+ \d+ TABLE (?P<schema>.+) schema_migrations ", re.MULTILINE)
"""How `pg_restore --list` names a table that every journal has; the schema may have spaces in it."""
_VERSION_HINT = "pg_dump and pg_restore must be at least as new as the server"


def back_up(address: PostgresAddress, target: Path, env: Mapping[str, str]) -> None:
    """Write the schema as pg_dump does; the file is there whole or not at all.

    Raises: StoreError.
    """
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    # A pattern here, which the quotes make a name; pg_restore takes a name.
    arguments = ("--format=custom", "--no-owner", "--no-privileges", f"--schema={address.quoted_schema}")
    try:
        _run("pg_dump", address, env, *arguments, f"--file={part}")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)


def restore(address: PostgresAddress, backup: Path, env: Mapping[str, str]) -> None:
    """Put a copy in the place of the schema, in one transaction.

    Raises: NotFound, StoreError: nothing has changed then.
    """
    if not backup.is_file():
        raise NotFound(f"there is no file {backup}", param="file")
    arguments = ("--exit-on-error", "--single-transaction", "--clean", "--if-exists", "--no-owner", "--no-privileges")
    _run("pg_restore", address, env, *arguments, f"--schema={address.schema}", str(backup))


def schema_in(backup: Path, env: Mapping[str, str]) -> str:
    """Return the name of the schema in a copy, empty where none is to be seen.

    Raises: StoreError.
    """
    done = _call([_program("pg_restore", env), "--list", str(backup)], env)
    if done.returncode:
        raise StoreError(
            f"{backup} is no copy that pg_restore can read: {_last_line(done.stderr)}",
            code="store_not_a_backup",
            hint="`treadle store backup` with the same --store makes one",
        )
    found = _LEDGER_LINE.search(done.stdout)
    return found["schema"] if found else ""


def _run(name: str, address: PostgresAddress, env: Mapping[str, str], *arguments: str) -> None:
    dsn, password = _without_password(address)
    given = {**env, "PGPASSWORD": password} if password else dict(env)
    done = _call([_program(name, env), f"--dbname={dsn}", *arguments], given)
    if done.returncode:
        raise StoreError(
            f"{name} failed for the store {address.shown}: {_last_line(done.stderr)}",
            code="store_backup_failed",
            hint=_VERSION_HINT,
        )


def _call(command: list[str], env: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def _program(name: str, env: Mapping[str, str]) -> str:
    found = shutil.which(name, path=env.get("PATH"))
    if found is None:
        raise StoreError(
            f"this needs PostgreSQL's program {name}, which is not on the PATH",
            code="store_backup_failed",
            hint="install the client programs of PostgreSQL (such as the package postgresql-client)",
        )
    return found


def _without_password(address: PostgresAddress) -> tuple[str, str]:
    parts = urlsplit(address.dsn)
    options = parse_qsl(parts.query, keep_blank_values=True)
    password = address.password or unquote(parts.password or "") or dict(options).get("password", "")
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    rest = urlencode([(key, value) for key, value in options if key != "password"])
    return parts._replace(netloc=f"{name}@{place}" if name else place, query=rest).geturl(), password


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it says nothing"
