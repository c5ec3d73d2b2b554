"""The ports that tools may not reach: Treadle's own listeners, and the servers of its journal and its counters.

Each listening process records its port in a folder shared by the processes of one user, so that the commands of a
`treadle chat` cannot reach a `treadle serve` on the same machine.
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
"""Networks whose addresses embed the IPv4 address they are translated to, in the last 32 bits."""


class OwnPorts:
    """The ports of this installation: `listeners` accept Treadle's requests, `services` store its state."""

    def __init__(self, folder: Path | None = None, listeners: Iterable[int] = (), services: Iterable[int] = ()) -> None:
        self._folder = folder
        self._listeners = frozenset(listeners) - {0}
        self._services = frozenset(services) - {0}
        self._open: set[int] = set()

    def listeners(self) -> frozenset[int]:
        """Return the ports Treadle listens on: as configured, of this process, and of this user's other ones."""
        return self._listeners | self._open | self._recorded_by_others()

    def closed(self) -> frozenset[int]:
        """Return every port that a tool's program may not connect to."""
        return self.listeners() | self._services

    def refusal(self, text: str, port: int) -> str | None:
        """Return why a tool may not connect to this address and port; None when it may."""
        is_listener, is_service = port in self.listeners(), port in self._services
        if not (is_listener or is_service):
            return None
        if any(is_own(address) or (is_service and not address.is_global) for address in meanings(text)):
            return f"is Treadle's own at port {port}"
        return None

    @contextlib.contextmanager
    def listening(self, port: int) -> Generator[None, None, None]:
        """Record this port in the shared folder while the process listens."""
        self._open.add(port)
        record = None if self._folder is None else self._folder / f"{os.getpid()}-{port}"
        try:
            if record is not None:
                # With a read-only home the record is lost, but the configured port is still blocked.
                with contextlib.suppress(OSError):
                    record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    record.touch(mode=0o600)
            yield
        finally:
            self._open.discard(port)
            if record is not None:
                with contextlib.suppress(OSError):
                    record.unlink()

    def _recorded_by_others(self) -> set[int]:
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
                # Its process is gone: drop the record, since the port may now belong to another program.
                with contextlib.suppress(OSError):
                    (self._folder / name).unlink()
        return found


def meanings(text: str) -> list[Address]:
    """Return the address and every address embedded in it: IPv4-mapped, translated or tunnelled."""
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
    """Return whether the address belongs to this machine, by trying to bind it."""
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
