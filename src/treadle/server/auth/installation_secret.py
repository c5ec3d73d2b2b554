"""The secret of an installation: from the environment if several processes share it, else from a file at the journal.

It signs cookies and verifies clients' keys, each with a secret derived for that purpose. Only the owner can read the
file. If no secret can be stored, logins last as long as the process, and there can be no keys.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from treadle.config import Settings
from treadle.config.settings import SQLITE
from treadle.core.errors import ConfigError
from treadle.server.auth.signed_tickets import SECRET_BYTES

VARIABLE = "TREADLE_SECRET"
OTHER_VARIABLE = "TREADLE_LOGIN_SECRET"
"""The variable's old name, from when only logins used it."""

FILE = "secret.key"
CHARS_MIN = 32
Purpose = Literal["login", "keys"]


def read_secret(settings: Settings, env: Mapping[str, str] | None = None) -> bytes:
    """Return the secret of this installation, created if there is none.

    Raises: ConfigError for one that could be guessed.
    """
    return _find(settings, os.environ if env is None else env) or secrets.token_bytes(SECRET_BYTES)


def stored_secret(settings: Settings, env: Mapping[str, str] | None = None) -> bytes:
    """Return the stored secret of this installation, which is the same after a restart and in every other process.

    Raises: ConfigError if none can be stored, or it could be guessed.
    """
    found = _find(settings, os.environ if env is None else env)
    if found is None:
        path = _path(settings)
        why = "beside a journal that is not a file" if path is None else f"in {path}"
        raise ConfigError(
            f"keys need a secret that lasts, and none can be kept {why}",
            param=VARIABLE,
            hint=f"set {VARIABLE} to the same text for every process: {_HOW_TO_MAKE}",
        )
    return found


def present_secret(settings: Settings, env: Mapping[str, str]) -> bytes | None:
    """Return the existing secret, if it is usable; none is created."""
    if given := _given(env):
        return given.encode() if len(given) >= CHARS_MIN else None
    path = _path(settings)
    return None if path is None else _read(path)


def secret_for(purpose: Purpose, secret: bytes) -> bytes:
    """Return the secret derived for one purpose; it reveals nothing about the others."""
    return hmac.digest(secret, f"treadle:{purpose}".encode(), hashlib.sha256)


def is_shared(settings: Settings, env: Mapping[str, str]) -> bool:
    """Return whether another process with the same settings finds the same secret."""
    return bool(_given(env)) or _path(settings) is not None


_HOW_TO_MAKE = "python -c 'import secrets; print(secrets.token_hex(32))'"


def _given(env: Mapping[str, str]) -> str:
    return env.get(VARIABLE, "") or env.get(OTHER_VARIABLE, "")


def _find(settings: Settings, env: Mapping[str, str]) -> bytes | None:
    given = _given(env)
    if given:
        if len(given) < CHARS_MIN:
            message = f"{VARIABLE} has fewer than {CHARS_MIN} characters and could be guessed."
            raise ConfigError(message, param=VARIABLE, hint=_HOW_TO_MAKE)
        return given.encode()
    path = _path(settings)
    return None if path is None else _load_or_create(path)


def _path(settings: Settings) -> Path | None:
    """Return the secret's path, in the folder of a journal that is a file."""
    journal = settings.store.url.removeprefix(SQLITE)
    is_file = journal != settings.store.url and journal not in ("", ":memory:") and settings.store.persistence == "on"
    return Path(journal).parent / FILE if is_file else None


def _load_or_create(path: Path) -> bytes | None:
    """Return the secret in a file, created if it is missing; None if it can be neither read nor written."""
    fresh = secrets.token_bytes(SECRET_BYTES)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read(path)
    except OSError:
        return None
    with os.fdopen(descriptor, "wb") as file:
        file.write(fresh)
    return fresh


def _read(path: Path) -> bytes | None:
    try:
        secret = path.read_bytes()
    except OSError:
        return None
    return secret if len(secret) >= SECRET_BYTES else None
