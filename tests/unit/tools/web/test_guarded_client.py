import asyncio
import gzip
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from treadle.core.errors import ToolError
from treadle.tools.web import guarded_client as client
from treadle.tools.web.guarded_client import GuardedClient, Lookup
from treadle.tools.web.http_get import web_tools
from unit.tools.fakes import outcome

LOOPBACK = ("127.0.0.0/8",)


class Site:
    """A web site on this machine, and a client that may ask it under a name."""

    def __init__(self, server: TestServer) -> None:
        self.server = server
        self.asked: list[str] = []

    def client(self, lookup: Lookup | None = None, **options: object) -> GuardedClient:
        from treadle.tools.web.ssrf_guard import WebPolicy

        policy = WebPolicy(**{"ports": (self.port,), "networks": LOOPBACK, **options})  # type: ignore[arg-type]
        return GuardedClient(policy, lookup=lookup or self._look_up)

    @property
    def port(self) -> int:
        assert self.server.port is not None
        return self.server.port

    def url(self, path: str, host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"

    async def _look_up(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return ["127.0.0.1"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A site with pages, redirects and traps."""

    async def redirect(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"location": request.query["to"]})

    async def bomb(request: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(b"0" * 20_000_000), headers={"content-encoding": "gzip"})

    async def echo(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.host} {sorted(request.headers)}")

    async def page(request: web.Request) -> web.Response:
        return web.Response(body="é".encode("latin-1"), headers={"content-type": "text/html; charset=latin-1"})

    async def odd(request: web.Request) -> web.Response:
        return web.Response(body=b"x", headers={"content-encoding": "br"})

    async def binary(request: web.Request) -> web.Response:
        return web.Response(body=b"\0\1\2", content_type="image/png")

    app = web.Application()
    for path, handler in (
        ("/redirect", redirect),
        ("/bomb", bomb),
        ("/echo", echo),
        ("/page", page),
        ("/odd", odd),
        ("/binary", binary),
    ):
        app.router.add_get(path, handler)
    server = TestServer(app)
    await server.start_server()
    yield Site(server)
    await server.close()


def code_of(caught: pytest.ExceptionInfo[ToolError]) -> str:
    """Return the code of a refusal."""
    return caught.value.info.code


async def test_a_page_is_fetched_from_the_address_that_was_checked(site: Site) -> None:
    """The name is looked up once, goes out as the host, and nothing of ours goes with it."""
    fetched = await site.client().get(site.url("/echo"))
    assert fetched.status == 200
    sent = ["Accept", "Accept-Encoding", "Connection", "Host", "User-Agent"]
    assert fetched.body.decode() == f"site.example:{site.port} {sent}"
    assert site.asked == ["site.example"]


async def test_nothing_but_the_checked_address_is_connected_to(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system is not asked for the name again; an address in the URL is not looked up at all."""

    async def never(*_: object, **__: object) -> None:
        raise AssertionError("it was looked up twice")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    assert (await site.client().get(site.url("/echo"))).status == 200
    assert (await site.client(lookup=never).get(site.url("/echo", "127.0.0.1"))).status == 200  # type: ignore[arg-type]


async def test_who_answers_is_looked_at_once_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that leads elsewhere than it was told to is not spoken to."""

    async def elsewhere(addresses: object, port: int) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", site.port))
        made.setblocking(False)
        return made

    monkeypatch.setattr(client, "dial_one_of", elsewhere)

    async def lookup(host: str, port: int) -> list[str]:
        return ["93.184.216.34"]

    with pytest.raises(ToolError, match=r"127\.0\.0\.1 is not a public address") as caught:
        await site.client(lookup, networks=()).get(site.url("/echo"))
    assert code_of(caught) == "url_refused"


@pytest.mark.parametrize("answers", [["10.0.0.1"], ["127.0.0.1", "169.254.169.254"], ["::1"], ["0.0.0.0"]])
async def test_a_name_that_leads_inside_is_refused_as_a_whole(site: Site, answers: list[str]) -> None:
    """Also when only one of its addresses does."""

    async def lookup(host: str, port: int) -> list[str]:
        return answers

    with pytest.raises(ToolError, match="is not a public address") as caught:
        await site.client(lookup).get(site.url("/echo"))
    assert code_of(caught) == "url_refused"


async def test_a_name_that_changes_its_address_is_caught_at_every_step(site: Site) -> None:
    """The second lookup of a redirect to the same name is checked like the first."""
    answers = [["127.0.0.1"], ["10.0.0.1"]]

    async def lookup(host: str, port: int) -> list[str]:
        return answers.pop(0)

    with pytest.raises(ToolError, match=r"leads to 10\.0\.0\.1") as caught:
        await site.client(lookup).get(site.url("/redirect?to=/echo"))
    assert code_of(caught) == "url_refused"


@pytest.mark.parametrize(
    "place",
    ["http://10.0.0.1/", "http://169.254.169.254/", "file:///etc/passwd", "//user@site.example/", "http://0x7f.1/"],
)
async def test_a_redirect_inwards_is_refused(site: Site, place: str) -> None:
    """Each hop passes the same checks as the first URL."""
    with pytest.raises(ToolError) as caught:
        await site.client().get(site.url(f"/redirect?to={place}"))
    assert code_of(caught) == "url_refused"


async def test_redirects_are_followed_and_counted(site: Site) -> None:
    """To the page at their end; a loop has one too."""
    assert (await site.client().get(site.url("/redirect?to=/page"))).url.endswith("/page")
    loop = site.url("/redirect?to=/redirect%3Fto%3D/redirect%253Fto%253D/redirect")
    with pytest.raises(ToolError, match="More than 1 redirects") as caught:
        await site.client(redirects_max=1).get(loop)
    assert code_of(caught) == "too_many_redirects"


async def test_an_answer_has_a_size_also_when_it_is_packed(site: Site) -> None:
    """Twenty megabytes of nothing stay what the policy allows; an unknown packing is refused."""
    fetched = await site.client(bytes_max=2_048).get(site.url("/bomb"))
    assert (len(fetched.body), fetched.is_cut) == (2_048, True)
    with pytest.raises(ToolError, match="packed as br"):
        await site.client().get(site.url("/odd"))


async def test_a_server_that_cannot_be_reached_is_said(site: Site) -> None:
    """A name without an address, and a port where nobody listens."""

    async def nowhere(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(ToolError) as caught:
        await site.client(nowhere).get(site.url("/echo"))
    assert code_of(caught) == "unreachable"


async def test_the_tool_answers_with_text_or_a_description(site: Site) -> None:
    """Status, final address, type and the text in its own encoding; bytes only by hash."""
    tool = web_tools(site.client())[0]
    assert (tool.name, tool.policy.egress, tool.policy.effect) == ("http_get", True, "read")
    page = await outcome(tool, f'{{"url":"{site.url("/page")}"}}')
    assert page.text == (f'{{"status":200,"url":"{site.url("/page")}","content_type":"text/html","body":"é"}}')
    binary = await outcome(tool, f'{{"url":"{site.url("/binary")}"}}')
    assert '"bytes":3,"sha256":' in binary.text
    refused = await outcome(tool, '{"url":"http://127.1/"}')
    assert (refused.rc, "url_refused" in refused.text) == ("failed", True)
