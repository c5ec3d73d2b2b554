"""What hostile commands are played on: a root, an outside with secrets, listeners, a victim, a sandbox of a level."""

import asyncio
import contextlib
import ctypes
import dataclasses
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from treadle.tools.local.bash_tool import Bash
from treadle.tools.local.output_read import OutputStore
from treadle.tools.local.result_limits import DEFAULT_CAPS
from treadle.tools.local.safe_open import Root
from treadle.tools.sandbox import CommandSandbox, FoundLevel, SandboxRules, choose_level, find_level
from treadle.tools.sandbox.helper_messages import CommandEnded

LEVELS = (0, 1, 2, 3)
SECRET = "the-secret-outside"
MARKER = "treadle-hostile-marker"
PYTHON = os.path.realpath(sys.executable)
SHM_CREATE = 0o1600


def found_at(level: int) -> FoundLevel | None:
    """Return a level as this machine has it, or nothing."""
    best = find_level()
    return choose_level(f"L{level}", best) if level <= best.level else None  # type: ignore[arg-type]


class Stage:
    """One root and what lies around it; everything is gone at its end."""

    def __init__(self, place: Path, sandbox: CommandSandbox) -> None:
        self.sandbox = sandbox
        self.root, self.outside = place / "root", place / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "secret").write_text(SECRET)
        (self.root / "inside").write_text("inside")
        (self.root / ".env").write_text(f"PASSWORD={SECRET}")
        (self.root / ".git" / "hooks").mkdir(parents=True)
        (self.root / ".git" / "config").write_text("[core]\n")
        self.env: dict[str, str] = {"OUT": str(self.outside), "PY": PYTHON, "MARKER": MARKER}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Stage":
        victim = subprocess.Popen(["sleep", "300"], env={"VICTIM_SECRET": SECRET}, cwd=self.outside)
        self._stack.callback(_end, victim)
        self.env["VICTIM"] = str(victim.pid)
        self.env["OWN_SCRATCH"] = self.sandbox.scratch("somebody-else")
        (Path(self.env["OWN_SCRATCH"]) / "secret").write_text(SECRET)
        self.env["TCP"] = str(self._stack.enter_context(listening(("127.0.0.1", 0))).getsockname()[1])
        self._stack.enter_context(listening(f"{self.outside}/socket"))
        self.env["ABSTRACT"] = f"treadle-{os.getpid()}-{id(self)}"
        self._stack.enter_context(listening(f"\0{self.env['ABSTRACT']}"))
        mailbox = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        mailbox.bind(f"{self.outside}/mailbox")
        self.env["SHM_KEY"] = str(self._stack.enter_context(shared_memory()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def play(self, script: str, *, timeout_s: float = 20.0, **changes: Any) -> tuple[str, CommandEnded]:
        """Run a script as the shell tool would, with the stage's variables, and return what it wrote."""
        place = self.sandbox.scratch("hostile")
        root = str(self.root.resolve())
        order = self.sandbox.command(
            ["/bin/bash", "-c", script], cwd=root, write=[root], place=place, timeout_s=timeout_s
        )
        order.env.update(self.env | changes.pop("more_env", {}))
        if order.level > 2:
            order.masked.extend(Bash(Root(root), self.sandbox, OutputStore(), DEFAULT_CAPS).masked()[0])
        written: list[bytes] = []

        def take(piece: bytes) -> bool:
            written.append(piece)
            return len(written) < 10_000

        order = dataclasses.replace(order, read=[*order.read, sys.base_prefix], **changes)
        ended = await self.sandbox.run(order, take)
        return b"".join(written).decode("utf-8", "replace"), ended

    async def play_reading(self, script: str) -> str:
        """Run a script as the shell tool would that may change nothing, and return what it wrote."""
        root = str(self.root.resolve())
        written: list[bytes] = []
        async with self.sandbox.private() as place:
            hidden, _ = Bash(Root(root), self.sandbox, OutputStore(), DEFAULT_CAPS).masked()
            order = self.sandbox.reading(
                ["/bin/bash", "-c", script], cwd=root, top=root, hidden=hidden, place=place, timeout_s=20.0
            )
            order.read.append(sys.base_prefix)
            order.env.update(self.env)
            ended = await self.sandbox.run(order, lambda piece: not written.append(piece))  # type: ignore[func-returns-value]
        assert ended.ending == "exited", ended
        return b"".join(written).decode("utf-8", "replace")


def make_sandbox(found: FoundLevel, closed: Callable[[], frozenset[int]] = frozenset) -> CommandSandbox:
    """Return a sandbox of a level, in an environment that holds a secret."""
    environ = {**os.environ, "SERVICE_TOKEN": SECRET, "PLAIN_SETTING": SECRET}
    return CommandSandbox(SandboxRules(), found=found, environ=environ, closed=closed)


def survivors(marker: str) -> list[int]:
    """Return the processes whose command line holds the marker."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
    return found


async def gone(marker: str) -> bool:
    """Tell whether nothing with the marker is alive, now or within a moment."""
    for _ in range(100):
        if not survivors(marker):
            return True
        await asyncio.sleep(0.01)
    return False


@contextlib.contextmanager
def listening(address: Any) -> Iterator[socket.socket]:
    """Listen at an address and say a secret to whoever comes."""
    family = socket.AF_INET if isinstance(address, tuple) else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(address)
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.sendall(SECRET.encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@contextlib.contextmanager
def shared_memory() -> Iterator[int]:
    """Make a System V segment that any process of the user can find by its key."""
    library = ctypes.CDLL(None, use_errno=True)
    key = 0x54000000 | (os.getpid() & 0xFFFF) << 8 | os.urandom(1)[0]
    segment = library.shmget(key, 4096, SHM_CREATE)
    assert segment >= 0
    try:
        yield key
    finally:
        library.shmctl(segment, 0, None)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
