"""Histories as clients send them, made from a seed: mostly of the usual shapes, now and then with something odd."""

from collections.abc import Callable
from random import Random
from typing import Any

TEXTS = ("hi", "", "  ", "wörld \U0001f600", 'a\nb "q" \\ {[', '{"error": 1}')
_ODD_NAMES = [
    "foo",
    "cache_control",
    "annotations",
    "name",
    "phase",
    "id",
    "status",
    "logprobs",
    "thought",
    "is_error",
    "index",
    "refusal",
    "audio",
    "function_call",
    "reasoning_content",
    "tool_calls",
    "tool_call_id",
    "type",
    "content",
    "role",
    "text",
    "namespace",
    "call_id",
    "output",
    "parts",
    "arguments",
    "summary",
]
_ODD_VALUES: tuple[Any, ...] = (None, "v", "", [], {}, ["q"], {"type": "ephemeral"}, 3, True, [{"type": "text"}])


class Writer:
    """Makes up one history; ids of calls are sometimes wrong, missing or given twice."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._oddness = self.random.choice((0, 0, 0, 0.03, 0.1))
        self._ids: list[str] = []

    def one(self, *choices: Any) -> Any:
        """Return one of these."""
        return self.random.choice(choices)

    def many(self, most: int, make: Callable[[], Any]) -> list[Any]:
        """Return up to so many."""
        return [make() for _ in range(self.random.randint(0, most))]

    def is_so(self, chance: float) -> bool:
        """Tell whether something happens."""
        return self.random.random() < chance

    def text(self) -> str:
        """Return some text."""
        return self.one(*TEXTS)

    def odd(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an object, sometimes with a field that it should not have."""
        if self.is_so(self._oddness):
            value[self.one(*_ODD_NAMES)] = self.one(*_ODD_VALUES)
        return value

    def made_id(self) -> str:
        """Return the id of a new call."""
        self._ids.append(self.one(f"call_{len(self._ids)}", f"call_{len(self._ids)}", "call_dup"))
        return self._ids[-1]

    def known_id(self) -> str:
        """Return the id of a call that a result answers, or of none."""
        return self._ids.pop(0) if self._ids and self.is_so(0.9) else self.one("call_zz", "call_dup")


def chat(history: Writer) -> dict[str, Any]:
    """Return a request of Chat Completions."""

    def parts() -> list[Any]:
        return history.many(3, lambda: history.odd({"type": "text", "text": history.text()}))

    def call() -> dict[str, Any]:
        function = history.odd({"name": "f", "arguments": history.one("{}", '{"a":1}', "", None)})
        return history.odd({"id": history.made_id(), "type": "function", "function": function})

    def message() -> dict[str, Any]:
        role = history.one("user", "assistant", "assistant", "tool", "system", "developer")
        said: dict[str, Any] = {"role": role, "content": history.one(history.text(), history.text(), None, parts())}
        if role == "assistant" and history.is_so(0.6):
            said |= {"tool_calls": history.many(3, call)}
        if role == "assistant" and history.is_so(0.2):
            said |= {"refusal": None, "annotations": [], "reasoning_content": history.one(None, "", "thought")}
        return history.odd({**said, "tool_call_id": history.known_id()} if role == "tool" else said)

    return {"model": "m", "messages": [message(), *history.many(8, message)]}


def messages(history: Writer) -> dict[str, Any]:
    """Return a request of the Messages API."""

    def text() -> dict[str, Any]:
        block = {"type": "text", "text": history.text()}
        return history.odd({**block, "cache_control": {"type": "ephemeral"}} if history.is_so(0.1) else block)

    def use() -> dict[str, Any]:
        given = history.one({}, {"a": 1}, {"a": {"b": [1]}}, None, "x", 5)
        return history.odd({"type": "tool_use", "id": history.made_id(), "name": "f", "input": given})

    def result() -> dict[str, Any]:
        content = history.one(None, history.text(), history.many(2, text))
        block = {"type": "tool_result", "tool_use_id": history.known_id(), "content": content}
        return history.odd({**block, "is_error": history.one(True, False, None)})

    def thought() -> dict[str, Any]:
        return history.odd({"type": "thinking", "thinking": "t", "signature": "s"})

    def message() -> dict[str, Any]:
        role = history.one("user", "assistant", "user", "assistant", "system")
        blocks = history.many(4, lambda: history.one(text, text, use, result, thought)())
        return history.odd({"role": role, "content": history.one(history.text(), blocks, blocks)})

    return {"model": "m", "max_tokens": 9, "messages": [message(), *history.many(8, message)]}


def responses(history: Writer) -> dict[str, Any]:
    """Return a request of the Responses API."""

    def part() -> dict[str, Any]:
        said: dict[str, Any] = {"type": history.one("input_text", "output_text"), "text": history.text()}
        return history.odd({**said, "annotations": [], "logprobs": []} if history.is_so(0.2) else said)

    def message() -> dict[str, Any]:
        said = {
            "role": history.one("user", "assistant", "system"),
            "content": history.one("a", "", history.many(3, part)),
        }
        return history.one(said, {"type": "message", **said}, {"type": "message", "id": "msg_1", "status": "x", **said})

    def call() -> dict[str, Any]:
        made = {"call_id": history.made_id(), "name": "f", "id": history.one(None, "fc_1")}
        if history.is_so(0.2):
            return {"type": "custom_tool_call", **made, "input": history.text()}
        return {"type": "function_call", **made, "arguments": history.one("{}", "", '{"a":1}')}

    def result() -> dict[str, Any]:
        output = history.one(history.text(), history.many(2, part), None, {"a": 1})
        kind = history.one("function_call_output", "function_call_output", "custom_tool_call_output")
        gave = {"type": kind, "call_id": history.known_id(), "output": output}
        return {**gave, "status": history.one(None, "completed", "incomplete")}

    def thought() -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": "s"}]
        return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": history.one(None, "abc")}

    def item() -> dict[str, Any]:
        return history.odd(history.one(message, message, call, result, thought)())

    return {"model": "m", "input": [item(), *history.many(9, item)]}


def gemini(history: Writer) -> dict[str, Any]:
    """Return a request of generateContent."""

    def text() -> dict[str, Any]:
        return history.odd({"text": history.text()})

    def call() -> dict[str, Any]:
        return {"functionCall": {"id": history.made_id(), "name": "f", "args": {"a": 1}}}

    def result() -> dict[str, Any]:
        return {"functionResponse": {"id": history.known_id(), "name": "f", "response": {"output": "x"}}}

    def content() -> dict[str, Any]:
        role = history.one("user", "model", "user", "model", None)
        other = call if role == "model" else result
        return history.odd({"role": role, "parts": history.many(3, lambda: history.one(text, text, text, other)())})

    return {"contents": [content(), *history.many(8, content)]}


BODIES: dict[str, Callable[[Writer], dict[str, Any]]] = {
    "chat": chat,
    "messages": messages,
    "responses": responses,
    "gemini": gemini,
}
