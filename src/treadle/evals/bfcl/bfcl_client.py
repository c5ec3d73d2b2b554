"""A small client for Chat Completions and Responses, which builds requests and reads answers as plain JSON.

It shares no code with the gateway's codecs, so that it can test them independently.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.errors import BrokenStream
from treadle.evals.bfcl.dataset import Function
from treadle.http.client_pool import ClientPool
from treadle.protocols.protocol_registry import CHAT, PROTOCOLS, RESPONSES

APIS = (CHAT, RESPONSES)
CONNECT_S = 30.0
ANSWER_S = 300.0
ANSWER_BYTES_MAX = 67_108_864
_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


class BfclCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call requested by the model: its id, its name, and its arguments as text."""

    id: str
    name: str
    arguments: str

    @property
    def value(self) -> Any:
        """Return the decoded arguments, or the text itself if it is not JSON."""
        try:
            return json.loads(self.arguments or "{}")
        except ValueError:
            return self.arguments


class BfclAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: text, calls, tokens, and the messages to include in the next request."""

    text: str
    calls: list[BfclCall]
    echo: list[dict[str, Any]]
    input_tokens: int = 0
    output_tokens: int = 0


class BfclClient:
    """Sends requests to one gateway through one API."""

    def __init__(self, pool: ClientPool, base_url: str, api: str, model: str) -> None:
        self._pool = pool
        self._url = base_url + PROTOCOLS[api].upstream_path
        self._api = api
        self._model = model

    async def ask(self, messages: Sequence[dict[str, Any]], functions: Sequence[Function]) -> BfclAnswer:
        """Make one request.

        Raises: BrokenStream, when the gateway refuses it.
        """
        body = json.dumps(self._body(messages, functions)).encode()
        try:
            reply = await self._pool.request("POST", self._url, _HEADERS, body, connect_s=CONNECT_S, idle_s=ANSWER_S)
            try:
                value: Any = json.loads(await reply.read_all(ANSWER_BYTES_MAX))
            finally:
                reply.close()
        except (OSError, ValueError) as error:
            raise BrokenStream(f"the gateway did not answer: {error!r}") from None
        if reply.status != 200:
            raise BrokenStream(f"the gateway answered {reply.status}: {json.dumps(value)[:500]}")
        return _chat(value) if self._api == CHAT else _responses(value)

    def results(self, calls: Sequence[BfclCall], outputs: Sequence[str]) -> list[dict[str, Any]]:
        """Return the results of calls as messages."""
        pairs = zip(calls, outputs, strict=True)
        if self._api == CHAT:
            return [{"role": "tool", "tool_call_id": call.id, "content": output} for call, output in pairs]
        return [{"type": "function_call_output", "call_id": call.id, "output": output} for call, output in pairs]

    def _body(self, messages: Sequence[dict[str, Any]], functions: Sequence[Function]) -> dict[str, Any]:
        plain = [msgspec.to_builtins(function) for function in functions]
        if self._api == CHAT:
            tools = [{"type": "function", "function": function} for function in plain]
            return {"model": self._model, "messages": list(messages), **({"tools": tools} if tools else {})}
        tools = [{"type": "function", "strict": False, **function} for function in plain]
        return {"model": self._model, "input": list(messages), "store": False, **({"tools": tools} if tools else {})}


def _chat(value: Any) -> BfclAnswer:
    message: dict[str, Any] = value["choices"][0]["message"]
    calls: list[Any] = message.get("tool_calls") or []
    usage: dict[str, int] = value.get("usage") or {}
    return BfclAnswer(
        text=message.get("content") or "",
        calls=[
            BfclCall(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
            for call in calls
        ],
        echo=[message],
        input_tokens=usage.get("prompt_tokens", 0),
        output_tokens=usage.get("completion_tokens", 0),
    )


def _responses(value: Any) -> BfclAnswer:
    output: list[dict[str, Any]] = value["output"]
    usage: dict[str, int] = value.get("usage") or {}
    texts = [
        part.get("text", "")
        for item in output
        if item["type"] == "message"
        for part in item["content"]
        if part["type"] == "output_text"
    ]
    return BfclAnswer(
        text="".join(texts),
        calls=[
            BfclCall(id=item["call_id"], name=item["name"], arguments=item["arguments"])
            for item in output
            if item["type"] == "function_call"
        ],
        echo=output,
        input_tokens=usage.get("input_tokens", 0),
        output_tokens=usage.get("output_tokens", 0),
    )
