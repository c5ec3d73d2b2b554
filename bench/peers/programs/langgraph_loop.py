"""The loop of LangGraph: LangChain's agent graph with a tool, over chat completions, without a checkpointer."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from lines import serve

URL = sys.argv[1]


@tool
async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Serve runs."""
    agents = {}

    async def run(model: str) -> str:
        if model not in agents:
            agents[model] = create_agent(ChatOpenAI(model=model, base_url=URL, api_key="none"), [bench_add])
        asked = {"messages": [{"role": "user", "content": "go"}]}
        answer = await agents[model].ainvoke(asked, config={"recursion_limit": 5_000})
        return answer["messages"][-1].content

    await serve(run)


asyncio.run(main())
