"""Scripts, the demo model and canned bytes, served as a real HTTP server of every protocol on loopback.

For black-box tests and foreign clients: it keeps what it was asked, notices a client that goes away, and can refuse,
stop half-way, or hang up, always by events and byte counts and never by time. It must not be reachable from outside.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import msgspec
from aiohttp import web

from treadle.canon.errors import ConfigError, ErrorInfo, NotFound, TreadleError
from treadle.canon.items import text_message
from treadle.canon.json import write_json
from treadle.canon.plan import Plan
from treadle.canon.request import Request
from treadle.upstream.demo.model import NAME, reply_to
from treadle.upstream.endpoint import ProtocolName
from treadle.upstream.render import cut, write_body, write_frames, write_refusal
from treadle.upstream.reply import Reply
from treadle.upstream.script import Script, ScriptMismatch, ScriptPlayer, read_script
from treadle.wire import gemini
from treadle.wire.errors import write_error
from treadle.wire.protocols import PROTOCOLS

HOST = "127.0.0.1"
BODY_BYTES_MAX = 33_554_432

PATHS: dict[ProtocolName, tuple[str, ...]] = {
    "chat": ("/v1/chat/completions",),
    "responses": ("/v1/responses",),
    "messages": ("/v1/messages",),
    "gemini": ("/v1beta/models/{model}:{verb}", "/v1/models/{model}:{verb}"),
}
_STREAM_VERB = "streamGenerateContent"


class Canned(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as bytes.

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
    """Answers by the name of the model that is asked."""

    models: dict[str, Canned]


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


Source = Script | CannedTable | Callable[[Plan], Reply]
"""A script, canned bytes, or a function that replies, such as the demo's."""


class ScriptServer:
    """Serves one source at `url` while it is entered; `chunk_bytes` cuts what it streams."""

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
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "ScriptServer":
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/v1/models", self._models)
        for name, paths in PATHS.items():
            for path in paths:
                app.router.add_post(path, self._handler(name))
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port)
        await site.start()
        self.url = f"http://{HOST}:{self._runner.addresses[0][1]}/v1"
        return self

    def base_url(self, protocol: ProtocolName) -> str:
        """Return what an endpoint of that protocol has to be configured with."""
        return self.url.removesuffix("v1") + ("v1beta" if protocol == "gemini" else "v1")

    async def __aexit__(self, *_: object) -> None:
        self.release.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        names = (
            list(self._source.models) if isinstance(self._source, CannedTable) else ["script" if self.player else NAME]
        )
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "treadle"} for name in names]
        return _json({"object": "list", "data": data})

    def _handler(self, protocol: ProtocolName) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            self.received.append(Received(path=request.path, headers=dict(request.headers), body=body))
            self.connections.add(request.get_extra_info("peername"))
            try:
                canned = self._answer(_read(protocol, request, body))
            except (TreadleError, ScriptMismatch) as error:
                return _refuse(protocol, error)
            try:
                return await self._send(request, canned)
            except (asyncio.CancelledError, ConnectionError):
                self.disconnected.set()
                raise

        return handle

    def _answer(self, request: Request) -> Canned:
        match self._source:
            case CannedTable():
                return _take(self._source, request.model)
            case Script():
                assert self.player is not None
                return _can(self.player.reply(plan_of(request)), request, self._chunk_bytes)
            case _:
                return _can(self._source(plan_of(request)), request, self._chunk_bytes)

    async def _send(self, request: web.Request, canned: Canned) -> web.StreamResponse:
        """Send the bytes, holding and hanging up where they say so."""
        response = web.StreamResponse(status=canned.status, headers=canned.headers)
        await response.prepare(request)
        stops = sorted(
            {len(canned.body), *(stop for stop in (canned.hold_after, canned.abort_after) if stop is not None)}
        )
        start = 0
        for stop in stops:
            for chunk in cut(canned.body[start:stop], canned.chunk_bytes):
                await response.write(chunk)
            start = stop
            if stop == canned.hold_after:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.release.wait(), canned.hold_s)
            if stop == canned.abort_after:
                assert request.transport is not None
                request.transport.close()
                return response
        await response.write_eof()
        return response


def _read(protocol: ProtocolName, request: web.Request, body: bytes) -> Request:
    """Read what was asked; Gemini says model and stream in the path."""
    if protocol != "gemini":
        return PROTOCOLS[protocol].read_request(body)
    is_stream = request.match_info["verb"] == _STREAM_VERB
    return gemini.read_request(body, model=request.match_info["model"], stream=is_stream)


def plan_of(request: Request) -> Plan:
    """Return what a model is asked by this request, as the plan of one call."""
    leading = (text_message("system", request.instructions),) if request.instructions else ()
    return Plan(
        items=(*leading, *request.items),
        model=request.model,
        options=request.options,
        tool_choice=request.tool_choice,
        tools=request.tools,
    )


def _take(table: CannedTable, model: str) -> Canned:
    if model not in table.models:
        raise NotFound(f"nothing is canned for the model {model!r}", param="model")
    return table.models[model]


def _can(reply: Reply, request: Request, chunk_bytes: int | None) -> Canned:
    """Spell a reply as the request wants it, whole or as a stream, with the faults that a network can have."""
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


def _refuse(protocol: str, error: TreadleError | ScriptMismatch) -> web.Response:
    info = error.info if isinstance(error, TreadleError) else ErrorInfo(code="script", message=str(error), status=500)
    return web.Response(status=info.status, body=write_error(protocol, info), content_type="application/json")


def _json(value: object) -> web.Response:
    return web.Response(body=write_json(value), content_type="application/json")


def main(arguments: list[str] | None = None) -> int:
    """Serve the demo model or a script until interrupted, and print where."""
    parser = argparse.ArgumentParser(prog="python -m treadle.upstream.loopback", description=main.__doc__)
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
