"""The secret that signs cookies: from the environment where several processes share it, else beside the journal.

A file is made with the rights of its owner alone. Where none can be kept the secret lasts as long as the process.
"""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from treadle.canon.errors import ConfigError
from treadle.config import Settings
from treadle.config.settings import SQLITE
from treadle.server.login.tickets import SECRET_BYTES

VARIABLE = "TREADLE_LOGIN_SECRET"
FILE = "login.key"
CHARS_MIN = 32


def read_secret(settings: Settings, env: Mapping[str, str] | None = None) -> bytes:
    """Return the secret of this installation, made now if there is none.

    Raises: ConfigError for one that could be guessed.
    """
    given = (os.environ if env is None else env).get(VARIABLE, "")
    if given:
        if len(given) < CHARS_MIN:
            message = f"{VARIABLE} has fewer than {CHARS_MIN} characters and could be guessed."
            raise ConfigError(message, param=VARIABLE, hint="python -c 'import secrets; print(secrets.token_hex(32))'")
        return given.encode()
    path = _path(settings)
    return secrets.token_bytes(SECRET_BYTES) if path is None else _kept(path)


def is_shared(settings: Settings, env: Mapping[str, str]) -> bool:
    """Tell whether another process with the same settings finds the same secret."""
    return bool(env.get(VARIABLE)) or _path(settings) is not None


def _path(settings: Settings) -> Path | None:
    """Return where the secret is kept: beside a journal that is a file."""
    journal = settings.store.url.removeprefix(SQLITE)
    is_file = journal != settings.store.url and journal not in ("", ":memory:") and settings.store.persistence == "on"
    return Path(journal).parent / FILE if is_file else None


def _kept(path: Path) -> bytes:
    """Return the secret in a file; what can not be read or written is made up for this process."""
    fresh = secrets.token_bytes(SECRET_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read(path) or fresh
    except OSError:
        return fresh
    with os.fdopen(descriptor, "wb") as file:
        file.write(fresh)
    return fresh


def _read(path: Path) -> bytes:
    try:
        kept = path.read_bytes()
    except OSError:
        return b""
    return kept if len(kept) >= SECRET_BYTES else b""
