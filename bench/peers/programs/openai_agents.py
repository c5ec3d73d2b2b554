"""The loop of openai-agents: Agent and Runner with a function tool, over chat completions."""

import asyncio
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from lines import serve
from openai import AsyncOpenAI

URL = sys.argv[1]


@function_tool
async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Serve runs."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=URL, api_key="none")

    async def run(model: str) -> str:
        agent = Agent(
            name="bench", tools=[bench_add], model=OpenAIChatCompletionsModel(model=model, openai_client=client)
        )
        return (await Runner.run(agent, "go", max_turns=2_000)).final_output

    await serve(run)


asyncio.run(main())
