"""The SDKs of npm hold whole conversations through Treadle, with upstreams of all four protocols."""

import json
from pathlib import Path

import pytest

from clients import node
from clients.model import learnt
from clients.sandbox import Home
from clients.watched import Watched

CONVERSATIONS = {
    "openai.mjs": ("chat", "responses"),
    "anthropic.mjs": ("messages",),
    "genai.mjs": ("gemini",),
    "vercel.mjs": ("chat", "responses", "messages", "gemini"),
}


@pytest.mark.parametrize("program", CONVERSATIONS)
def test_an_sdk_of_npm_holds_whole_conversations(
    packages: Path, gateway: Watched, home: Home, proof: str, weather: str, program: str
) -> None:
    """Its own tool and the server's, called in one turn, both reach the answer; nothing is refused or asked outside."""
    home.link("node_modules", packages)
    home.write(program, (node.HERE / "programs" / program).read_text(encoding="utf-8"))
    ran = home.run(node.NODE, program, environment={"TREADLE_URL": gateway.origin, "TREADLE_PROOF": proof})
    assert ran.code == 0, ran.errors
    ways = [f"{api}_{way}" for api in CONVERSATIONS[program] for way in ("whole", "streamed")]
    assert json.loads(ran.output) == dict.fromkeys(ways, learnt(proof, weather))
    assert (gateway.refused, ran.outside) == ([], frozenset())
