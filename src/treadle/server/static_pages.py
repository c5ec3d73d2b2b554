"""The pages: the files of `web/`, read once, under a policy that lets nothing else run or load.

The table of files is fixed when it is first needed, so no path of a request ever reaches the file system. Our own
scripts are sent without what is for readers only, and those of a page as one file.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType

import msgspec

from treadle.core.errors import NotFound
from treadle.http.asgi import Header
from treadle.server.auth.route_permissions import OPEN
from treadle.server.http_exchange import Exchange
from treadle.server.route import PAGE, Content, RouteGroup
from treadle.server.script_bundle import bundle
from treadle.server.script_minify import minify
from treadle.server.server_state import Service

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
_TYPES: dict[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
JOINED: dict[str, tuple[str, ...]] = {
    "shared.js": ("shared/api.js", "shared/ui.js", "shared/stream.js"),
    "shared/highlight.js": ("shared/highlight.js",),
    "shared/theme.js": ("shared/theme.js",),
    "login.js": ("login.js",),
    "chat.js": (
        "shared/markdown.js",
        "chat/talk.js",
        "chat/examples.js",
        "chat/card.js",
        "chat/composer.js",
        "chat/panes.js",
        "chat/turn.js",
        "chat/app.js",
    ),
    "console.js": (
        "console/parts.js",
        "console/address.js",
        "console/lists.js",
        "console/runs.js",
        "console/evals.js",
        "console/run.js",
        "console/things.js",
        "console/keys.js",
        "console/decide.js",
        "console/main.js",
    ),
}
"""The files that pages load, and the modules in each: a module comes before those that import it."""

SHARED = frozenset({"shared.js", "shared/highlight.js"})
"""Those whose modules others use."""

_BASE = "/web/"
_GZIP_LEVEL = 9


class StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is served, whole and compressed."""

    body: bytes
    packed: bytes
    content_type: bytes
    etag: bytes


def load_files(root: Traversable) -> dict[str, StaticFile]:
    """Return every file of a served kind under `root` by its path below it, and the joined ones.

    A module that is in a joined file is there as it was written too: no page loads it, but a person may read it.
    """
    found = dict(_read(root))
    homes = {module: name for name, modules in JOINED.items() for module in modules}
    for name, modules in JOINED.items():
        sources = {module: found[module][0].decode() for module in modules}
        joined = bundle(sources, _BASE, homes, exports=name in SHARED)
        found[name] = (minify(joined).encode(), _TYPES[".js"])
    return {name: _file(source, kind) for name, (source, kind) in found.items()}


def _read(root: Traversable, prefix: str = "") -> Iterator[tuple[str, tuple[bytes, str]]]:
    """Yield the files under `root`, each with its content and its type."""
    for entry in root.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            yield from _read(entry, f"{name}/")
            continue
        content_type = next((kind for suffix, kind in _TYPES.items() if name.endswith(suffix)), None)
        if content_type is not None:
            yield name, (entry.read_bytes(), content_type)


def _file(body: bytes, content_type: str) -> StaticFile:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    packed = gzip.compress(body, _GZIP_LEVEL, mtime=0)
    return StaticFile(body=body, packed=packed, content_type=content_type.encode(), etag=etag.encode())


@cache
def served_files() -> Mapping[str, StaticFile]:
    """Return every file as it is served, by its path below `web/`."""
    return MappingProxyType(load_files(files("treadle.server") / "web"))


async def _files() -> Mapping[str, StaticFile]:
    """Return the files, built in a thread by the first caller."""
    is_made = served_files.cache_info().currsize > 0
    return served_files() if is_made else await asyncio.to_thread(served_files)


async def chat(service: Service, exchange: Exchange) -> None:
    """Show the chat page."""
    await send_page(exchange, "index.html")


async def console(service: Service, exchange: Exchange) -> None:
    """Show the console: one page, which reads its own address."""
    await send_page(exchange, "console/index.html")


async def static(service: Service, exchange: Exchange) -> None:
    """Return a script or a style sheet. Raises: NotFound."""
    file = (await _files()).get(exchange.params["file"])
    if file is None:
        raise NotFound(f"There is no file {exchange.path}.")
    await _send(exchange, file)


FAILURES: dict[int, str] = {401: "login.html", 404: "missing.html"}
"""What a person gets to see where a program gets an error."""


async def send_failure(exchange: Exchange, status: int) -> None:
    """Send the page for a missing page, or for a login that is needed."""
    await send_page(exchange, FAILURES[status], status)


def wants_page(exchange: Exchange) -> bool:
    """Return whether the client is a browser and not a program."""
    is_page = exchange.envelope == "treadle" and not exchange.path.startswith("/treadle/")
    return is_page and exchange.method in ("GET", "HEAD") and "text/html" in exchange.header(b"accept")


async def send_page(exchange: Exchange, name: str, status: int = 200) -> None:
    """Send a page by its path below `web/`."""
    await _send(exchange, (await _files())[name], status)


async def _send(exchange: Exchange, file: StaticFile, status: int = 200) -> None:
    headers: tuple[Header, ...] = (
        (b"etag", file.etag),
        (b"cache-control", b"no-cache"),
        (b"vary", b"accept-encoding"),
        (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    )
    seen = {tag.strip().removeprefix("W/") for tag in exchange.header(b"if-none-match").split(",")}
    if status == 200 and file.etag.decode() in seen:
        await exchange.answer(304, b"", b"", headers)
    elif _takes_gzip(exchange):
        await exchange.answer(status, file.packed, file.content_type, (*headers, (b"content-encoding", b"gzip")))
    else:
        await exchange.answer(status, file.body, file.content_type, headers)


def _takes_gzip(exchange: Exchange) -> bool:
    """Return whether the client accepts gzip."""
    named = (part.partition(";") for part in exchange.header(b"accept-encoding").lower().split(","))
    return any(name.strip() == "gzip" and quality.strip() not in ("q=0", "q=0.0") for name, _, quality in named)


_ROWS = RouteGroup("Pages", OPEN)
ROUTES = (
    _ROWS.get("/", chat, "Show the chat", {200: (PAGE,)}),
    _ROWS.get("/console", console, "Show the console", {200: (PAGE,)}),
    _ROWS.get("/console/{view*}", console, "Show a view of the console", {200: (PAGE,)}),
    _ROWS.get(
        "/web/{file*}",
        static,
        "Give a script or a style sheet of the pages",
        {200: (Content("*/*"),), 304: ()},
        is_quiet=True,
    ),
)
