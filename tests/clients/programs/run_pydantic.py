"""Pydantic AI: its four models, streamed and whole."""

import asyncio
import json
import os
from collections.abc import AsyncIterable

from pydantic_ai import Agent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider

QUESTION = "What is the weather in Paris? Book a table for two."
ROOT = os.environ["TREADLE_URL"]
OPENAI = OpenAIProvider(base_url=f"{ROOT}/v1", api_key="unused")
MODELS = {
    "chat": OpenAIChatModel("demo", provider=OPENAI),
    "responses": OpenAIResponsesModel("demo", provider=OPENAI),
    "messages": AnthropicModel("demo", provider=AnthropicProvider(base_url=ROOT, api_key="unused")),
    "gemini": GoogleModel("demo", provider=GoogleProvider(base_url=ROOT, api_key="unused")),
}


def book_table(seats: int) -> str:
    """Book a table."""
    return f"booked for {seats}: {os.environ['TREADLE_PROOF']}"


async def streamed(agent: Agent) -> str:
    """Follow a run event by event; the text told piece by piece must be the output."""
    pieces: list[str] = []

    async def listen(_: object, events: AsyncIterable[object]) -> None:
        async for event in events:
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    pieces.append(text)

    run = await agent.run(QUESTION, event_stream_handler=listen)
    assert "".join(pieces).endswith(run.output), pieces
    return run.output


async def main() -> None:
    """Print the last words of each conversation."""
    said: dict[str, str] = {}
    for name, model in MODELS.items():
        agent = Agent(model, tools=[book_table])
        said[f"{name}_whole"] = (await agent.run(QUESTION)).output
        said[f"{name}_streamed"] = await streamed(agent)
    print(json.dumps(said))


asyncio.run(main())
