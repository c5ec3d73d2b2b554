"""Folds the deltas of a Chat stream into one message, for a client that does not stream."""

from typing import Any

import msgspec

_TEXTS = frozenset({"content", "refusal", "reasoning_content"})


class MessageFold(msgspec.Struct):
    """The message that the deltas so far add up to; `texts` are the pieces of each text.

    Of the calls only those are a part of it that have `ended`: a client runs whatever it finds in a message.
    """

    texts: dict[str, list[str]] = {}
    tokens: dict[str, list[msgspec.Raw]] = {}
    calls: "list[_Call]" = []
    legacy: tuple[str, list[str]] | None = None
    ended: set[int] = set()
    images: list[Any] = []
    fields: dict[str, Any] = {}

    def add(self, delta: dict[str, Any]) -> None:
        """Add one delta."""
        for field, value in delta.items():
            if field in _TEXTS:
                self.texts.setdefault(field, []).append(value)
            elif field == "tool_calls":
                self.calls += [_Call(call) for call in value]
            elif field == "function_call":
                self.legacy = self.legacy or (value["name"], [])
                self.legacy[1].append(value["arguments"])
            elif field == "images":
                self.images += value
            elif field != "role":
                self.fields[field] = value

    def add_tokens(self, field: str, tokens: list[msgspec.Raw]) -> None:
        """Add the logprobs of a text."""
        self.tokens.setdefault(field, []).extend(tokens)

    def add_arguments(self, place: int, text: str, more: dict[str, Any] | None = None) -> None:
        """Add to the arguments of the call at that place, and its other fields."""
        call = self.calls[place]
        call.pieces.append(text)
        call.more = more or call.more

    def message(self) -> dict[str, Any]:
        """Return the whole message."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        for field, pieces in self.texts.items():
            message[field] = "".join(pieces)
        if not (message["content"] or self.ended or message["refusal"] or self.fields or self.images):
            message["content"] = ""
        if self.calls and self.ended:
            message["tool_calls"] = [call.whole() for place, call in enumerate(self.calls) if place in self.ended]
        if self.legacy is not None and self.ended:
            message["function_call"] = {"name": self.legacy[0], "arguments": "".join(self.legacy[1])}
        if self.images:
            message["images"] = self.images
        return {**self.fields, **message}

    def logprobs(self) -> dict[str, Any]:
        """Return the logprobs of the whole message."""
        return {"content": self.tokens.get("content"), "refusal": self.tokens.get("refusal")}


class _Call:
    """A call: its first delta, the pieces of its arguments, and its other fields."""

    __slots__ = ("_field", "_id", "_kind", "_name", "more", "pieces")

    def __init__(self, call: dict[str, Any]) -> None:
        self._id = call["id"]
        self._kind = call["type"]
        self._field = "input" if self._kind == "custom" else "arguments"
        self._name = call[self._kind]["name"]
        self.pieces: list[str] = [call[self._kind][self._field]]
        self.more: dict[str, Any] = {}

    def whole(self) -> dict[str, Any]:
        """Return the call with all of its arguments."""
        body = {"name": self._name, self._field: "".join(self.pieces)}
        return {"id": self._id, "type": self._kind, self._kind: body, **self.more}
