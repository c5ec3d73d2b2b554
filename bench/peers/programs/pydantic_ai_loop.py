"""The loop of pydantic-ai: an Agent with a plain tool, over chat completions."""

import asyncio
import sys

from lines import serve
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

URL = sys.argv[1]


async def bench_add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    """Serve runs."""
    provider = OpenAIProvider(base_url=URL, api_key="none")

    async def run(model: str) -> str:
        agent = Agent(OpenAIChatModel(model, provider=provider), tools=[bench_add])
        return (await agent.run("go", usage_limits=UsageLimits(request_limit=None))).output

    await serve(run)


asyncio.run(main())
