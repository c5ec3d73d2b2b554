"""The deltas of a Chat stream folded into one message: what a client that does not stream is given."""

from typing import Any

import msgspec

_TEXTS = ("content", "refusal", "reasoning_content")
_STREAMED = frozenset({"role", *_TEXTS, "tool_calls", "function_call", "images"})


class MessageFold:
    """The message that the deltas so far amount to."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._tokens: dict[str, list[msgspec.Raw]] = {}
        self._calls: list[dict[str, Any]] = []
        self._pieces: list[list[str]] = []
        self._legacy: dict[str, Any] | None = None
        self._legacy_pieces: list[str] = []
        self._images: list[Any] = []
        self._fields: dict[str, Any] = {}

    def add(self, delta: dict[str, Any]) -> None:
        """Add one delta."""
        for field in _TEXTS:
            if field in delta:
                self.add_text(field, delta[field])
        for call in delta.get("tool_calls", ()):
            self._add_call(call)
        if "function_call" in delta:
            self._legacy = self._legacy or {"name": delta["function_call"]["name"]}
            self._legacy_pieces.append(delta["function_call"]["arguments"])
        self._images += delta.get("images", ())
        self._fields |= {name: value for name, value in delta.items() if name not in _STREAMED}

    def add_text(self, field: str, text: str) -> None:
        """Add to one of the texts."""
        pieces = self._texts.get(field)
        if pieces is None:
            pieces = self._texts[field] = []
        pieces.append(text)

    def add_tokens(self, field: str, tokens: list[msgspec.Raw]) -> None:
        """Add the logprobs of a text."""
        self._tokens.setdefault(field, []).extend(tokens)

    def has(self, field: str) -> bool:
        """Tell whether anything was said in that field."""
        return bool(self._texts.get(field))

    def is_custom(self, place: int) -> bool:
        """Tell whether the call at that place is one of a custom tool."""
        return self._calls[place]["type"] == "custom"

    def message(self) -> dict[str, Any]:
        """Return the whole message."""
        texts = {field: "".join(self._texts[field]) if self.has(field) else None for field in _TEXTS}
        message: dict[str, Any] = {"role": "assistant", "content": texts["content"], "refusal": texts["refusal"]}
        if not (self._calls or self._legacy or self.has("refusal") or self._fields or self._images):
            message["content"] = texts["content"] or ""
        if texts["reasoning_content"] is not None:
            message["reasoning_content"] = texts["reasoning_content"]
        if self._calls:
            message["tool_calls"] = [self._call(place) for place in range(len(self._calls))]
        if self._legacy is not None:
            message["function_call"] = {**self._legacy, "arguments": "".join(self._legacy_pieces)}
        if self._images:
            message["images"] = self._images
        return {**self._fields, **message}

    def logprobs(self) -> dict[str, Any] | None:
        """Return the logprobs of the whole message, if there are any."""
        if not self._tokens:
            return None
        return {"content": self._tokens.get("content"), "refusal": self._tokens.get("refusal")}

    def _add_call(self, call: dict[str, Any]) -> None:
        place: int = call["index"]
        if place == len(self._calls):
            self._calls.append({"id": call["id"], "type": call["type"], "name": call[call["type"]]["name"]})
            self._pieces.append([])
        kept = self._calls[place]
        kind: str = kept["type"]
        self._pieces[place].append(call[kind]["input" if kind == "custom" else "arguments"])
        kept["more"] = {name: value for name, value in call.items() if name not in ("index", "id", "type", kind)}

    def _call(self, place: int) -> dict[str, Any]:
        call = self._calls[place]
        text = "".join(self._pieces[place])
        kind, word = call["type"], "input" if call["type"] == "custom" else "arguments"
        return {"id": call["id"], "type": kind, kind: {"name": call["name"], word: text}, **call["more"]}
