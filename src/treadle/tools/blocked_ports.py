"""Ports that no tool may reach: where Treadle itself listens, and where its journal and its counters answer.

Each process that listens leaves its port in a folder that the processes of one user share, so that a command of
`treadle chat` knows the port of a `treadle serve` beside it.
"""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Generator, Iterable
from pathlib import Path

from treadle.tools.sandbox.process_tree import is_alive

PORTS_READ_MAX = 1_000
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Networks whose addresses end in an IPv4 address that they lead to."""


class OwnPorts:
    """The ports of this installation: `listeners` are Treadle's own, `services` what it keeps its state in."""

    def __init__(self, folder: Path | None = None, listeners: Iterable[int] = (), services: Iterable[int] = ()) -> None:
        self._folder = folder
        self._listeners = frozenset(listeners) - {0}
        self._services = frozenset(services) - {0}
        self._open: set[int] = set()

    def listeners(self) -> frozenset[int]:
        """Return where Treadle listens on this machine: as configured, in this process, in others of this user."""
        return self._listeners | self._open | self._others()

    def closed(self) -> frozenset[int]:
        """Return every port that a program of a tool may not connect to."""
        return self.listeners() | self._services

    def refusal(self, text: str, port: int) -> str | None:
        """Say why an address and a port may not be asked by a tool, or nothing."""
        is_listener, is_service = port in self.listeners(), port in self._services
        if not (is_listener or is_service):
            return None
        if any(is_own(address) or (is_service and not address.is_global) for address in meanings(text)):
            return f"is Treadle's own at port {port}"
        return None

    @contextlib.contextmanager
    def listening(self, port: int) -> Generator[None, None, None]:
        """Let others know that this process listens, for as long as it does."""
        self._open.add(port)
        mark = None if self._folder is None else self._folder / f"{os.getpid()}-{port}"
        try:
            if mark is not None:
                # Where nothing can be written, such as a read-only home, the configured port is still known.
                with contextlib.suppress(OSError):
                    mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    mark.touch(mode=0o600)
            yield
        finally:
            self._open.discard(port)
            if mark is not None:
                with contextlib.suppress(OSError):
                    mark.unlink()

    def _others(self) -> set[int]:
        found: set[int] = set()
        try:
            names = [] if self._folder is None else sorted(os.listdir(self._folder))[:PORTS_READ_MAX]
        except OSError:
            return found
        for name in names:
            pid, _, port = name.partition("-")
            if not (pid.isdigit() and port.isdigit()):
                continue
            if is_alive(int(pid)):
                found.add(int(port))
            elif self._folder is not None:
                with contextlib.suppress(OSError):
                    (self._folder / name).unlink()
        return found


def meanings(text: str) -> list[Address]:
    """Return an address and every other one that it may lead to: mapped, translated or tunnelled."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return []
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _TRANSLATED):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *(each for each in inner if each is not None)]


def is_own(address: Address) -> bool:
    """Tell whether an address is one of this machine, which is what can be bound."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            found = socket.getaddrinfo(str(address), 0, family, socket.SOCK_DGRAM, 0, socket.AI_NUMERICHOST)
            probe.bind(found[0][4])
    except OSError:
        return False
    return True
