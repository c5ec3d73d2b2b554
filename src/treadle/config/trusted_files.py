"""Stores which configuration files a person trusts, by path and content.

The files that such a file loads or starts belong to it (`bound`): if one of them changes, trust is asked for again.

A person who enters a folder has not read its treadle.toml. Trust is stored in the user's data directory, never beside
the file: a repository's content may come from anyone.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from treadle.core.errors import ConfigError

FILE_NAME = "trusted.json"
NAMED_MAX = 5
NOTHING: Mapping[str, str] = MappingProxyType({})
State = Literal["new", "changed", "trusted"]
_NOT_YET: dict[State, str] = {
    "new": "is not trusted: it was found in this folder, and could start programs or send your keys elsewhere",
    "changed": "has changed since it was trusted",
}


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """What a person agreed to: the sha256 of the file's content, and of every file that it loads or starts."""

    digest: str
    files: dict[str, str] = {}


class Doubt(msgspec.Struct, frozen=True, kw_only=True):
    """The trust state of a file: its path, the sha256 of its content and of its files.

    `changed` names the files that are not as they were when a person agreed.
    """

    path: str
    digest: str
    state: State
    files: dict[str, str] = {}
    changed: tuple[str, ...] = ()


class Untrusted(ConfigError):
    """A file was found that is not trusted."""

    code = "untrusted_config"

    def __init__(self, doubt: Doubt) -> None:
        super().__init__(
            trust_message(doubt),
            param="--config",
            hint="`treadle trust --show` says what it would do, `treadle trust` trusts it as it is now\n"
            f"--config {os.path.basename(doubt.path)}, or TREADLE_CONFIG, uses it without asking",
        )
        self.doubt = doubt


class Trust:
    """The trusted files, stored in one folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE_NAME

    def judge(self, file: Path, content: bytes, files: Mapping[str, str] = NOTHING) -> Doubt:
        """Return the trust state of a file with this content that loads or starts these files."""
        path, digest = os.path.realpath(file), hashlib.sha256(content).hexdigest()
        known, now = self.files().get(path), dict(files)
        if known is None:
            return Doubt(path=path, digest=digest, state="new", files=now)
        changed = [] if known.digest == digest else [path]
        changed += [each for each in sorted(now.keys() | known.files) if now.get(each) != known.files.get(each)]
        return Doubt(
            path=path, digest=digest, state="changed" if changed else "trusted", files=now, changed=tuple(changed)
        )

    def files(self) -> dict[str, Agreed]:
        """Return what was agreed to, by file; a memory that cannot be read holds nothing.

        Earlier releases stored only the digest of the file itself: then none of its files is trusted.
        """
        try:
            known = msgspec.json.decode(self._file.read_bytes(), type=dict[str, Agreed | str])
        except (OSError, msgspec.MsgspecError):
            return {}
        return {path: Agreed(digest=each) if isinstance(each, str) else each for path, each in known.items()}

    def add(self, doubt: Doubt) -> None:
        """Store that a person trusts the file.

        Raises: OSError, when it can not be written.
        """
        self._write({**self.files(), doubt.path: Agreed(digest=doubt.digest, files=doubt.files)})

    def remove(self, file: Path) -> bool:
        """Remove a file, which need not exist any more; return whether it was known.

        Raises: OSError.
        """
        known = self.files()
        if known.pop(os.path.realpath(file), None) is None:
            return False
        self._write(known)
        return True

    def _write(self, files: dict[str, Agreed]) -> None:
        """Replace the stored file atomically."""
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


def trust_message(doubt: Doubt) -> str:
    """Return why a file is not trusted, naming the files that changed."""
    others = [path for path in doubt.changed if path != doubt.path]
    if not others:
        return f"{doubt.path} {_NOT_YET[doubt.state]}"
    names = ", ".join(others[:NAMED_MAX]) + (f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else "")
    has = "has" if len(others) == 1 else "have"
    own = " It has changed itself, too." if doubt.path in doubt.changed else ""
    return f"{names}, which {doubt.path} loads or starts, {has} changed since it was trusted.{own}"
