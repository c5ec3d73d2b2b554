"""Remembers what each tool of a server looked like when it was first seen, so that a later change is noticed.

A server can show a harmless tool, be approved, and then tell the model something else under the same name. So a tool
whose words or schema changed stays out until somebody accepts it. The file is shared by the processes of a person.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import msgspec

from treadle.canon.errors import ConfigError
from treadle.canon.json import write_json

if sys.platform != "win32":
    import fcntl


class Seen(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of one server's tools: the digest that counts, and that of a change nobody accepted yet."""

    pinned: dict[str, str] = {}
    changed: dict[str, str] = {}


Known = dict[str, Seen]
"""By a digest of the place where the server is."""


class Pins:
    """Digests by server and tool; `path` is where they are kept, None keeps them in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory: Known = {}

    def check(self, place: str, digests: Mapping[str, str]) -> frozenset[str]:
        """Return the tools that changed since they were pinned; those not seen before are pinned now.

        Raises: ConfigError, when the file cannot be read or written.
        """
        with self._opened() as known:
            seen = known.setdefault(_key(place), Seen())
            for name, digest in digests.items():
                if seen.pinned.setdefault(name, digest) == digest:
                    seen.changed.pop(name, None)
                else:
                    seen.changed[name] = digest
            return frozenset(name for name in digests if name in seen.changed)

    def accept(self, place: str, names: Iterable[str] | None = None) -> list[str]:
        """Take changed tools as they were last seen (all of a server when none is named), and return their names.

        Raises: ConfigError.
        """
        with self._opened() as known:
            seen = known.get(_key(place), Seen())
            wanted = [name for name in (list(seen.changed) if names is None else names) if name in seen.changed]
            for name in wanted:
                seen.pinned[name] = seen.changed.pop(name)
            return wanted

    @contextlib.contextmanager
    def _opened(self) -> Generator[Known, None, None]:
        if self._path is None:
            yield self._memory
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self._path):
                before = self._path.read_bytes() if self._path.exists() else b"{}"
                known = msgspec.json.decode(before, type=Known)
                yield known
                after = write_json(known)
                if after != before:
                    _replace(self._path, after)
        except (OSError, msgspec.MsgspecError) as error:
            hint = "delete the file to pin all tools as they are now"
            raise ConfigError(f"{self._path}: the pins of MCP tools cannot be kept: {error}", hint=hint) from error


def _key(place: str) -> str:
    return hashlib.sha256(place.encode("utf-8", "replace")).hexdigest()[:16]


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    if sys.platform == "win32":
        yield
        return
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(name, path)
