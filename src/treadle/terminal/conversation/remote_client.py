"""HTTP client for a remote Treadle: JSON requests, errors mapped to their types, resumable event streams."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from treadle.core.errors import (
    ConfigError,
    Conflict,
    ErrorInfo,
    Exhausted,
    Forbidden,
    NotFound,
    ProtocolError,
    TreadleError,
    Unauthorised,
)
from treadle.core.events import KeptAlive, RunEnded, RunEvent, read_event
from treadle.protocols.sse import SseFrame, SseReader

if TYPE_CHECKING:
    from treadle.http.client_pool import ClientPool, ClientReply

CONNECT_S = 10.0
ANSWER_S = 60.0
IDLE_S = 60.0
"""A stream that is silent for longer is dead: the server sends a keep-alive every ten seconds."""
TRIES = 8
SENT_MAX = 3
PAUSE_S = 0.25
PAUSE_MAX_S = 4.0
FRAME_BYTES_MAX = 67_108_864
CONNECTIONS_MAX = 64
_KINDS: dict[int, type[TreadleError]] = {
    400: ProtocolError,
    401: Unauthorised,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: ProtocolError,
    429: Exhausted,
}
_AWAY = frozenset({502, 503, 504})
"""The statuses of a proxy while the server behind it restarts."""
T = TypeVar("T")

PersonKey = Callable[[], str]
"""Makes a person's key for the server."""


class Unreachable(TreadleError):
    """The server can not be reached."""

    code = "unreachable"
    status = 503
    retryable = True


class _Refusal(msgspec.Struct):
    error: ErrorInfo


class RemoteClient:
    """One server.

    With `person` a request that needs a person is sent again with such a key: it is shown to no server that does not
    ask for it.
    """

    def __init__(self, url: str, key: str = "", person: PersonKey | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            hint = "such as http://127.0.0.1:8700"
            raise ConfigError(f"{url!r} is no address of a server", param="--server", hint=hint)
        self.place = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._person = person
        self._pool: ClientPool | None = None

    async def open(self) -> None:
        """Make connections possible."""
        from treadle.http.client_pool import ClientPool

        self._pool = ClientPool(CONNECTIONS_MAX)

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.close()

    async def get(self, path: str, kind: type[T], query: Mapping[str, object] | None = None) -> T:
        """Send a GET request and decode the answer. Raises: TreadleError."""
        return _read(await self._ask("GET", path, None, query), kind)

    async def post(self, path: str, body: object, kind: type[T], *, headers: Mapping[str, str] | None = None) -> T:
        """Send a POST request and decode the answer. Raises: TreadleError."""
        return _read(await self._ask("POST", path, body, None, headers), kind)

    async def post_again(self, path: str, body: object, kind: type[T], key: str) -> T:
        """Send a POST request with an idempotency key, and retry while the server is unreachable.

        Raises: TreadleError.
        """
        for number in range(SENT_MAX - 1):
            try:
                return await self.post(path, body, kind, headers={"idempotency-key": key})
            except Unreachable:
                await asyncio.sleep(PAUSE_S * 2**number)
        return await self.post(path, body, kind, headers={"idempotency-key": key})

    async def patch(self, path: str, body: object, kind: type[T]) -> T:
        """Send a PATCH request and decode the answer. Raises: TreadleError."""
        return _read(await self._ask("PATCH", path, body, None), kind)

    async def delete(self, path: str, query: Mapping[str, object] | None = None) -> None:
        """Send a DELETE request. Raises: TreadleError."""
        await self._ask("DELETE", path, None, query)

    async def events(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run until its end; a broken connection is resumed after the last event.

        Raises: TreadleError.
        """
        seen, tries = "0", 0
        while True:
            try:
                async for frame in self._frames(f"/treadle/v1/runs/{segment(run_id)}/events", {"after": seen}):
                    event = read_event(frame.data)
                    if isinstance(event, KeptAlive) or frame.id in ("", seen):
                        # A server that lost its journal ends the stream with an event without a number; another
                        # server may have the run, so this is no end.
                        tries = 0 if isinstance(event, KeptAlive) else tries
                        continue
                    # Only attempts without progress count: a long run may lose its connection often.
                    tries, seen = 0, frame.id
                    yield event
                    if isinstance(event, RunEnded):
                        return
            except Unreachable:
                if tries >= TRIES:
                    raise
            tries += 1
            if tries > TRIES:
                raise Unreachable(f"{self.place} ends the stream of {run_id} again and again")
            await asyncio.sleep(min(PAUSE_MAX_S, PAUSE_S * 2**tries))

    async def _frames(self, path: str, query: Mapping[str, object]) -> AsyncGenerator[SseFrame, None]:
        reader = SseReader(FRAME_BYTES_MAX)
        try:
            answer = await self._send("GET", path, b"", query)
            try:
                if answer.status in _AWAY:
                    raise self._unreachable(OSError(f"status {answer.status}"))
                if answer.status >= 400:
                    raise _refused(answer.status, await answer.read_all(FRAME_BYTES_MAX))
                while piece := await answer.readany():
                    for frame in reader.feed(piece):
                        yield frame
            finally:
                answer.close()
        except OSError as error:
            raise self._unreachable(error) from None

    async def _ask(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, object] | None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        data = b"" if body is None else msgspec.json.encode(body)
        sent = {**({"content-type": "application/json"} if data else {}), **(headers or {})}
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._send(method, path, data, query or {}, sent)
                try:
                    content = await answer.read_all(FRAME_BYTES_MAX)
                finally:
                    answer.close()
        except OSError as error:
            raise self._unreachable(error) from None
        if answer.status < 400:
            return content
        error = _refused(answer.status, content)
        if error.info.code == "person_needed" and self._person is not None and "authorization" not in sent:
            key = {"authorization": f"Bearer {self._person()}"}
            return await self._ask(method, path, body, query, {**(headers or {}), **key})
        raise error

    async def _send(
        self,
        method: str,
        path: str,
        data: bytes,
        query: Mapping[str, object],
        headers: Mapping[str, str] | None = None,
    ) -> "ClientReply":
        """Make a request; one that only asks is made again where the server closed its connection just then.

        Raises: OSError, Unreachable.
        """
        from treadle.http.client_errors import ConnectionBroken

        assert self._pool is not None
        words = urlencode(_words(query))
        url = f"{self.place}{path}{'?' if words else ''}{words}"
        sent = {"accept": "*/*", "user-agent": "treadle", **self._headers, **(headers or {})}
        ask = partial(self._pool.request, method, url, sent, data, connect_s=CONNECT_S, idle_s=IDLE_S)
        try:
            answer = await ask()
        except ConnectionBroken:
            if method != "GET":
                raise
            answer = await ask()
        if 300 <= answer.status < 400:
            place = answer.headers.get("location", "elsewhere")
            answer.close()
            raise Unreachable(f"{self.place} redirects to {place[:200]}", hint="name that address with --server")
        return answer

    def _unreachable(self, error: Exception) -> Unreachable:
        why = str(error) or type(error).__name__
        return Unreachable(f"{self.place} can not be reached: {why}", hint="is `treadle serve` running there?")


def segment(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote(name, safe="")


def _words(query: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items() if value not in (None, "")}


def _read(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise Unreachable(
            f"the server does not answer as a Treadle does: {error}", hint="is the address right?"
        ) from None


def _refused(status: int, content: bytes) -> TreadleError:
    """Return the error that a server answered with, as the same kind of error here."""
    try:
        info = msgspec.json.decode(content, type=_Refusal).error
    except msgspec.MsgspecError:
        info = ErrorInfo(code="http_error", message=f"the server answered with status {status}")
    kind = _KINDS.get(status, TreadleError)
    return kind(info.message, code=info.code, param=info.param, hint=info.hint)
