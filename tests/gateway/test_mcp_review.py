"""A tool of an MCP server that changed: shown over HTTP with how it looked, and decided by a person."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from gateway.gateway import Gateway
from peers.visit import HERE
from person import person_headers
from treadle.config.settings import Mcp
from treadle.providers.fakes.scripted_reply import Reply

WAIT_S = 20.0


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """Return the file whose content a tool of the server says of itself."""
    file = tmp_path / "words"
    file.write_text("does good")
    return file


@pytest.fixture
def served(tmp_path: Path, words: Path) -> Iterator[Gateway]:
    """Start a Treadle that has seen the server once, and sees it again after a tool has changed."""
    command = (sys.executable, str(HERE / "hostile.py"), "changing", str(words))
    servers = (Mcp(name="bad", command=command),)
    with Gateway(lambda _: Reply(text="-"), tmp_path, mcp=servers):
        words.write_text("does evil")
    with Gateway(lambda _: Reply(text="-"), tmp_path, mcp=servers) as running:
        yield running


def test_a_changed_tool_is_reviewed_and_accepted(served: Gateway) -> None:
    """Old and new words come together; a decision about another look is refused, the right one takes effect."""
    url = f"{served.origin}/treadle/v1/mcp"
    (server,) = httpx.get(url).json()["servers"]
    assert server["tools"] == ["mcp__bad__steady"]
    (row,) = server["waiting"]
    assert (row["tool"], row["kind"]) == ("shifty", "changed")
    assert (row["before"].splitlines()[0], row["now"].splitlines()[0]) == ("does good", "does evil")
    wrong = httpx.post(f"{url}/bad", json={"tool": "shifty", "digest": "0", "accept": True}, headers=person_headers())
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (409, "conflict")
    assert (
        httpx.post(
            f"{url}/no", json={"tool": "shifty", "digest": "0", "accept": True}, headers=person_headers()
        ).status_code
        == 404
    )
    assert httpx.post(f"{url}/bad", json={"tool": "shifty"}, headers=person_headers()).status_code == 400
    right = httpx.post(
        f"{url}/bad", json={"tool": "shifty", "digest": row["digest"], "accept": True}, headers=person_headers()
    )
    assert right.json() == {"tool": "shifty", "accepted": True}
    deadline = time.monotonic() + WAIT_S
    while "mcp__bad__shifty" not in json.dumps(httpx.get(f"{served.origin}/treadle/v1/tools").json()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
