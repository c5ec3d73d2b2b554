"""The agent loops beside which Treadle's is measured: one program each, in the environment of its framework."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.peers.install import node_packages, python_env
from bench.rig.processes import ROOT

PROGRAMS = Path(__file__).with_name("programs")
AGENTS = ("openai-agents==0.24.0", "openai==3.49.0")
PYDANTIC = ("pydantic-ai-slim[openai]==2.66.0", "openai==3.49.0")
LANGGRAPH = ("langchain==1.4.7", "langgraph==1.2.20", "langchain-openai==1.7.3")
VERCEL = {"ai": "7.0.169", "@ai-sdk/openai-compatible": "3.0.90", "zod": "4.6.7"}


class Loop(NamedTuple):
    """A loop by its name; `command` installs what it needs and says how it is started with the upstream's address."""

    name: str
    command: Callable[[str], list[str | Path]]
    version: str = ""


def _in_env(requirements: tuple[str, ...], program: str) -> Callable[[str], list[str | Path]]:
    return lambda url: [python_env(*requirements) / "bin" / "python", PROGRAMS / program, url]


def _vercel(url: str) -> list[str | Path]:
    node, folder = node_packages(VERCEL)
    return [node, PROGRAMS / "vercel_ai.mjs", url, folder]


def treadle(store: str) -> Callable[[str], list[str | Path]]:
    """Return the command of Treadle's own loop with its journal in this store."""
    return lambda url: [sys.executable, PROGRAMS / "treadle_loop.py", url, store]


FRAMEWORKS = (
    Loop("openai-agents", _in_env(AGENTS, "openai_agents.py"), " ".join(AGENTS)),
    Loop("pydantic-ai", _in_env(PYDANTIC, "pydantic_ai_loop.py"), " ".join(PYDANTIC)),
    Loop("LangGraph", _in_env(LANGGRAPH, "langgraph_loop.py"), " ".join(LANGGRAPH)),
    Loop("Vercel ai", _vercel, " ".join(f"{name}@{version}" for name, version in VERCEL.items())),
)
ENV = {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
