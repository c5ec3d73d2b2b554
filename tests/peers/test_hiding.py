"""A stdio server that looks for Treadle finds no file, process or port of it; the rest is as it was."""

import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from peers.visit import HERE, Visit, visit
from sandbox.stage import listening
from treadle.config import Settings, StoreSection
from treadle.config.mcp_settings import own_paths
from treadle.tools.mcp import ServerOptions
from treadle.tools.mcp.server_isolation import Hiding
from treadle.tools.sandbox import find_level

pytestmark = pytest.mark.skipif(find_level().level < 3, reason="hiding needs user namespaces and Landlock 4")


class Scene:
    """A data folder with a secret, a file beside it, two servers, and a spy."""

    def __init__(self, spy: Visit, folder: Path, closed: int, opened: int) -> None:
        self.spy = spy
        self.data = folder / "data"
        self.beside = folder / "beside.txt"
        self.closed = closed
        self.opened = opened

    async def play(self, tool: str, **arguments: Any) -> str:
        """Let the spy try something."""
        outcome = await self.spy.call(f"mcp__spy__{tool}", **arguments)
        return str(outcome)


@pytest.fixture(params=[False, True], ids=["untrusted", "trusted"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """A spy, which the operator trusts or not."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "secret.key").write_bytes(b"the-secret")
    (tmp_path / "beside.txt").write_text("beside")
    options = ServerOptions(name="spy", command=(sys.executable, str(HERE / "spy.py")), trusted=request.param)
    with listening(("0.0.0.0", 0)) as closed, listening(("127.0.0.1", 0)) as opened:
        ports = [each.getsockname()[1] for each in (closed, opened)]
        hiding = Hiding(lambda: [str(data)], lambda: frozenset({ports[0]}))
        async with visit(options, hiding=hiding) as spy:
            yield Scene(spy, tmp_path, *ports)


def attempts(scene: Scene) -> list[tuple[str, dict[str, Any]]]:
    """Return ways to Treadle."""
    secret, own = str(scene.data / "secret.key"), os.getpid()
    ways: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": secret}),
        ("look", {"path": str(scene.data)}),
        ("write", {"path": str(scene.data / "mcp-tools.json")}),
        ("read", {"path": f"/proc/{own}/root{secret}"}),
        ("read", {"path": f"/proc/{own}/environ"}),
        ("link", {"path": f"/proc/{own}/fd/0"}),
        ("link", {"path": f"/proc/{own}/cwd"}),
        ("connect", {"host": "127.0.0.1", "port": scene.closed}),
        ("connect", {"host": "127.9.9.9", "port": scene.closed}),
        ("connect", {"host": "::ffff:127.0.0.1", "port": scene.closed}),
        ("connect", {"host": "127.0.0.1", "port": scene.closed, "protocol": 262}),
    ]
    if sys.platform == "linux" and hasattr(socket, "MSG_FASTOPEN"):
        ways.append(("connect", {"host": "127.0.0.1", "port": scene.closed, "flags": int(socket.MSG_FASTOPEN)}))
    return ways


async def test_a_server_finds_treadle_only_where_it_is_trusted(scene: Scene, request: pytest.FixtureRequest) -> None:
    """Each way is open to a trusted one, so that a way that leads nowhere is noticed."""
    is_trusted = request.node.callspec.params["scene"]
    for tool, arguments in attempts(scene):
        said = await scene.play(tool, **arguments)
        # A folder that is hidden looks empty.
        assert ("REACHED" in said and "REACHED []" not in said) is is_trusted, (tool, arguments, said)
        assert is_trusted or "the-secret" not in said


async def test_a_server_keeps_what_is_its_own(scene: Scene) -> None:
    """Files beside, other servers, writing: nothing else is taken from it."""
    assert "beside" in await scene.play("read", path=str(scene.beside))
    assert "REACHED" in await scene.play("write", path=str(scene.beside))
    assert "REACHED" in await scene.play("connect", host="127.0.0.1", port=scene.opened)


@pytest.mark.parametrize("scene", [False], ids=["untrusted"], indirect=True)
async def test_the_mask_stays_on(scene: Scene) -> None:
    """Also for a server that makes namespaces of its own."""
    assert "REACHED" not in await scene.play("unmask", path=str(scene.data))
    assert "REACHED b'the-secret'" not in await scene.play("read", path=str(scene.data / "secret.key"))


async def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    """By the launcher as without it."""
    hiding = Hiding(list, frozenset)
    async with visit(ServerOptions(name="gone", command=("no-such-program-here",)), hiding=hiding) as gone:
        [server] = gone.servers.all
        assert "No such file" in server.reason


def test_what_is_hidden_is_the_journal_and_all_beside_it(tmp_path: Path) -> None:
    """The data folder; of a journal elsewhere its files, and no more of that folder."""
    env = {"XDG_DATA_HOME": str(tmp_path / "home")}
    data = str(tmp_path / "home" / "treadle")
    inside = Settings(store=StoreSection(url=f"sqlite:///{data}/treadle.db"))
    assert own_paths(inside, env) == [data]
    outside = Settings(store=StoreSection(url=f"sqlite:///{tmp_path}/elsewhere/own.db"))
    names = ["own.db", "own.db-wal", "own.db-shm", "own.db-journal", "secret.key", "mcp-tools.json"]
    assert own_paths(outside, env) == [data, *(f"{tmp_path}/elsewhere/{name}" for name in names)]
