"""The OpenAI Agents SDK: its Responses and its Chat model, streamed and whole."""

import asyncio
import json
import os

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

MODELS = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}
QUESTION = "What is the weather in Paris? Book a table for two."


@function_tool
def book_table(seats: int) -> str:
    """Book a table."""
    return f"booked for {seats}: {os.environ['TREADLE_PROOF']}"


async def streamed(agent: Agent) -> str:
    """Follow a run event by event; the text told piece by piece must be the final output."""
    run = Runner.run_streamed(agent, QUESTION)
    pieces: list[str] = []
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            pieces.append(event.data.delta)
    assert "".join(pieces).endswith(run.final_output), pieces
    return run.final_output


async def main() -> None:
    """Print the last words of each conversation."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{os.environ['TREADLE_URL']}/v1", api_key="unused", max_retries=0)
    said: dict[str, str] = {}
    for name, model in MODELS.items():
        agent = Agent(name="Concierge", model=model("demo", client), tools=[book_table])
        said[f"{name}_whole"] = (await Runner.run(agent, QUESTION)).final_output
        said[f"{name}_streamed"] = await streamed(agent)
    print(json.dumps(said))


asyncio.run(main())
