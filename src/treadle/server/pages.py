"""The pages: the files of `web/`, read once at start, under a policy that lets nothing else run or load.

The table of files is fixed when the module is loaded, so no path of a request ever reaches the file system.
"""

import hashlib
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


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is served."""

    body: bytes
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
            body = entry.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[name] = File(body=body, content_type=content_type.encode(), etag=etag.encode())
    return found


_FILES = load_files(files("treadle.server") / "web")


async def chat(service: Service, exchange: Exchange) -> None:
    """GET /: the chat page."""
    await _send(exchange, _FILES["index.html"])


async def static(service: Service, exchange: Exchange) -> None:
    """GET /web/…: a script or a style sheet.

    Raises: NotFound.
    """
    file = _FILES.get(exchange.params["file"])
    if file is None:
        raise NotFound(f"There is no file {exchange.path}.")
    await _send(exchange, file)


async def missing(service: Service, exchange: Exchange) -> None:
    """Tell a person that there is no such page, and where there is one."""
    await _send(exchange, _FILES["missing.html"], status=404)


def wants_page(exchange: Exchange) -> bool:
    """Tell whether a person with a browser is asking, and not a program."""
    is_page = exchange.envelope == "treadle" and not exchange.path.startswith("/treadle/")
    return is_page and exchange.method in ("GET", "HEAD") and "text/html" in exchange.header(b"accept")


async def _send(exchange: Exchange, file: File, status: int = 200) -> None:
    headers: tuple[Header, ...] = (
        (b"etag", file.etag),
        (b"cache-control", b"no-cache"),
        (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    )
    seen = {tag.strip().removeprefix("W/") for tag in exchange.header(b"if-none-match").split(",")}
    if status == 200 and file.etag.decode() in seen:
        await exchange.answer(304, b"", b"", headers)
    else:
        await exchange.answer(status, file.body, file.content_type, headers)
