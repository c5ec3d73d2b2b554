"""A character-card editor on a workspace: the model fills the draft and proposes facts, you decide in the page.

python examples/card_editor/editor.py            offline, with a scripted model
python examples/card_editor/editor.py --live     with the models of your treadle.toml or environment
"""

import argparse
import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from cards import EMPTY, BadCard, read_card, write_card
from writer import Writer

from treadle import Runtime, Settings, load_settings
from treadle.config.settings import StoreSection, WorkspaceSection
from treadle.runtime import RandomIds
from treadle.server.app import App

HERE = Path(__file__).parent
NAME = "card"
BODY_BYTES_MAX = 2_000_000
PAGES = {
    "/": ("page.html", b"text/html; charset=utf-8"),
    "/editor/page.js": ("page.js", b"text/javascript; charset=utf-8"),
    "/editor/page.css": ("page.css", b"text/css; charset=utf-8"),
}


class Editor:
    """The page, import and export; everything else is Treadle itself."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._treadle = App(runtime)
        self.login = self._treadle.service.first_link()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        place = (scope.get("method"), scope.get("path"))
        if place[0] == "GET" and place[1] in PAGES:
            name, kind = PAGES[place[1]]
            await answer(send, 200, (HERE / name).read_bytes(), kind)
        elif place == ("GET", "/editor/export"):
            held = await self._runtime.workspaces.get(NAME)
            card = write_card(held.workspace.facts, held.workspace.draft)
            await answer(send, 200, json.dumps(card, ensure_ascii=False, indent=2).encode())
        elif place == ("POST", "/editor/import"):
            await self._import(scope, receive, send)
        else:
            await self._treadle(scope, receive, send)

    async def _import(self, scope: Any, receive: Any, send: Any) -> None:
        # A page from elsewhere cannot send JSON without asking first, and is never allowed to.
        if dict(scope["headers"]).get(b"content-type") != b"application/json":
            await answer(send, 415, b'{"error":"send application/json"}')
            return
        try:
            facts, draft = read_card(json.loads(await body_of(receive)))
        except (BadCard, ValueError) as error:
            await answer(send, 400, json.dumps({"error": str(error)}).encode())
            return
        await open_card(self._runtime, facts, draft, replace=True)
        await answer(send, 200, b'{"imported":true}')


async def open_card(runtime: Runtime, facts: dict[str, Any], draft: dict[str, Any], *, replace: bool) -> None:
    """Make the workspace of the card; one that is there stays, unless it shall be replaced."""
    if await runtime.workspaces.find(NAME) is not None:
        if not replace:
            return
        await runtime.workspaces.delete(NAME)
    await runtime.workspaces.create(NAME, sections={"facts": facts, "draft": draft})


async def body_of(receive: Any) -> bytes:
    """Read a body of bounded size."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise BadCard(f"a card has at most {BODY_BYTES_MAX} bytes")
        if not message.get("more_body"):
            return body


async def answer(send: Any, status: int, body: bytes, kind: bytes = b"application/json") -> None:
    """Send a whole answer."""
    policy = b"default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"
    headers = [(b"content-type", kind), (b"content-security-policy", policy), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def settings_of(args: argparse.Namespace) -> Settings:
    """Return settings under which runs work on the card."""
    settings = load_settings(env=os.environ) if args.live else Settings(store=StoreSection(persistence="off"))
    return msgspec.structs.replace(settings, workspace=WorkspaceSection(enabled=True, default=NAME))


async def main(args: argparse.Namespace) -> None:
    """Serve until somebody stops it."""
    model = None if args.live else Writer(RandomIds())
    async with Runtime(settings_of(args), model=model) as runtime:
        await open_card(runtime, {"name": "Nobody yet"}, EMPTY, replace=False)
        with socket.create_server(("127.0.0.1", args.port)) as listening:
            editor = Editor(runtime)
            # Facts are confirmed by a person: this link logs one in, once, and leads to the page.
            print(f"http://127.0.0.1:{listening.getsockname()[1]}{editor.login}", flush=True)
            config = uvicorn.Config(editor, lifespan="off", log_level="warning")
            await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A character-card editor on a workspace.")
    parser.add_argument("--port", type=int, default=8720)
    parser.add_argument("--live", action="store_true", help="ask the configured models instead of the scripted one")
    sys.exit(asyncio.run(main(parser.parse_args())))
