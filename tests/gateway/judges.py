"""The vendors' own SDKs as judges: each asks a Treadle over real HTTP and reports what it saw, in one common form."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import anthropic
import msgspec
import openai
from google import genai
from google.genai import types as genai_types

from gateway.gateway import Gateway

TOOL_NAME = "book_table"
TOOL_SCHEMA = {
    "type": "object",
    "properties": {"seats": {"type": "integer"}, "place": {"type": "string"}},
}
QUESTION = "Please go on."


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a client saw: the text, its own calls, how the answer ended, or that it failed."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    stop: str = "done"
    failed: bool = False
    reasoning: str = ""
    usage: tuple[int, int] | None = None


_made: list[openai.OpenAI | anthropic.Anthropic | genai.Client] = []


@cache
def _openai(url: str) -> openai.OpenAI:
    """Return a client for this Treadle; making one takes longer than using it."""
    client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0)
    _made.append(client)
    return client


@cache
def _anthropic(url: str) -> anthropic.Anthropic:
    client = anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0)
    _made.append(client)
    return client


@cache
def _genai(url: str) -> genai.Client:
    client = genai.Client(api_key="unused", http_options=genai_types.HttpOptions(base_url=url))
    _made.append(client)
    return client


def close_clients() -> None:
    """Close every client; one Treadle's are of no use to the next."""
    for maker in (_openai, _anthropic, _genai):
        maker.cache_clear()
    while _made:
        _made.pop().close()


FAILED = Seen(stop="", failed=True)
Judge = Callable[[Gateway, str, bool], Seen]


def _arguments(value: Any) -> str:
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True, ensure_ascii=False)


def judge_chat(gateway: Gateway, model: str, streams: bool) -> Seen:
    """Ask by Chat Completions, through the SDK's accumulator when streamed."""
    tools: Any = [{"type": "function", "function": {"name": TOOL_NAME, "parameters": TOOL_SCHEMA}}]
    asked: Any = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "tools": tools}
    sdk = _openai(gateway.url)
    try:
        if streams:
            with sdk.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
                completion = stream.get_final_completion()
        else:
            completion = sdk.chat.completions.create(**asked)
    except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as error:
        completion = error.completion
    except openai.APIError:
        return FAILED
    choice = completion.choices[0]
    message = choice.message
    stop = {"stop": "done", "tool_calls": "calls", "length": "length", "content_filter": "filtered"}
    return Seen(
        text=(message.content or "") + (message.refusal or ""),
        calls=tuple((call.function.name, _arguments(call.function.arguments)) for call in message.tool_calls or ()),
        stop=stop[choice.finish_reason],
        reasoning=getattr(message, "reasoning_content", None) or "",
        usage=completion.usage and (completion.usage.prompt_tokens, completion.usage.completion_tokens),
    )


def judge_responses(gateway: Gateway, model: str, streams: bool) -> Seen:
    """Ask by Responses; the SDK's accumulator refuses any event that is out of order."""
    tools: Any = [{"type": "function", "name": TOOL_NAME, "parameters": TOOL_SCHEMA, "strict": False}]
    sdk = _openai(gateway.url)
    try:
        if streams:
            events = list(sdk.responses.create(model=model, input=QUESTION, tools=tools, stream=True))
            response = events[-1].response
            if response.status == "completed":
                with sdk.responses.stream(model=model, input=QUESTION, tools=tools) as stream:
                    response = stream.get_final_response()
        else:
            response = sdk.responses.create(model=model, input=QUESTION, tools=tools)
    except openai.APIError:
        return FAILED
    if response.status == "failed":
        return FAILED
    calls = tuple((item.name, _arguments(item.arguments)) for item in response.output if item.type == "function_call")
    reasons = {"max_output_tokens": "length", "content_filter": "filtered"}
    stop = (
        reasons[response.incomplete_details.reason] if response.status == "incomplete" else "calls" if calls else "done"
    )
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    thoughts = [item for item in response.output if item.type == "reasoning"]
    return Seen(
        text="".join(part.text if part.type == "output_text" else part.refusal for part in parts),
        calls=calls,
        stop=stop,
        reasoning="".join(piece.text for item in thoughts for piece in (*item.summary, *(item.content or ()))),
        usage=response.usage and (response.usage.input_tokens, response.usage.output_tokens),
    )


def judge_messages(gateway: Gateway, model: str, streams: bool) -> Seen:
    """Ask by Anthropic Messages."""
    tools: Any = [{"name": TOOL_NAME, "input_schema": TOOL_SCHEMA}]
    asked: Any = {
        "model": model,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": tools,
    }
    sdk = _anthropic(gateway.origin)
    try:
        if streams:
            with sdk.messages.stream(**asked) as stream:
                message = stream.get_final_message()
        else:
            message = sdk.messages.create(**asked)
    except anthropic.APIError:
        return FAILED
    stop = {"end_turn": "done", "tool_use": "calls", "max_tokens": "length", "refusal": "filtered"}
    return Seen(
        text="".join(block.text for block in message.content if block.type == "text"),
        calls=tuple((block.name, _arguments(block.input)) for block in message.content if block.type == "tool_use"),
        stop=stop[message.stop_reason],
        reasoning="".join(block.thinking for block in message.content if block.type == "thinking"),
        usage=(message.usage.input_tokens, message.usage.output_tokens),
    )


def judge_gemini(gateway: Gateway, model: str, streams: bool) -> Seen:
    """Ask by generateContent, adding up the chunks of a stream as a user of the SDK does."""
    declaration = genai_types.FunctionDeclaration(name=TOOL_NAME, parameters_json_schema=TOOL_SCHEMA)
    config = genai_types.GenerateContentConfig(
        tools=[genai_types.Tool(function_declarations=[declaration])],
        automatic_function_calling=genai_types.AutomaticFunctionCallingConfig(disable=True),
    )
    sdk = _genai(gateway.origin)
    try:
        if streams:
            chunks = list(sdk.models.generate_content_stream(model=model, contents=QUESTION, config=config))
        else:
            chunks = [sdk.models.generate_content(model=model, contents=QUESTION, config=config)]
    except (genai.errors.APIError, json.JSONDecodeError):
        return FAILED
    return _fold_gemini(chunks)


def _fold_gemini(chunks: list[Any]) -> Seen:
    parts = [part for chunk in chunks for each in chunk.candidates or () for part in (each.content.parts or ())]
    finishes = [each.finish_reason for chunk in chunks for each in chunk.candidates or () if each.finish_reason]
    assert len(finishes) == 1, finishes
    calls = tuple(
        (part.function_call.name, _arguments(part.function_call.args)) for part in parts if part.function_call
    )
    stop = {"STOP": "calls" if calls else "done", "MAX_TOKENS": "length", "SAFETY": "filtered"}[finishes[0].name]
    usage = next((chunk.usage_metadata for chunk in reversed(chunks) if chunk.usage_metadata), None)
    return Seen(
        text="".join(part.text for part in parts if part.text and not part.thought),
        calls=calls,
        stop=stop,
        reasoning="".join(part.text for part in parts if part.text and part.thought),
        usage=usage
        and (usage.prompt_token_count or 0, (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)),
    )


JUDGES: dict[str, Judge] = {
    "chat": judge_chat,
    "responses": judge_responses,
    "messages": judge_messages,
    "gemini": judge_gemini,
}
