"""Without the SDK everything else works, and what needs it says so."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, sys
sys.modules["mcp"] = None
sys.modules["mcp_types"] = None
from treadle.core.errors import ConfigError
from treadle.config import Mcp, ServerSection, Settings, StoreSection
from treadle.runtime import Runtime
from treadle.server.app import App

async def ask(app, method):
    sent = []
    scope = {"type": "http", "method": method, "path": "/mcp", "query_string": b"",
             "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]}
    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}
    async def send(message):
        sent.append(message)
    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"].decode()

async def main():
    store = StoreSection(persistence="off")
    try:
        Runtime(Settings(store=store, mcp=(Mcp(name="a", command=("x",)),)))
    except ConfigError as error:
        print(error.message, "|", error.hint)
    async with Runtime(Settings(store=store, server=ServerSection(mcp=True))) as runtime:
        print(*await ask(App(runtime), "POST"))

asyncio.run(main())
"""


def test_what_needs_the_sdk_names_the_extra(tmp_path: Path) -> None:
    """A configured server stops the start, /mcp answers 501; both say what to install."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith("[[mcp]] needs the MCP SDK, which is not installed")
    assert first.endswith("| pip install 'treadle[mcp]'")
    assert second.startswith("501 ")
    assert "pip install 'treadle[mcp]'" in second


@pytest.mark.parametrize("module", ["treadle.runtime", "treadle.server.app", "treadle.cli.commands.mcp_command"])
def test_the_sdk_is_imported_only_when_it_is_used(module: str) -> None:
    """A gateway without MCP starts without it."""
    program = f"import sys, {module}; print('mcp' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "False\n"
