"""What every client gets: a Treadle before an upstream of each protocol, a home, and something only a tool can tell."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients import node, python
from clients.cache import NotInstalled
from clients.model import answer
from clients.sandbox import Home
from clients.watched import Watched
from treadle.tools.demo_tools import DEMO_TOOLS, get_weather

UPSTREAMS = ("chat", "responses", "messages", "gemini")


@pytest.fixture(params=UPSTREAMS)
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Watched]:
    """Start a Treadle with server tools before an upstream of one protocol."""
    with Watched(answer, tmp_path, tools=DEMO_TOOLS, protocol=request.param) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Make a home without any command."""
    return Home(tmp_path)


@pytest.fixture(scope="session")
def packages() -> Path:
    """Return the modules of the npm SDKs, installing them once."""
    try:
        return node.install() / "node_modules"
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def interpreter() -> Path:
    """Return a Python that has the frameworks, installing them once."""
    try:
        return python.install()
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture
def proof() -> str:
    """Make up what the model can only learn from the client's tool."""
    return f"proof-{secrets.token_hex(4)}"


@pytest.fixture(scope="session")
def weather() -> str:
    """Return what the model can only learn from the server's tool."""
    return f"{get_weather(city='Paris').temperature_c} °C"
