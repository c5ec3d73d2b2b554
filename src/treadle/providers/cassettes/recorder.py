"""Records calls as the network carried them, chunk by chunk, into one file per run.

A call stays in memory until it has ended and is then written in one piece, because only then can a secret that was
split between two reads be found. A disk error never fails a call: it is logged, and the call is not recorded.
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
    """The values that no cassette may contain: the keys and the configured header values of all endpoints."""

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
        """Return the headers without secret ones, and without secrets in the others."""
        public = {name.lower(): value for name, value in headers.items() if not _SECRET_HEADER.search(name)}
        return {name: self.blank(value.encode("utf-8", "replace")).decode() for name, value in public.items()}

    def blank_chunks(self, chunks: Sequence[bytes]) -> list[bytes]:
        """Return the chunks without secrets, even ones split between chunks; chunk boundaries stay."""
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
    """Return a part of the whole without the spans; each is replaced where it starts."""
    text, place = b"", start
    for left, right in spans:
        if right <= start or left >= end:
            continue
        text += whole[place : max(left, place)] + (REDACTED.encode() if left >= start else b"")
        place = min(right, end)
    return text + whole[place:end]


class Recorder:
    """Writes the calls of each run to its own file in one folder, readable by its owner only."""

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
        """Start recording a call."""
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
    """Return the file for a run's calls to an endpoint."""
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
    """One call that is being recorded."""

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
        """Record the head of the response."""
        recorded = self._secrets.blank_headers(headers)
        self._answered = CassetteResponse(status=status, headers=recorded, after_s=self._elapsed_s())

    def chunk(self, data: bytes) -> None:
        """Record one network read."""
        self._chunks.append((self._elapsed_s(), data))

    def end(self, how: How) -> None:
        """Write the call; a second time has no effect."""
        if self._is_over:
            return
        self._is_over = True
        blanked = self._secrets.blank_chunks([data for _, data in self._chunks])
        chunks = [
            Chunk(after_s=after_s, **text_or_base64(data))
            for (after_s, _), data in zip(self._chunks, blanked, strict=True)
            if data
        ]
        ended = CassetteEnd(how=how, after_s=self._elapsed_s())
        self._write(Call(asked=self._asked, answered=self._answered, chunks=tuple(chunks), ended=ended))

    def _elapsed_s(self) -> float:
        now = self._monotonic()
        elapsed_s, self._last = now - self._last, now
        return round(max(0.0, elapsed_s), 6)


class RecordedAnswer(msgspec.Struct, kw_only=True):
    """A response that is recorded while it is read; also its own body."""

    inner: HttpAnswer
    recording: Recording

    @property
    def status(self) -> int:
        """Return the status code."""
        return self.inner.status

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers."""
        return self.inner.headers

    @property
    def content_type(self) -> str:
        """Return the media type without parameters."""
        return self.inner.content_type

    @property
    def content(self) -> "RecordedAnswer":
        """Return the body: this object."""
        return self

    async def readany(self) -> bytes:
        """Read the next bytes, and record them with their time.

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
        """Pass reads to `take` until it returns a value. Raises: OSError."""
        return read_into(self.readany, take)

    async def end(self) -> None:
        """Read the response to its end, so that the recording is complete."""
        try:
            await drain(self.readany)
        finally:
            self.close()

    def close(self) -> None:
        """Close the response; what was read so far is recorded."""
        self.recording.end("closed")
        self.inner.close()
