"""`treadle serve --reload` as a real process: tools change under it, with their policies, and MCP clients are told."""

import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from peers.visit import until

SOURCE = "from treadle import tool\n\n\n@tool(effect='{effect}')\ndef {name}() -> str:\n    '''Act.'''\n    return ''\n"
CONFIG = '[server]\nmcp = true\n\n[[tools.rule]]\nmatch = ["second"]\napproval = "always"\n'


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Start a server that watches a file of tools, on a free port, and end it."""
    (tmp_path / "mine.py").write_text(SOURCE.format(name="first", effect="read"))
    (tmp_path / "treadle.toml").write_text(CONFIG)
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    flags = ["serve", "--config", "treadle.toml", "--port", "0", "--tools", "mine.py", "--reload"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "treadle.cli.main", *flags],
            env={**kept, "HOME": str(tmp_path), "PYTHONUTF8": "1"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
    assert found, (tmp_path / "log").read_text()
    yield found[0]
    process.kill()
    process.communicate(timeout=30)


def listed(url: str) -> dict[str, Any]:
    """Return the tools of the server by name."""
    with urllib.request.urlopen(f"{url}/treadle/v1/tools", timeout=30) as response:
        return {each["spec"]["name"]: each for each in json.load(response)["tools"]}


async def test_a_changed_file_changes_the_tools_of_a_running_server(tmp_path: Path, url: str) -> None:
    """New tools come under the same rules; a file that cannot be loaded leaves them; clients over MCP hear of it."""
    heard: list[object] = []

    async def hear(message: object) -> None:
        heard.append(message)

    async with Client(f"{url}/mcp", mode="legacy", message_handler=hear) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["first"]
        (tmp_path / "mine.py").write_text(SOURCE.format(name="second", effect="idempotent"))
        await until(lambda: any(isinstance(each, types.ToolListChangedNotification) for each in heard))
        (found,) = (await asyncio.to_thread(listed, url)).values()
        assert (found["spec"]["name"], found["policy"]["effect"]) == ("second", "idempotent")
        assert (found["policy"]["approval"], found["why"]["approval"]) == ("always", "[[tools.rule]] #1")
        (tmp_path / "mine.py").write_text("def broken(:\n")
        await until(lambda: "tools not reloaded" in (tmp_path / "log").read_text())
        assert list(await asyncio.to_thread(listed, url)) == ["second"]
