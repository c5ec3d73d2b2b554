"""The pages: the files of `web/`, read once at start, under a policy that lets nothing else run or load.

The table of files is fixed when the module is loaded, so no path of a request ever reaches the file system.
"""

import gzip
import hashlib
import re
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

from treadle.canon.errors import NotFound
from treadle.server.http import Exchange, Header
from treadle.server.service import Service

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
_COMMENTS = re.compile(
    rb"^ *(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)\n|/\*\* @(?:(?!\*/).)*\*/ ?|^ +", re.DOTALL | re.MULTILINE
)
"""Comments that have lines of their own, types, and indents: they are for whoever reads the sources."""

_GZIP_LEVEL = 9


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is served, whole and compressed."""

    body: bytes
    packed: bytes
    content_type: bytes
    etag: bytes


def load_files(root: Traversable, prefix: str = "") -> dict[str, File]:
    """Read every file of a served kind under `root`, by its path below it."""
    found: dict[str, File] = {}
    for entry in root.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found |= load_files(entry, f"{name}/")
            continue
        content_type = next((kind for suffix, kind in _TYPES.items() if name.endswith(suffix)), None)
        if content_type is not None:
            found[name] = _file(name, entry.read_bytes(), content_type)
    return found


def _file(name: str, source: bytes, content_type: str) -> File:
    """Return a file as it is served: of our own scripts without what is there for readers only."""
    is_own = name.endswith(".js") and not name.startswith("vendor/")
    body = _COMMENTS.sub(b"", source) if is_own else source
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    packed = gzip.compress(body, _GZIP_LEVEL, mtime=0)
    return File(body=body, packed=packed, content_type=content_type.encode(), etag=etag.encode())


_FILES = load_files(files("treadle.server") / "web")


async def chat(service: Service, exchange: Exchange) -> None:
    """GET /: the chat page."""
    await send_page(exchange, "index.html")


async def static(service: Service, exchange: Exchange) -> None:
    """GET /web/…: a script or a style sheet.

    Raises: NotFound.
    """
    file = _FILES.get(exchange.params["file"])
    if file is None:
        raise NotFound(f"There is no file {exchange.path}.")
    await _send(exchange, file)


FAILURES: dict[int, str] = {401: "login.html", 404: "missing.html"}
"""What a person gets to see where a program gets an error."""


async def send_failure(exchange: Exchange, status: int) -> None:
    """Tell a person that there is no such page, or that they must log in first."""
    await send_page(exchange, FAILURES[status], status)


def wants_page(exchange: Exchange) -> bool:
    """Tell whether a person with a browser is asking, and not a program."""
    is_page = exchange.envelope == "treadle" and not exchange.path.startswith("/treadle/")
    return is_page and exchange.method in ("GET", "HEAD") and "text/html" in exchange.header(b"accept")


async def send_page(exchange: Exchange, name: str, status: int = 200) -> None:
    """Send a page by its path below `web/`."""
    await _send(exchange, _FILES[name], status)


def served_files() -> dict[str, File]:
    """Return every file as it is served, by its path below `web/`."""
    return dict(_FILES)


async def _send(exchange: Exchange, file: File, status: int = 200) -> None:
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
    """Tell whether the client names gzip, and not to forbid it."""
    named = (part.partition(";") for part in exchange.header(b"accept-encoding").lower().split(","))
    return any(name.strip() == "gzip" and quality.strip() not in ("q=0", "q=0.0") for name, _, quality in named)
