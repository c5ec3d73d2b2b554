"""The gateway's side of the sandbox: starts the helper process, sends it orders, reads what comes out.

`CommandSandbox` says what a command may reach, `Helper` runs it. The helper starts with the first order and ends when
its socket is closed, also when this process is killed. A cancelled call only closes its own socket: the helper's
supervisor ends the command and everything it started.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import tempfile
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from treadle.core.errors import ToolError, ToolFailed
from treadle.tools.sandbox import landlock
from treadle.tools.sandbox import process_tree as processes
from treadle.tools.sandbox import visible_paths as places
from treadle.tools.sandbox.helper_messages import HEAD, CommandEnded, CommandOrder, bare_command
from treadle.tools.sandbox.isolation_level import (
    Choice,
    FoundLevel,
    can_read_only,
    choose_level,
    find_level,
    network_gap,
)

PIECE_BYTES = 65_536
DRAIN_S = 0.25
CLOSE_S = 5.0
STARTS_MAX = 2
NOTE = b"order"
CPU_FACTOR = 2
SCRATCH_PREFIX = "treadle-scratch-"
SCRATCH_MAX = 32
CWD_NAME = "cwd"
"""The file in a scratch space in which a shell leaves where it ended."""
ROOMY_TMP = "/var/tmp"
"""Not /tmp, over which a command at L3 gets its own."""

Take = Callable[[bytes], bool]
"""Receives what a command writes, and returns whether it wants more."""


class Helper:
    """One helper process, for any number of commands at once."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._closing: weakref.finalize[..., Helper] | None = None

    def close(self) -> None:
        """End the helper, and with it whatever it still runs."""
        if self._closing is not None:
            self._closing()
        self._socket = None

    async def run(self, order: CommandOrder, take: Take, net_rules: int = -1) -> CommandEnded:
        """Run a command to its end; what it writes goes to `take`, which can end it by returning False.

        Raises: ToolFailed, when there is no helper to be had.
        """
        control, source = self._hand_over([net_rules] if net_rules >= 0 else [])
        try:
            data = json.dumps(dataclasses.asdict(order)).encode()
            await asyncio.get_running_loop().sock_sendall(control, HEAD.pack(len(data)) + data)
            hearing = asyncio.create_task(_hear(source, take, control))
            try:
                ended = await _ended(control)
                await asyncio.wait({hearing}, timeout=DRAIN_S)
            finally:
                hearing.cancel()
                await asyncio.wait({hearing})
            return ended
        except (OSError, EOFError):
            return CommandEnded(ending="refused", message="the process that watches over commands was ended")
        finally:
            control.close()
            os.close(source)

    def _hand_over(self, more: list[int]) -> tuple[socket.socket, int]:
        """Give the helper its ends of a socket and a pipe, and return ours."""
        ours, theirs = socket.socketpair()
        source, sink = os.pipe()
        try:
            for _ in range(STARTS_MAX):
                try:
                    socket.send_fds(self._started(), [NOTE], [theirs.fileno(), sink, *more])
                except OSError:
                    # It was killed since: start another.
                    self.close()
                    continue
                ours.setblocking(False)
                os.set_blocking(source, False)
                return ours, source
        finally:
            theirs.close()
            os.close(sink)
        ours.close()
        os.close(source)
        raise ToolFailed("The process that runs commands cannot be started.")

    def _started(self) -> socket.socket:
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                process = subprocess.Popen(
                    bare_command("treadle.tools.sandbox.helper_process"),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            self._socket = ours
            self._closing = weakref.finalize(self, _end, process, ours)
        return self._socket


class NetRules:
    """The ruleset of ports for commands with a network, made again when other ports are closed."""

    def __init__(self) -> None:
        self._fd = -1
        self._closed: frozenset[int] = frozenset()
        self._lock = asyncio.Lock()

    async def of(self, closed: frozenset[int]) -> int:
        """Return the descriptor of the ruleset that closes these ports.

        Raises: ToolFailed.
        """
        async with self._lock:
            if self._fd < 0 or closed != self._closed:
                self.close()
                try:
                    self._fd = await asyncio.to_thread(landlock.open_ports, closed)
                except OSError as error:
                    raise ToolFailed(f"The ports of a command cannot be closed: {error}") from None
                self._closed = closed
            return self._fd

    def close(self) -> None:
        """Let go of it."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class SandboxRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says of commands: whether they may ask for a network, more variables, more folders."""

    level: Choice = "auto"
    network: bool = False
    env: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()


DEFAULT_RULES = SandboxRules()


class CommandSandbox:
    """Makes orders by its rules and runs them. `found` is asked when the first command comes, unless it is known.

    `closed` names the ports that no command may reach, at each command anew; `hidden` are Treadle's own files and
    folders, which read as empty where a folder that a command may reach has them in it.
    """

    def __init__(
        self,
        rules: SandboxRules = DEFAULT_RULES,
        *,
        found: FoundLevel | None = None,
        environ: Mapping[str, str] | None = None,
        closed: Callable[[], frozenset[int]] = frozenset,
        hidden: Sequence[str] = (),
    ) -> None:
        self._hidden = hidden
        self.rules = rules
        self._found = found
        self._environ = os.environ if environ is None else environ
        self._helper = Helper()
        self._closed = closed
        self._net_rules = NetRules()
        self._scratch: Scratch | None = None

    @property
    def found(self) -> FoundLevel:
        """Return the level that commands run at.

        Raises: ConfigError, when the level that the rules name is not to be had.
        """
        if self._found is None:
            self._found = choose_level(self.rules.level, find_level())
        return self._found

    @property
    def home(self) -> str:
        """Return the user's own home, which commands do not get."""
        return self._environ.get("HOME", "")

    def close(self) -> None:
        """End the helper and remove the scratch space."""
        self._helper.close()
        self._net_rules.close()
        if self._scratch is not None:
            self._scratch.close()

    def command(  # noqa: PLR0913 - all options of one command
        self,
        argv: list[str],
        *,
        cwd: str,
        write: Sequence[str],
        place: str,
        timeout_s: float,
        network: bool = False,
        git: bool = False,
        allowed: Sequence[str] = (),
    ) -> CommandOrder:
        """Order a command of the model's: it sees the system, its own folders and its scratch space.

        `git` lets it write repositories, `allowed` are the protected paths that a person allowed by name.
        """
        env = places.environment(self._environ, self.rules.env, place) | (places.GIT_WRITE_ENV if git else {})
        own = [os.path.realpath(path) for path in self._hidden if os.path.exists(path)]
        read = [*places.readable(env["PATH"], self.home, network=network), *self.rules.read]
        whole, listed, parts = places.split(read, own)
        return CommandOrder(
            argv=argv,
            cwd=cwd,
            env=env,
            level=self.found.level,
            abi=self.found.abi,
            read=whole,
            listed=listed,
            parts=parts,
            write=[*write, *self.rules.write, place, f"{place}/tmp"],
            guard=[*write, *self.rules.write],
            allowed=list(allowed),
            git=git,
            masked=own,
            scratch=f"{place}/tmp",
            network=network,
            timeout_s=timeout_s,
            cpu_s=max(1, int(CPU_FACTOR * timeout_s)),
        )

    def reading(  # noqa: PLR0913 - all options of one command
        self,
        argv: list[str],
        *,
        cwd: str,
        top: str,
        hidden: Sequence[str],
        place: str,
        timeout_s: float,
        unseen: Sequence[str] = (),
    ) -> CommandOrder:
        """Order a command of the model's that can change nothing; `place` is its own and goes with it, see `private`.

        It reads what is below `top`, but for what is `hidden` there and the folders that were not searched: `unseen`.
        Raises: ToolFailed, where nothing keeps it from changing something.
        """
        if not can_read_only(self.found):
            raise ToolFailed("Nothing on this machine keeps a command from writing.", code="read_only_unavailable")
        order = self.command(argv, cwd=cwd, write=(), place=place, timeout_s=timeout_s)
        own = [f"{place}/home", f"{place}/tmp"]
        # At every level by Landlock too: a folder that is read for another reason may hold this one, or lie in it.
        closed = [*order.masked, *hidden, *unseen]
        whole, listed, parts = places.split([*order.read, *self.rules.write, *order.listed], closed)
        return dataclasses.replace(
            order,
            read=whole,
            listed=[top, *listed],
            parts=[*places.all_but(top, closed), *parts],
            masked=[*order.masked, *hidden] if order.level > 2 else [],
            write=[*own, f"{place}/{CWD_NAME}"],
            vanishing=own if order.level > 2 else [],
            guard=[],
            read_only=True,
        )

    def search(self, argv: list[str], *, cwd: str, read: Sequence[str], timeout_s: float) -> CommandOrder:
        """Order a program of our own that only reads: these folders and what programs are made of."""
        # Namespaces would only cost time: there is nothing in them that a program that may not write could use.
        level = min(self.found.level, 2)
        libraries = [path for path in places.SYSTEM if path != "/proc"]
        return CommandOrder(
            argv=argv,
            cwd=cwd,
            env={"LANG": "C.UTF-8", "PATH": places.PATH_DEFAULT},
            level=level,
            abi=self.found.abi,
            read=[*libraries, *read],
            timeout_s=timeout_s,
            term_s=0.0,
            cpu_s=max(1, int(CPU_FACTOR * timeout_s)),
        )

    async def run(self, order: CommandOrder, take: Take) -> CommandEnded:
        """Run an order to its end; see Helper.

        Raises: ToolFailed.
        """
        if not (order.network and order.level):
            return await self._helper.run(order, take)
        if (gap := network_gap(order.level, order.abi)) is not None:
            raise ToolError(f"Commands have no network here: {gap}.", code="network_unguarded")
        return await self._helper.run(order, take, await self._net_rules.of(self._closed()))

    def scratch(self, key: str) -> str:
        """Return the scratch space of a key."""
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch.place(key)

    @contextlib.asynccontextmanager
    async def private(self) -> AsyncGenerator[str]:
        """Give scratch space to one command, gone when that has ended."""
        if self._scratch is None:
            self._scratch = Scratch()
        place = self._scratch.make()
        try:
            yield place
        finally:
            await asyncio.to_thread(_remove, place)


class Scratch:
    """Folders for what commands keep between calls: one for each session, the oldest go first."""

    def __init__(self, base: str | None = None) -> None:
        base = base or (ROOMY_TMP if os.access(ROOMY_TMP, os.W_OK) else tempfile.gettempdir())
        _sweep(base)
        self._base = os.path.realpath(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{os.getpid()}-", dir=base))
        self._places: dict[str, str] = {}
        self._closing = weakref.finalize(self, shutil.rmtree, self._base, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        self._closing()

    def make(self) -> str:
        """Return a new folder."""
        place = tempfile.mkdtemp(dir=self._base)
        for name in ("home", "tmp"):
            os.mkdir(f"{place}/{name}")
        with open(f"{place}/{CWD_NAME}", "x", encoding="ascii"):
            pass
        return place

    def place(self, key: str) -> str:
        """Return the folder of a key, made now if it is new."""
        place = self._places.pop(key, None)
        if place is None or not os.path.isdir(place):
            place = self.make()
        self._places[key] = place
        while len(self._places) > SCRATCH_MAX:
            shutil.rmtree(self._places.pop(next(iter(self._places))), ignore_errors=True)
        return place


def _remove(place: str) -> None:
    """Remove a folder, also one in which a command made folders that not even their owner may list."""
    shutil.rmtree(place, ignore_errors=True)
    if os.path.lexists(place):
        for folder, names, _ in os.walk(place):
            for path in (os.path.join(folder, name) for name in names):
                if not os.path.islink(path):
                    with contextlib.suppress(OSError):
                        os.chmod(path, 0o700)
        shutil.rmtree(place, ignore_errors=True)


def _sweep(base: str) -> None:
    """Remove what processes left that were killed."""
    for name in os.listdir(base):
        pid = name.removeprefix(SCRATCH_PREFIX).partition("-")[0]
        if name.startswith(SCRATCH_PREFIX) and pid.isdigit() and not processes.is_alive(int(pid)):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


async def _hear(source: int, take: Take, control: socket.socket) -> None:
    """Read until all writers have closed; ask for the command's end when no more is wanted."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(source, ready.set)
    wants_more = True
    try:
        while True:
            await ready.wait()
            ready.clear()
            try:
                piece = os.read(source, PIECE_BYTES)
            except BlockingIOError:
                continue
            if not piece:
                return
            if wants_more and not take(piece):
                wants_more = False
                with contextlib.suppress(OSError):
                    control.shutdown(socket.SHUT_WR)
    finally:
        loop.remove_reader(source)


async def _ended(control: socket.socket) -> CommandEnded:
    size = HEAD.unpack(await _exactly(control, HEAD.size))[0]
    return CommandEnded(**json.loads(await _exactly(control, size)))


async def _exactly(control: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(control, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def _end(process: subprocess.Popen[bytes], ours: socket.socket) -> None:
    ours.close()
    try:
        process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
