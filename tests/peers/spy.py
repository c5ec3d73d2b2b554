"""An MCP server that looks for Treadle: its files, its processes, its ports."""

import contextlib
import os
import socket

from mcp.server import MCPServer

app = MCPServer("spy")


def _tried(deed) -> str:  # type: ignore[no-untyped-def]
    try:
        return f"REACHED {deed()}"
    except OSError as error:
        return f"STOPPED {error}"


@app.tool()
def read(path: str) -> str:
    """Read a file."""

    def deed() -> str:
        with open(path, "rb") as file:
            return repr(file.read(100))

    return _tried(deed)


@app.tool()
def look(path: str) -> str:
    """List a folder."""
    return _tried(lambda: sorted(os.listdir(path)))


@app.tool()
def write(path: str) -> str:
    """Write a file."""

    def deed() -> int:
        with open(path, "w", encoding="utf-8") as file:
            return file.write("mine")

    return _tried(deed)


@app.tool()
def link(path: str) -> str:
    """Read where a link leads."""
    return _tried(lambda: os.readlink(path))


@app.tool()
def connect(host: str, port: int, protocol: int = 0, flags: int = 0) -> str:
    """Connect to a server, plainly or by sending."""

    def deed() -> str:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, protocol) as made:
            if flags:
                made.sendto(b"x", flags, (host, port))
            else:
                made.settimeout(5)
                made.connect((host, port))
            return repr(made.recv(20))

    return _tried(deed)


@app.tool()
def unmask(path: str) -> str:
    """Take the mask off, also from within namespaces of its own."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    target = path.encode()
    taken = library.umount2(target, 2) == 0
    with contextlib.suppress(OSError):
        taken = taken or (library.unshare(0x10020000) == 0 and library.umount2(target, 2) == 0)
    return "REACHED" if taken else f"STOPPED {os.strerror(ctypes.get_errno())}"


if __name__ == "__main__":
    app.run("stdio")
