"""Which files of working directories a person trusts: by their path and what was in them when they agreed.

Whoever enters a folder has not read its treadle.toml. It is remembered in the user's data directory, never beside the
file: what is in a repository was written by anybody.
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from treadle.canon.errors import ConfigError

FILE_NAME = "trusted.json"
State = Literal["new", "changed", "trusted"]
_NOT_YET: dict[State, str] = {
    "new": "is not trusted: it was found in this folder, and could start programs or send your keys elsewhere",
    "changed": "has changed since it was trusted",
}


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was read: where it is, the sha256 of its content, and what is known of it."""

    path: str
    digest: str
    state: State


class Untrusted(ConfigError):
    """A file was found, and nobody agreed that it is used."""

    code = "untrusted_config"

    def __init__(self, doubt: Doubt) -> None:
        super().__init__(
            f"{doubt.path} {_NOT_YET[doubt.state]}",
            param="--config",
            hint="`treadle trust --show` says what it would do, `treadle trust` trusts it as it is now\n"
            f"--config {os.path.basename(doubt.path)}, or TREADLE_CONFIG, uses it without asking",
        )
        self.doubt = doubt


class Trust:
    """What is remembered in one folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE_NAME

    def judge(self, file: Path, content: bytes) -> Doubt:
        """Say what is known of a file with this content."""
        path, digest = os.path.realpath(file), hashlib.sha256(content).hexdigest()
        known = self.files().get(path)
        return Doubt(path=path, digest=digest, state="new" if known is None else _compared(known, digest))

    def files(self) -> dict[str, str]:
        """Return the digest of every file that was agreed to; a memory that cannot be read holds nothing."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return {}

    def add(self, doubt: Doubt) -> None:
        """Remember that somebody agreed.

        Raises: OSError, when it can not be written.
        """
        self._write({**self.files(), doubt.path: doubt.digest})

    def remove(self, file: Path) -> bool:
        """Forget a file, which need not be there any more; tell whether it was known.

        Raises: OSError.
        """
        known = self.files()
        if known.pop(os.path.realpath(file), None) is None:
            return False
        self._write(known)
        return True

    def _write(self, files: dict[str, str]) -> None:
        """Replace the memory at once."""
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd, temporary = tempfile.mkstemp(dir=self._file.parent, prefix=f".{FILE_NAME}")
        try:
            with open(fd, "wb") as written:
                written.write(msgspec.json.encode(files))
            os.replace(temporary, self._file)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _compared(known: str, digest: str) -> State:
    return "trusted" if known == digest else "changed"
