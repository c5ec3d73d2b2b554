"""LangChain's ChatOpenAI: Chat and Responses, streamed and whole, with the tool loop that an agent would have."""

import json
import os
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

QUESTION = "What is the weather in Paris? Book a table for two."
ROUNDS_MAX = 4
APIS = {"chat": False, "responses": True}


@tool
def book_table(seats: int) -> str:
    """Book a table."""
    return f"booked for {seats}: {os.environ['TREADLE_PROOF']}"


def converse(ask: Callable[[list[BaseMessage]], AIMessage]) -> str:
    """Run the calls that the model asks for until it answers, and return its last words."""
    messages: list[BaseMessage] = [HumanMessage(QUESTION)]
    for _ in range(ROUNDS_MAX):
        reply = ask(messages)
        messages.append(reply)
        if not reply.tool_calls:
            return reply.text
        for call in reply.tool_calls:
            messages.append(ToolMessage(book_table.invoke(call["args"]), tool_call_id=call["id"]))
    raise AssertionError(f"no answer after {ROUNDS_MAX} rounds")


def main() -> None:
    """Print the last words of each conversation."""
    said: dict[str, str] = {}
    for name, speaks_responses in APIS.items():
        plain = ChatOpenAI(
            model="demo",
            base_url=f"{os.environ['TREADLE_URL']}/v1",
            api_key="unused",
            max_retries=0,
            use_responses_api=speaks_responses,
        )
        model: Any = plain.bind_tools([book_table])
        said[f"{name}_whole"] = converse(model.invoke)
        said[f"{name}_streamed"] = converse(lambda messages, model=model: reduce(add, model.stream(messages)))
    print(json.dumps(said))


main()
