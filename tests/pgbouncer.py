"""A real pgbouncer before the tests' PostgreSQL: Debian's package `pgbouncer`, with the settings that it comes with."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from postgres import USER, postgres_server

PLACES = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
PROGRAM = shutil.which("pgbouncer", path=PLACES)
MISSING = "pgbouncer is not installed (Debian: apt-get install pgbouncer)"
START_S = 20.0
SOCKET = ".s.PGSQL.5432"
Mode = Literal["session", "transaction", "statement"]


@contextmanager
def pooler(mode: Mode, *more: str) -> Iterator[Path]:
    """Run one, and return the folder of its socket; `more` are lines of its settings."""
    assert PROGRAM is not None, MISSING
    folder = Path(tempfile.mkdtemp(prefix="tpb"))
    user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
    (folder / "users.txt").write_text(f'"{USER}" ""\n')
    lines = (
        "[databases]",
        f"* = host={postgres_server().socket_folder}",
        "[pgbouncer]",
        "listen_addr =",
        f"unix_socket_dir = {folder}",
        "listen_port = 5432",
        "auth_type = trust",
        f"auth_file = {folder}/users.txt",
        f"logfile = {folder}/log",
        f"pool_mode = {mode}",
        *more,
    )
    (folder / "pgbouncer.ini").write_text("\n".join((*lines, "")))
    if user is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    as_user = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    process = subprocess.Popen([PROGRAM, "-q", str(folder / "pgbouncer.ini")], cwd="/", **as_user)
    try:
        deadline = time.monotonic() + START_S
        while not (folder / SOCKET).exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield folder
    finally:
        process.terminate()
        process.wait(START_S)
        shutil.rmtree(folder, ignore_errors=True)
