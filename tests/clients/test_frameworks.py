"""Python agent frameworks hold whole conversations through Treadle, with upstreams of all four protocols."""

import json
from pathlib import Path

import pytest

from clients.model import learnt
from clients.sandbox import Home
from clients.watched import Watched

PROGRAMS = Path(__file__).parent / "programs"
CONVERSATIONS = {
    "run_agents.py": ("responses", "chat"),
    "run_pydantic.py": ("chat", "responses", "messages", "gemini"),
    "run_langchain.py": ("chat", "responses"),
}


@pytest.mark.parametrize("program", CONVERSATIONS)
def test_a_framework_holds_whole_conversations(
    interpreter: Path, gateway: Watched, home: Home, proof: str, weather: str, program: str
) -> None:
    """Its own tool and the server's, called in one turn, both reach the answer; nothing is refused or asked outside."""
    environment = {"TREADLE_URL": gateway.origin, "TREADLE_PROOF": proof}
    ran = home.run(interpreter, PROGRAMS / program, environment=environment)
    assert ran.code == 0, ran.errors
    ways = [f"{api}_{way}" for api in CONVERSATIONS[program] for way in ("whole", "streamed")]
    assert json.loads(ran.output) == dict.fromkeys(ways, learnt(proof, weather))
    assert (gateway.refused, ran.outside) == ([], frozenset())
