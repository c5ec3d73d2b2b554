"""A model that wants to agree to its own call: its tools ask the server that runs them, and nothing is decided."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from gateway.gateway import Gateway
from person import person_headers
from treadle import tool
from treadle.config import LocalSection, ToolsSection
from treadle.config.settings import WebSection, WorkspaceSection
from treadle.core.items import ResultItem, text_of
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.tools.sandbox import find_level

BOUND_S = 60.0
WORKSPACES = "/treadle/v1/workspaces"

pytestmark = pytest.mark.skipif(find_level().level < 2, reason="a command with a network needs L2")


@tool(effect="read")
def post(url: str, body: str) -> str:
    """Send JSON somewhere, as any program on this machine can."""
    request = urllib.request.Request(url, body.encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=BOUND_S) as answer:
            return f"{answer.status}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


class Accomplice:
    """A model that makes the calls it is given, and repeats what it read of them."""

    def __init__(self) -> None:
        self.calls: tuple[ReplyCall, ...] = ()

    def __call__(self, plan: Plan) -> Reply:
        results = [item for item in plan.items if isinstance(item, ResultItem)]
        return Reply(text="\n".join(text_of(item.output) for item in results)) if results else Reply(calls=self.calls)


@pytest.fixture
def model() -> Accomplice:
    """The model."""
    return Accomplice()


@pytest.fixture
def desk(tmp_path: Path, model: Accomplice) -> Iterator[Gateway]:
    """A Treadle with a shell that may use a network, `http_get` into loopback, and a workspace."""
    root = tmp_path / "root"
    root.mkdir()
    local = LocalSection(root=str(root), enabled=("bash",), network=True, policy="trust")
    web = WebSection(enabled=True, networks=("127.0.0.0/8", "::/0"), ports=tuple(range(1, 65_536)))
    chosen = ToolsSection(local=local, web=web)
    gateway = Gateway(model, tmp_path, tools=[post], workspace=WorkspaceSection(enabled=True))
    gateway._sections["tools"] = chosen  # pyright: ignore[reportPrivateUsage]
    with gateway:
        port = urlsplit(gateway.origin).port
        assert port is not None
        with gateway.runtime.own_ports.listening(port):
            yield gateway


def proposed(desk: Gateway) -> tuple[str, dict[str, Any]]:
    """Leave a proposal open, and return where and how it is confirmed."""
    made = httpx2.post(
        desk.origin + WORKSPACES, json={"name": "desk", "facts": {"a": 1}}, headers=person_headers(), timeout=BOUND_S
    )
    assert made.status_code == 201, made.text
    change = {"changes": [{"path": "/facts/a", "value": 2}]}
    proposal = httpx2.post(f"{desk.origin}{WORKSPACES}/desk/proposals", json=change, timeout=BOUND_S).json()
    path = f"{WORKSPACES}/desk/proposals/{proposal['id']}/confirm"
    return path, {"version": made.json()["facts_version"]}


def asked(desk: Gateway) -> str:
    """Let the model do it, and return what it read."""
    body = {"model": "script", "messages": [{"role": "user", "content": "go"}]}
    answer = httpx2.post(f"{desk.url}/chat/completions", json=body, timeout=BOUND_S)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def test_a_model_confirms_nothing_by_its_tools(desk: Gateway, model: Accomplice) -> None:
    """A tool in Python reaches the server and is no person; a command and `http_get` do not even reach it."""
    path, body = proposed(desk)
    parts, text = urlsplit(desk.origin), json.dumps(body)
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
    )
    head = "\\r\\n".join(lines)
    command = f"exec 3<>/dev/tcp/127.0.0.1/{parts.port} && printf '{head}\\r\\n\\r\\n{text}' >&3 && head -c 99 <&3"
    for name, args, wanted in (
        ("post", {"url": desk.origin + path, "body": text}, "person_needed"),
        ("bash", {"command": command, "network": True}, "Permission denied"),
        ("http_get", {"url": f"http://localhost:{parts.port}{path}"}, "Treadle's own"),
        ("http_get", {"url": f"http://127.0.0.1:{parts.port}{WORKSPACES}"}, "Treadle's own"),
    ):
        model.calls = (ReplyCall(name=name, args=args),)
        said = asked(desk)
        assert wanted in said, (name, said)
    facts = httpx2.get(f"{desk.origin}{WORKSPACES}/desk", timeout=BOUND_S).json()["facts"]
    assert facts == {"a": 1}
    confirmed = httpx2.post(desk.origin + path, json=body, headers=person_headers(), timeout=BOUND_S)
    assert confirmed.status_code == 200, confirmed.text
