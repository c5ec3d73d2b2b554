"""Pins the declarations of MCP tools: detects tools that changed or appeared after the first listing.

A server can show a harmless tool, be approved, and then change its description or add another tool. So a tool that
changed, or was not in the first listing, stays out until a person accepts it. The file is shared by the processes of
one user.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.json import cut_text, write_json

if sys.platform != "win32":
    import fcntl


NOTHING: Mapping[str, str] = MappingProxyType({})
TEXT_BYTES_MAX = 32_768
"""How much of a tool's text is stored for review; the digest covers all of it."""

CHANGED, NEW, REFUSED = (
    "it changed since it was agreed to",
    "it is new since the first listing",
    "a person refused it",
)
Kind = Literal["changed", "new", "refused"]
REASONS: Mapping[Kind, str] = {"changed": CHANGED, "new": NEW, "refused": REFUSED}


class ToolAppearance(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's declaration: the digest of all of it, and its text for review."""

    digest: str
    text: str = ""


class ToolAwaitingReview(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that stays out: why, its accepted text (empty for a new tool), and its current text.

    A decision names `digest`, so that it applies to the text that was reviewed.
    """

    tool: str
    kind: Kind
    digest: str
    before: str
    now: str

    @property
    def reason(self) -> str:
        """Return why it stays out."""
        return REASONS[self.kind]


class SeenTools(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The stored state of one server's tools: accepted, waiting and refused digests, and the texts."""

    pinned: dict[str, str] = {}
    changed: dict[str, str] = {}
    refused: dict[str, str] = {}
    texts: dict[str, str] = {}

    def waiting(self, name: str) -> ToolAwaitingReview | None:
        """Return the review of a tool that stays out; None if it is accepted."""
        digest = self.changed.get(name)
        if digest is None:
            return None
        kind = "new" if name not in self.pinned else "changed"
        return ToolAwaitingReview(
            tool=name,
            kind="refused" if self.refused.get(name) == digest else kind,
            digest=digest,
            before=self.texts.get(self.pinned.get(name, ""), ""),
            now=self.texts.get(digest, ""),
        )


Known = dict[str, SeenTools]
"""By a digest of the server's address or command."""


class Pins:
    """Digests by server and tool, stored in the file at `path`, or in memory if it is None."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory: Known = {}

    def check(
        self, place: str, looks: Mapping[str, ToolAppearance], others: Mapping[str, str] = NOTHING
    ) -> dict[str, str]:
        """Return the tools that stay out, and why. A server's first listing with tools is accepted as it is.

        `others` are digests of excluded tools, pinned with the first listing: enabling one later needs no review.

        Raises: ConfigError, when the file cannot be read or written.
        """
        with self._opened() as known:
            seen = known.setdefault(_key(place), SeenTools())
            if not seen.pinned:
                seen.pinned = {**others, **{name: look.digest for name, look in looks.items()}}
                seen.changed.clear()
            for name, look in looks.items():
                seen.texts[look.digest] = cut_text(look.text, TEXT_BYTES_MAX)
                if seen.pinned.get(name) == look.digest:
                    seen.changed.pop(name, None)
                else:
                    seen.changed[name] = look.digest
            _forget_texts(seen)
            found = {name: seen.waiting(name) for name in looks}
            return {name: waiting.reason for name, waiting in found.items() if waiting is not None}

    def waiting(self, place: str) -> list[ToolAwaitingReview]:
        """Return the tools of a server that stay out, as last listed.

        Raises: ConfigError.
        """
        if self._path is not None and not self._path.exists():
            return []  # reading must not create the file
        with self._opened() as known:
            seen = known.get(_key(place), SeenTools())
            return [waiting for name in sorted(seen.changed) if (waiting := seen.waiting(name)) is not None]

    def accept(self, place: str, names: Iterable[str] | None = None, digest: str | None = None) -> list[str]:
        """Accept tools as last listed, and return their names; None accepts all that wait and were not refused.

        With a digest, only a tool that still has it.

        Raises: ConfigError.
        """
        return self._decide(place, names, digest, is_accepted=True)

    def refuse(self, place: str, names: Iterable[str] | None = None, digest: str | None = None) -> list[str]:
        """Refuse tools until they change again, and return their names.

        Raises: ConfigError.
        """
        return self._decide(place, names, digest, is_accepted=False)

    def _decide(self, place: str, names: Iterable[str] | None, digest: str | None, *, is_accepted: bool) -> list[str]:
        with self._opened() as known:
            seen = known.get(_key(place), SeenTools())
            waiting = [name for name in seen.changed if seen.refused.get(name) != seen.changed[name]]
            wanted = waiting if names is None else [name for name in names if name in seen.changed]
            wanted = [name for name in wanted if digest is None or seen.changed[name] == digest]
            for name in wanted:
                if is_accepted:
                    seen.pinned[name] = seen.changed.pop(name)
                    seen.refused.pop(name, None)
                else:
                    seen.refused[name] = seen.changed[name]
            _forget_texts(seen)
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


def _forget_texts(seen: SeenTools) -> None:
    """Drop the texts of digests that are neither pinned nor waiting."""
    used = {*seen.pinned.values(), *seen.changed.values()}
    seen.texts = {digest: text for digest, text in seen.texts.items() if digest in used}


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
