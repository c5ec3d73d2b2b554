"""Commands with a network: they reach other servers, but neither Treadle's ports nor any Unix socket."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from sandbox.stage import found_at, listening, make_sandbox
from treadle.config import LocalSection, ToolsSection
from treadle.core.errors import ConfigError, ToolError
from treadle.journal.sqlite.store import SqliteStore
from treadle.runtime.toolset import make_local_tools
from treadle.tools.blocked_ports import OwnPorts
from treadle.tools.sandbox import CommandSandbox, FoundLevel, SandboxRules, find_level
from treadle.tools.sandbox.helper_messages import CommandEnded, CommandOrder

pytestmark = pytest.mark.skipif(find_level().level < 2, reason="a network needs L2")

PYTHON = os.path.realpath(sys.executable)
ATTEMPTS = {
    "its address": "connect(AF_INET, '127.0.0.1')",
    "another loopback address": "connect(AF_INET, '127.1.2.3')",
    "no address": "connect(AF_INET, '0.0.0.0')",
    "a mapped address": "connect(AF_INET6, '::ffff:127.0.0.1')",
    "an address of the host": "connect(AF_INET, OWN)",
    "a name": "create_connection(('localhost', PORT)).recv(9)",
    "multipath": "connect(AF_INET, '127.0.0.1', protocol=262)",
    "fast open by sendto": "sent(lambda s: s.sendto(b'x', 0x20000000, ('127.0.0.1', PORT)))",
    "fast open by sendmsg": "sent(lambda s: s.sendmsg([b'x'], [], 0x20000000, ('127.0.0.1', PORT)))",
    "fast open by connect": "connect(AF_INET, '127.0.0.1', options=[(6, 30, 1)])",
    "not blocking": "later('127.0.0.1')",
    "another process": "shell(f'exec 3<>/dev/tcp/127.0.0.1/{PORT} && head -c 3 <&3')",
    "listening in its place": "served()",
    "a Unix socket": "connect(AF_UNIX, PATH)",
    "an abstract socket": "connect(AF_UNIX, '\\0' + ABSTRACT)",
    "sctp": "connect(AF_INET, '127.0.0.1', protocol=132)",
}
ONCE_MORE_REFUSED = {
    "multipath",
    "fast open by sendto",
    "fast open by sendmsg",
    "sctp",
    "a Unix socket",
    "an abstract socket",
}
"""What is refused with every network, whatever the port."""

PRELUDE = """
import os, select, subprocess, sys
from socket import *
PORT, OPEN, OWN, PATH, ABSTRACT = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]

def connect(family, host, protocol=0, options=(), port=PORT):
    with socket(family, SOCK_STREAM, protocol) as s:
        s.settimeout(5)
        for each in options:
            s.setsockopt(*each)
        s.connect(host if family == AF_UNIX else (host, port))
        if options:
            s.send(b"x")
        return s.recv(9)

def sent(deed):
    with socket() as s:
        deed(s)
        return s.recv(9)

def later(host):
    with socket() as s:
        s.setblocking(False)
        code = s.connect_ex((host, PORT))
        if code not in (0, 115):
            raise OSError(code, "refused")
        select.select([s], [], [], 5)
        return s.recv(9)

def shell(text):
    return subprocess.run(["/bin/bash", "-c", text], check=True, capture_output=True).stdout

def served():
    with socket(AF_INET6) as s:
        s.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
        s.bind(("::1", PORT))
        s.listen()
        return b"bound"

assert connect(AF_INET, "127.0.0.1", port=OPEN), "the network itself works"
try:
    print("REACHED", %s)
except (OSError, subprocess.CalledProcessError) as error:
    print("STOPPED", error)
"""


class Stage:
    """Two servers, of which one is not to be reached, and sockets of the file system."""

    def __init__(self, folder: Path, level: int) -> None:
        self._stack = ExitStack()
        self.root = folder / "root"
        self.root.mkdir()
        found = found_at(level)
        if found is None:
            pytest.skip(f"L{level} is not to be had here")
        path, abstract = str(folder / "server.sock"), f"treadle-{os.getpid()}-{level}"
        closed, opened = self._listen(("0.0.0.0", 0)), self._listen(("127.0.0.1", 0))
        for address in (path, f"\0{abstract}"):
            self._stack.enter_context(listening(address))
        self.arguments = [str(closed), str(opened), _own_address(), path, abstract]
        self.box = make_sandbox(found, closed=lambda: frozenset({closed}))

    def close(self) -> None:
        self.box.close()
        self._stack.close()

    async def play(self, attempt: str) -> tuple[str, CommandEnded]:
        """Try something as a command with a network."""
        root = str(self.root.resolve())
        argv = [PYTHON, "-I", "-c", PRELUDE % attempt, *self.arguments]
        place = self.box.scratch("network")
        order = self.box.command(argv, cwd=root, write=[root], place=place, timeout_s=30, network=True)
        order.read.append(sys.base_prefix)
        return await run(self.box, order)

    def _listen(self, address: tuple[str, int]) -> int:
        return self._stack.enter_context(listening(address)).getsockname()[1]


async def run(box: CommandSandbox, order: CommandOrder) -> tuple[str, CommandEnded]:
    """Run an order and return what it wrote, and how it ended."""
    written: list[bytes] = []

    def take(piece: bytes) -> bool:
        written.append(piece)
        return True

    ended = await box.run(order, take)
    return b"".join(written).decode(), ended


def _own_address() -> str:
    """Return an address of this machine that is not loopback, if it has one; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return probe.getsockname()[0]


@pytest.fixture(scope="module", params=[2, 3], ids=["L2", "L3"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage at a level."""
    made = Stage(tmp_path_factory.mktemp("network"), request.param)
    yield made
    made.close()


@pytest.mark.parametrize("name", ATTEMPTS)
async def test_a_command_with_a_network_does_not_reach_treadle(stage: Stage, name: str) -> None:
    """By no address, protocol or flag; another server on the same machine is reached."""
    written, ended = await stage.play(ATTEMPTS[name])
    assert (ended.ending, ended.code) == ("exited", 0), written
    assert written.startswith("STOPPED"), written


async def test_without_closed_ports_the_same_attempts_arrive(stage: Stage) -> None:
    """So that an attempt that could never arrive is noticed."""
    found = stage.box.found
    open_box = make_sandbox(found)
    try:
        for name in ATTEMPTS.keys() - ONCE_MORE_REFUSED:
            root = str(stage.root.resolve())
            argv = [PYTHON, "-I", "-c", PRELUDE % ATTEMPTS[name], *stage.arguments]
            order = open_box.command(
                argv, cwd=root, write=[root], place=open_box.scratch("open"), timeout_s=30, network=True
            )
            order.read.append(sys.base_prefix)
            written, _ = await run(open_box, order)
            assert written.startswith("REACHED"), (name, written)
    finally:
        open_box.close()


async def test_where_the_kernel_has_no_ports_there_is_no_network(stage: Stage) -> None:
    """It is refused in words, before anything is started."""
    box = make_sandbox(FoundLevel(level=1, abi=3))
    root = str(stage.root.resolve())
    order = box.command(["/bin/true"], cwd=root, write=[root], place=box.scratch("old"), timeout_s=5, network=True)
    with pytest.raises(ToolError, match="Treadle's own ports") as caught:
        await run(box, order)
    assert caught.value.info.code == "network_unguarded"
    box.close()


async def test_ports_that_open_later_are_closed_to_the_next_command(tmp_path: Path) -> None:
    """The ports are asked for at each command; the ruleset is made again only when they changed."""
    ports: set[int] = set()
    found = found_at(2)
    assert found is not None
    with listening(("127.0.0.1", 0)) as server, listening(("127.0.0.1", 0)) as other:
        box = make_sandbox(found, closed=lambda: frozenset(ports))
        arguments = [str(each.getsockname()[1]) for each in (server, other)]
        argv = [PYTHON, "-I", "-c", PRELUDE % ATTEMPTS["its address"], *arguments, "", "", ""]
        seen: list[str] = []
        for _ in range(2):
            place = box.scratch("later")
            order = box.command(argv, cwd=str(tmp_path), write=[str(tmp_path)], place=place, timeout_s=30, network=True)
            order.read.append(sys.base_prefix)
            seen.append((await run(box, order))[0][:7])
            ports.add(server.getsockname()[1])
        box.close()
    assert seen == ["REACHED", "STOPPED"]


@pytest.mark.skipif(find_level().level < 3, reason="a mask needs L3")
async def test_treadles_own_files_read_as_empty_in_whatever_folder_they_lie(tmp_path: Path) -> None:
    """Also in one that commands may read by the configuration."""
    (tmp_path / "home" / "treadle").mkdir(parents=True)
    secret = tmp_path / "home" / "treadle" / "secret.key"
    secret.write_text("the-secret")
    (tmp_path / "home" / "notes").write_text("notes")
    (tmp_path / "root").mkdir()
    box = CommandSandbox(SandboxRules(read=(str(tmp_path / "home"),)), hidden=[str(secret.parent)])
    root = str(tmp_path / "root")
    argv = ["/bin/bash", "-c", f"cat {tmp_path}/home/notes; cat {secret} {secret.parent}/*; echo x > {secret}; true"]
    order = box.command(argv, cwd=root, write=[root], place=box.scratch("hidden"), timeout_s=10)
    written, _ = await run(box, order)
    box.close()
    assert "notes" in written
    assert "the-secret" not in written
    assert secret.read_text() == "the-secret"


@pytest.mark.parametrize("level", [1, 2, 3])
async def test_treadles_own_files_are_not_read_beside_a_program(tmp_path: Path, level: int) -> None:
    """A folder of PATH is read with what lies around it, which may be where the journal is."""
    if level > find_level().level:
        pytest.skip(f"L{level} is not to be had here")
    for folder in ("app/bin", "app/lib", "root"):
        (tmp_path / folder).mkdir(parents=True)
    secret = tmp_path / "app" / "secret.key"
    secret.write_text("the-secret")
    (tmp_path / "app" / "lib" / "part").write_text("a-library")
    found = msgspec.structs.replace(find_level(), level=level)
    box = CommandSandbox(found=found, environ={"PATH": f"{tmp_path}/app/bin:/usr/bin:/bin"}, hidden=[str(secret)])
    root = str(tmp_path / "root")
    argv = ["/bin/bash", "-c", f"cat {secret} {tmp_path}/app/lib/part; true"]
    written, _ = await run(box, box.command(argv, cwd=root, write=[root], place=box.scratch("own"), timeout_s=10))
    box.close()
    assert "a-library" in written
    assert "the-secret" not in written


@pytest.mark.parametrize("level", [1, 2])
def test_where_nothing_can_be_hidden_the_journal_lies_elsewhere(tmp_path: Path, level: int) -> None:
    """Or there are no commands: who writes the journal decides."""
    section = ToolsSection(local=LocalSection(root=str(tmp_path), enabled=("bash",)))
    box = CommandSandbox(found=FoundLevel(level=level, abi=level + 2))
    own = [str(tmp_path / "treadle.db")]
    with pytest.raises(ConfigError, match="Treadle's own") as caught:
        make_local_tools(section, box, SqliteStore(":memory:"), OwnPorts(), own)
    assert caught.value.param == "tools.local.root"
    assert make_local_tools(section, box, SqliteStore(":memory:"), OwnPorts(), [str(tmp_path.parent / "treadle.db")])
    box.close()


def test_a_network_that_cannot_be_guarded_is_an_error_at_start(tmp_path: Path) -> None:
    """It names the setting and says why."""
    section = ToolsSection(local=LocalSection(root=str(tmp_path), enabled=("bash",), network=True))
    box = CommandSandbox(found=FoundLevel(level=1, abi=3))
    with pytest.raises(ConfigError, match="Landlock 3") as caught:
        make_local_tools(section, box, SqliteStore(":memory:"), OwnPorts())
    assert caught.value.param == "tools.local.network"
    box.close()
