"""Recording: what the network really carried, chunk by chunk, into one file for each run.

A call is kept in memory until it has ended and then written in one piece, because only then can a secret be found that
was cut in two by the network. A disk that fails never fails a call: it is logged, and that call is not recorded.
"""

import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import ConfigError
from treadle.http.client_connection import BytesConsumer
from treadle.providers.cassettes.file_format import (
    SUFFIX,
    VERSION,
    Call,
    CassetteEnd,
    CassetteRequest,
    CassetteResponse,
    Chunk,
    Header,
    How,
    text_or_base64,
    write_call,
    write_header,
)
from treadle.providers.provider_client import HttpAnswer, drain, read_into
from treadle.providers.provider_endpoint import SECRET_CHARS_MIN, Endpoint

KEY_CHARS_MIN = 6
REDACTED = "[redacted]"
_SECRET_HEADER = re.compile(r"api-?key|token$|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_ODD = re.compile(r"[^A-Za-z0-9._-]")

log = logging.getLogger(__name__)


class Secrets:
    """The values that no cassette may hold: the keys of all endpoints, and what their configured headers say."""

    def __init__(self, endpoints: Iterable[Endpoint] = ()) -> None:
        found: set[str] = set()
        for endpoint in endpoints:
            found |= {value for value in endpoint.headers.values() if len(value) >= SECRET_CHARS_MIN}
            if endpoint.key is not None and len(endpoint.key.reveal()) >= KEY_CHARS_MIN:
                found.add(endpoint.key.reveal())
        longest_first = sorted(found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)).encode()) if found else None

    def blank(self, data: bytes) -> bytes:
        """Return the bytes without the secrets."""
        return data if self._pattern is None else self._pattern.sub(REDACTED.encode(), data)

    def blank_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers without those that carry a secret, and without the secrets in others."""
        kept = {name.lower(): value for name, value in headers.items() if not _SECRET_HEADER.search(name)}
        return {name: self.blank(value.encode("utf-8", "replace")).decode() for name, value in kept.items()}

    def blank_chunks(self, chunks: Sequence[bytes]) -> list[bytes]:
        """Return the chunks without the secrets, also those that were cut in two; each stays where it was."""
        whole = b"".join(chunks)
        spans = [] if self._pattern is None else [match.span() for match in self._pattern.finditer(whole)]
        if not spans:
            return list(chunks)
        blanked: list[bytes] = []
        start = 0
        for chunk in chunks:
            end = start + len(chunk)
            blanked.append(_without(whole, start, end, spans))
            start = end
        return blanked


def _without(whole: bytes, start: int, end: int, spans: Sequence[tuple[int, int]]) -> bytes:
    """Return a piece of the whole without the spans; the word for one stands where it begins."""
    kept, place = b"", start
    for left, right in spans:
        if right <= start or left >= end:
            continue
        kept += whole[place : max(left, place)] + (REDACTED.encode() if left >= start else b"")
        place = min(right, end)
    return kept + whole[place:end]


class Recorder:
    """Writes the calls of each run to a file of its own in one folder, readable by its owner only."""

    def __init__(
        self,
        folder: Path,
        secrets: Secrets,
        *,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._secrets = secrets
        self._now = now
        self._monotonic = monotonic
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"can not record to {folder}: {error.strerror or error}", param="record") from None

    def begin(self, endpoint: Endpoint, path: str, body: bytes, headers: Mapping[str, str], run_id: str) -> "Recording":
        """Begin to record a call."""
        asked = CassetteRequest(
            at=self._now(),
            path=path,
            headers=self._secrets.blank_headers(headers),
            **text_or_base64(self._secrets.blank(body)),
        )
        return Recording(asked, self._secrets, self._monotonic, lambda call: self._write(endpoint, run_id, call))

    def _write(self, endpoint: Endpoint, run_id: str, call: Call) -> None:
        file = recorded_file(self._folder, run_id, endpoint)
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "ab") as out:
                head = write_header(_header(endpoint)) if out.tell() == 0 else b""
                out.write(head + write_call(call))
        except OSError as error:
            log.warning("a call of run %s was not recorded: %s", run_id or "-", error.strerror or error)


def recorded_file(folder: Path, run_id: str, endpoint: Endpoint) -> Path:
    """Return where the calls of a run to an endpoint are recorded."""
    name = _ODD.sub("_", f"{run_id or 'calls'}.{endpoint.name}")
    return folder / f"{name}{SUFFIX}"


def _header(endpoint: Endpoint) -> Header:
    return Header(
        version=VERSION,
        upstream=endpoint.name,
        protocol=endpoint.protocol,
        base_url=endpoint.base_url,
        quirks=endpoint.quirks,
    )


class Recording:
    """One call while it lasts."""

    def __init__(
        self, asked: CassetteRequest, secrets: Secrets, monotonic: Callable[[], float], write: Callable[[Call], None]
    ) -> None:
        self._asked = asked
        self._secrets = secrets
        self._monotonic = monotonic
        self._write = write
        self._last = monotonic()
        self._answered: CassetteResponse | None = None
        self._chunks: list[tuple[float, bytes]] = []
        self._is_over = False

    def answer(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head of the answer."""
        kept = self._secrets.blank_headers(headers)
        self._answered = CassetteResponse(status=status, headers=kept, after_s=self._passed())

    def chunk(self, data: bytes) -> None:
        """Take what one read of the network gave."""
        self._chunks.append((self._passed(), data))

    def end(self, how: How) -> None:
        """Write the call down; without effect the second time."""
        if self._is_over:
            return
        self._is_over = True
        blanked = self._secrets.blank_chunks([data for _, data in self._chunks])
        chunks = [
            Chunk(after_s=after_s, **text_or_base64(data))
            for (after_s, _), data in zip(self._chunks, blanked, strict=True)
            if data
        ]
        ended = CassetteEnd(how=how, after_s=self._passed())
        self._write(Call(asked=self._asked, answered=self._answered, chunks=tuple(chunks), ended=ended))

    def _passed(self) -> float:
        now = self._monotonic()
        passed, self._last = now - self._last, now
        return round(max(0.0, passed), 6)


class RecordedAnswer(msgspec.Struct, kw_only=True):
    """An answer that is recorded while it is read; it is its own body."""

    inner: HttpAnswer
    recording: Recording

    @property
    def status(self) -> int:
        """Return its status."""
        return self.inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Return its headers."""
        return self.inner.headers

    @property
    def content_type(self) -> str:
        """Return its type without parameters."""
        return self.inner.content_type

    @property
    def content(self) -> "RecordedAnswer":
        """Return its body."""
        return self

    async def readany(self) -> bytes:
        """Read on, and note what came and when.

        Raises: OSError.
        """
        try:
            data = await self.inner.content.readany()
        except OSError as error:
            self.recording.end("timeout" if isinstance(error, TimeoutError) else "reset")
            raise
        if data:
            self.recording.chunk(data)
        else:
            self.recording.end("eof")
        return data

    def read_into(self, take: BytesConsumer) -> Awaitable[Any]:
        """Read on until `take` makes something of it. Raises: OSError."""
        return read_into(self.readany, take)

    async def end(self) -> None:
        """Read on to the end, for it is recorded."""
        try:
            await drain(self.readany)
        finally:
            self.close()

    def close(self) -> None:
        """Give it up; what was read until now is kept."""
        self.recording.end("closed")
        self.inner.close()
