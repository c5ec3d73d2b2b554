"""`http_get` against this machine, live: a server counts who connects, and nobody does, by no spelling or detour."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from pathlib import Path

import pytest

from treadle.core.errors import ToolError
from treadle.tools.blocked_ports import OwnPorts, is_own, meanings
from treadle.tools.web import GuardedClient, WebPolicy

EVERYWHERE = ("0.0.0.0/0", "::/0")
FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


class Listener:
    """A server on every address of this machine that counts its connections and answers with some bytes."""

    def __init__(self) -> None:
        self.connections = 0
        self.answer: Callable[[], bytes] = lambda: FINE
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        listening = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port = listening.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=listening)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            pass
        else:
            writer.write(self.answer())
            await writer.drain()
        finally:
            writer.close()


@pytest.fixture
async def treadle() -> AsyncIterator[Listener]:
    """What must not be reached."""
    listener = Listener()
    await listener.open()
    yield listener
    await listener.close()


@pytest.fixture
async def site() -> AsyncIterator[Listener]:
    """A site of somebody else, on the same machine."""
    listener = Listener()
    await listener.open()
    yield listener
    await listener.close()


def client(treadle: Listener, *others: Listener, **options: object) -> GuardedClient:
    """Return a client to which every address and these ports are allowed, but not Treadle's own."""
    ports = tuple(each.port for each in (treadle, *others))
    policy = WebPolicy(networks=EVERYWHERE, ports=ports, timeout_s=10.0)
    return GuardedClient(policy, own_ports=OwnPorts(listeners=[treadle.port]), **options)  # type: ignore[arg-type]


def own_addresses() -> list[str]:
    """Return addresses of this machine that are not loopback; no packet is sent."""
    found: list[str] = []
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((far, 9))
            except OSError:
                continue
            found.append(probe.getsockname()[0])
    return found


HOSTS = [
    "127.0.0.1",
    "127.1.2.3",
    "127.0.0.1.",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "a.localhost",
    "0.0.0.0",
    "0",
    "127.1",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0177.0.0.1",
    "0x7f.1",
    "127.0.0.1%00",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "ⓛocalhost",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::1%25lo]",
    "[::1%lo]",
    "[fe80::1%25lo]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[2002:7f00:1::1]",
    "[2001:0:7f00:1::]",
    "user@127.0.0.1",
    "example.org@127.0.0.1",
    "127.0.0.1#@example.org",
    "example.org\\@127.0.0.1",
]


@pytest.mark.parametrize("host", [*HOSTS, *own_addresses()])
@pytest.mark.parametrize("is_wide", [True, False])
async def test_treadle_is_not_asked_under_any_spelling(treadle: Listener, host: str, is_wide: bool) -> None:
    """Also where the operator allowed every network: nothing connects."""
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    asker = client(treadle) if is_wide else GuardedClient(WebPolicy(ports=(treadle.port,)))
    url = f"http://{shown}:{treadle.port}/treadle/v1/approvals"
    if "#" in host:
        url = f"http://127.0.0.1:{treadle.port}#@example.org/"
    with pytest.raises(ToolError):
        await asker.get(url)
    assert treadle.connections == 0


async def test_the_same_spellings_arrive_at_another_server(treadle: Listener, site: Listener) -> None:
    """So that the refusals above are those of the port and not of an odd spelling alone."""
    asker = client(treadle, site)
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "[::1]", "[::ffff:127.0.0.1]", *own_addresses()[:1]):
        fetched = await asker.get(f"http://{host}:{site.port}/")
        assert (fetched.status, fetched.body) == (200, b"ok"), host
    assert treadle.connections == 0


@pytest.mark.parametrize(
    "place",
    [
        "http://127.0.0.1:{port}/treadle/v1/keys",
        "//127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://0x7f000001:{port}/",
        "http:\\\\127.0.0.1:{port}/",
        "HTTP://LOCALHOST.:{port}/",
        "http://127.0.0.1:0{port}/",
    ],
)
async def test_a_redirect_does_not_lead_to_treadle(treadle: Listener, site: Listener, place: str) -> None:
    """Each step is checked like the first."""
    target = place.format(port=treadle.port)
    site.answer = lambda: f"HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n".encode()
    with pytest.raises(ToolError):
        await client(treadle, site).get(f"http://127.0.0.1:{site.port}/")
    assert (site.connections, treadle.connections) == (1, 0)


async def test_a_name_that_is_bound_again_does_not_lead_to_treadle(treadle: Listener) -> None:
    """What was checked is what is connected to: the name is asked once, and every answer is checked."""
    answers = cycle([["192.0.2.7", "127.0.0.1"], ["127.0.0.1"], ["::1"], ["::ffff:127.0.0.1"], ["127.0.0.1", "::1"]])

    async def lookup(host: str, port: int) -> list[str]:
        return next(answers)

    asker = client(treadle, lookup=lookup)
    for _ in range(5):
        with pytest.raises(ToolError) as caught:
            await asker.get(f"http://rebound.example:{treadle.port}/")
        assert caught.value.info.code == "url_refused"
    assert treadle.connections == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>an answer of HTTP/0.9</html>",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"+PONG\r\n-ERR unknown command\r\n",
        b"HTTP/0.9 200 OK\r\n\r\nok",
        b"HTTP/2.0 200 OK\r\n\r\nok",
        b"ICY 200 OK\r\n\r\nok",
        b"\r\n\r\n",
        b"",
    ],
)
async def test_what_does_not_answer_in_http_is_not_read(treadle: Listener, site: Listener, answer: bytes) -> None:
    """A service of another protocol tells nothing through the tool."""
    site.answer = lambda: answer
    with pytest.raises(ToolError) as caught:
        await client(treadle, site).get(f"http://127.0.0.1:{site.port}/")
    assert "OpenSSH" not in caught.value.message
    assert "0.9" not in caught.value.message


async def test_a_port_that_another_process_listens_at_is_known(treadle: Listener, tmp_path: Path) -> None:
    """By the mark that it leaves for as long as it lives; what a dead process left is taken away."""
    server, tool = OwnPorts(tmp_path / "listeners"), OwnPorts(tmp_path / "listeners")
    stale = tmp_path / "listeners" / f"{2**22 + 1}-{treadle.port + 1}"
    with server.listening(treadle.port):
        stale.touch()
        assert tool.listeners() == {treadle.port}
        assert tool.refusal("127.0.0.1", treadle.port) == f"is Treadle's own at port {treadle.port}"
        assert tool.refusal("192.0.2.7", treadle.port) is None
    assert tool.listeners() == frozenset()
    assert not stale.exists()


def test_services_are_refused_in_private_networks_too() -> None:
    """The journal of several machines is seldom on this one."""
    ports = OwnPorts(listeners=[8700], services=[5432])
    assert ports.refusal("10.0.0.7", 5432) is not None
    assert ports.refusal("10.0.0.7", 8700) is None
    assert ports.refusal("1.1.1.1", 5432) is None
    assert ports.closed() == {8700, 5432}


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("64:ff9b::7f00:1", "127.0.0.1"),
        ("2002:7f00:1::1", "127.0.0.1"),
        ("::7f00:1", "127.0.0.1"),
        ("2001:0:7f00:1::", "127.0.0.1"),
    ],
)
def test_an_address_inside_an_address_is_looked_at(text: str, inner: str) -> None:
    """Mapped, translated, tunnelled."""
    assert inner in [str(each) for each in meanings(text)]
    assert any(map(is_own, meanings(text)))
