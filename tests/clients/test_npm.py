"""Real npm clients through Treadle. They need the npm registry the first time; `make test-clients` runs them."""

from pathlib import Path

import pytest

from clients import node
from gateway.gateway import Gateway
from treadle.canon.items import ResultItem
from treadle.canon.plan import Plan
from treadle.tools.demo import DEMO_TOOLS
from treadle.upstream.reply import Reply, ReplyCall

WEATHER = Reply(calls=(ReplyCall(name="get_weather", args={"city": "Paris"}),))
BOOK = Reply(text="One moment. ", calls=(ReplyCall(name="book_table", args={"seats": 2}),))


def answer(plan: Plan) -> Reply:
    """Play a model that calls one tool, a server's or a client's as its name says, and then answers."""
    if isinstance(plan.items[-1], ResultItem):
        return Reply(text="It is sunny." if plan.model == "server" else "Booked.")
    return WEATHER if plan.model == "server" else BOOK


@pytest.fixture(scope="module")
def folder() -> Path:
    """Install the clients once."""
    return node.install()


@pytest.fixture
def gateway(tmp_path: Path):
    """Start a Treadle whose model is named after who runs its tool."""
    with Gateway(answer, tmp_path, tools=DEMO_TOOLS) as running:
        yield running


def test_openai_for_node(folder: Path, gateway: Gateway):
    """Chat and Responses with a server tool, and the SDK's own tool runner with a client tool."""
    assert node.run("openai_node.mjs", gateway.url, folder) == {
        "chat_whole": "It is sunny.",
        "chat_stream": "It is sunny.",
        "responses_stream": "It is sunny.",
        "responses_items": ["mcp_call", "message"],
        "responses_ends": ["response.created", "response.completed"],
        "run_tools": "Booked.",
    }


def test_vercel_ai(folder: Path, gateway: Gateway):
    """Both providers, streamed and whole, over two steps with a client tool."""
    assert node.run("vercel_ai.mjs", gateway.url, folder) == {
        "responses_server": "It is sunny.",
        "responses_client": "Booked.",
        "responses_whole": "Booked.",
        "chat_server": "It is sunny.",
        "chat_client": "Booked.",
        "chat_whole": "Booked.",
    }
