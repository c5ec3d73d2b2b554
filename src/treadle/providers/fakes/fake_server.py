"""A real HTTP server on loopback that serves scripts, the demo model or fixed bytes in every protocol.

For black-box tests and foreign clients: it stores requests, detects disconnected clients, and can refuse, pause or hang
up, always triggered by events and byte counts, never by time. It must not be reachable from outside.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import msgspec

from treadle.core.errors import ConfigError, ErrorInfo, NotFound, TreadleError
from treadle.core.items import text_message
from treadle.core.json import write_json
from treadle.core.plan import Plan
from treadle.core.request import Request
from treadle.http.loopback_server import Listener, LoopbackAnswer, LoopbackRequest
from treadle.protocols.error_envelopes import write_error
from treadle.protocols.protocol_registry import PROTOCOLS, ProtocolName, ProtocolRow
from treadle.providers.demo_model.model import NAME, reply_to
from treadle.providers.fakes.reply_rendering import cut, write_body, write_frames, write_refusal
from treadle.providers.fakes.scripted_model import Script, ScriptMismatch, ScriptPlayer, read_script
from treadle.providers.fakes.scripted_reply import Reply

HOST = "127.0.0.1"
BODY_BYTES_MAX = 33_554_432

MODELS = "/v1/models"


class Canned(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed response.

    After `hold_after` bytes it waits for the server's `release`, or for `hold_s`; after `abort_after` it hangs up.
    """

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = msgspec.field(default_factory=lambda: {"content-type": "text/event-stream"})
    chunk_bytes: int | None = None
    hold_after: int | None = None
    hold_s: float | None = None
    abort_after: int | None = None


class CannedTable(msgspec.Struct, frozen=True, kw_only=True):
    """Fixed responses by model name."""

    models: dict[str, Canned]


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One received request."""

    path: str
    headers: dict[str, str]
    body: bytes


Source = Script | CannedTable | Callable[[Plan], Reply]
"""A script, fixed responses, or a function from plan to reply, such as the demo model's."""


class ScriptServer:
    """Serves one source at `url` while it is entered; `chunk_bytes` is the size of its writes."""

    def __init__(self, source: Source, *, port: int = 0, chunk_bytes: int | None = None) -> None:
        self.url = ""
        self.received: list[Received] = []
        self.connections: set[object] = set()
        self.disconnected = asyncio.Event()
        self.release = asyncio.Event()
        self.player = ScriptPlayer(source) if isinstance(source, Script) else None
        self._source = source
        self._port = port
        self._chunk_bytes = chunk_bytes
        self._listener = Listener(self._handle, body_bytes_max=BODY_BYTES_MAX)

    async def __aenter__(self) -> "ScriptServer":
        port = await self._listener.open(HOST, self._port)
        self.url = f"http://{HOST}:{port}/v1"
        return self

    def base_url(self, protocol: ProtocolName) -> str:
        """Return the base URL for an endpoint with that protocol."""
        return self.url.removesuffix("v1") + (PROTOCOLS[protocol].version or "v1")

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        await self._listener.close()

    async def _handle(self, request: LoopbackRequest, answer: LoopbackAnswer) -> None:
        if request.path == MODELS and request.method == "GET":
            await answer.send(200, self._models())
            return
        row = _route(request.path)
        if row is None or request.method != "POST":
            await answer.send(404 if row is None else 405, b"")
            return
        self.received.append(Received(path=unquote(request.path), headers=request.headers, body=request.body))
        self.connections.add(request.peer)
        try:
            canned = self._answer(row.read_posted(request.path, request.body))
        except (TreadleError, ScriptMismatch) as error:
            await _refuse(answer, row.name, error)
            return
        try:
            await self._send(answer, canned)
        except (asyncio.CancelledError, ConnectionError):
            self.disconnected.set()
            raise

    def _models(self) -> bytes:
        names = (
            list(self._source.models) if isinstance(self._source, CannedTable) else ["script" if self.player else NAME]
        )
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "treadle"} for name in names]
        return write_json({"object": "list", "data": data})

    def _answer(self, request: Request) -> Canned:
        match self._source:
            case CannedTable():
                return _find_canned(self._source, request.model)
            case Script():
                assert self.player is not None
                return _encode_reply(self.player.reply(plan_of(request)), request, self._chunk_bytes)
            case _:
                return _encode_reply(self._source(plan_of(request)), request, self._chunk_bytes)

    async def _send(self, answer: LoopbackAnswer, canned: Canned) -> None:
        """Send the bytes, pausing and hanging up where configured."""
        answer.start(canned.status, canned.headers)
        stops = sorted(
            {len(canned.body), *(stop for stop in (canned.hold_after, canned.abort_after) if stop is not None)}
        )
        start = 0
        for stop in stops:
            for chunk in cut(canned.body[start:stop], canned.chunk_bytes):
                await answer.write(chunk)
            start = stop
            if stop == canned.hold_after:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.release.wait(), canned.hold_s)
            if stop == canned.abort_after:
                return
        await answer.finish()


def _route(path: str) -> ProtocolRow | None:
    """Return the protocol of a path."""
    return next((row for row in PROTOCOLS.values() if row.posted_path.fullmatch(path)), None)


def plan_of(request: Request) -> Plan:
    """Return the plan of the model call that this request makes."""
    leading = (text_message("system", request.instructions),) if request.instructions else ()
    return Plan(
        items=(*leading, *request.items),
        model=request.model,
        options=request.options,
        tool_choice=request.tool_choice,
        tools=request.tools,
    )


def _find_canned(table: CannedTable, model: str) -> Canned:
    if model not in table.models:
        raise NotFound(f"nothing is canned for the model {model!r}", param="model")
    return table.models[model]


def _encode_reply(reply: Reply, request: Request, chunk_bytes: int | None) -> Canned:
    """Encode a reply as the request wants it, whole or as a stream, with its network faults."""
    faults = reply.faults
    protocol = cast("ProtocolName", request.protocol)
    if faults.status is not None:
        headers, body = write_refusal(faults, protocol)
        return Canned(status=faults.status, headers=headers, body=body)
    if not request.surface.stream:
        body = write_body(reply, model=request.model, protocol=protocol, tools=request.tools)
        return Canned(headers={"content-type": "application/json"}, body=body)
    frames = write_frames(reply, model=request.model, protocol=protocol, tools=request.tools)
    half = sum(map(len, frames[: (len(frames) + 1) // 2]))
    return Canned(
        body=b"".join(frames),
        chunk_bytes=chunk_bytes,
        hold_after=None if faults.stall_s is None else half,
        hold_s=faults.stall_s,
        abort_after=faults.disconnect_after,
    )


async def _refuse(answer: LoopbackAnswer, protocol: str, error: TreadleError | ScriptMismatch) -> None:
    info = error.info if isinstance(error, TreadleError) else ErrorInfo(code="script", message=str(error), status=500)
    await answer.send(info.status, write_error(protocol, info))


def main(arguments: list[str] | None = None) -> int:
    """Serve the demo model or a script until interrupted, and print where."""
    parser = argparse.ArgumentParser(prog="python -m treadle.providers.fakes.fake_server", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 picks a free one")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--demo", action="store_true", help="serve the demo model (the default)")
    what.add_argument("--script", type=Path, metavar="FILE.toml", help="serve the [[script]] tables of this file")
    options = parser.parse_args(arguments)
    try:
        source: Source = read_script(options.script.read_text("utf-8")) if options.script else reply_to
    except (OSError, ConfigError) as error:
        parser.error(str(error))
    try:
        asyncio.run(_serve(source, options.port))
    except KeyboardInterrupt:
        return 0
    return 0


async def _serve(source: Source, port: int) -> None:
    async with ScriptServer(source, port=port) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
