"""Custom tools for upstreams that have none: a function with one string `input`, and the free text out of it again.

The text is unescaped as it streams, whatever the cuts, so that a client sees the same deltas as from an upstream
with custom tools. If a model ignores the wrapping, all it wrote becomes the text.
"""

import re
from typing import Any, cast

import msgspec

from treadle.core.json import BadJson, read_json, write_json
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.surrogates import HalfJoiner

HEAD_CHARS_MAX = 256
"""How much white space may stand around `{"input":` before it counts as something else."""

_INPUT_SCHEMA = msgspec.Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)
_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_HEAD_BARE = '{"input":"'
_PIECE = re.compile(
    r'(?P<text>[^"\\]+)|(?P<quote>")|\\u(?P<code>[0-9a-fA-F]{4})|(?P<cut>\\(?:u[0-9a-fA-F]{0,3})?\Z)|\\(?P<char>.)',
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


def wrapped_spec(spec: ToolSpec) -> ToolSpec:
    """Return a custom tool as a function; its format stands in the description."""
    texts = [text for text in (spec.description, _format_text(spec)) if text]
    return msgspec.structs.replace(
        spec, kind="function", description="\n\n".join(texts), parameters=_INPUT_SCHEMA, format=None, strict=None
    )


def wrapped_input(text: str) -> str:
    """Return a custom call's free text as the arguments of the function."""
    return write_json({"input": text}).decode()


class FreeInput(msgspec.Struct, frozen=True, kw_only=True):
    """Complete free text: `rest` was not passed on yet, `is_clean` tells whether the model kept to the wrapping.

    One that `is_cut` never came to the end of its wrapping: what is missing is unknown.
    """

    text: str
    rest: str
    is_clean: bool = True
    is_cut: bool = False


class Unwrapper:
    """The arguments of one wrapped call, fed in pieces, in time linear in their length."""

    def __init__(self) -> None:
        self.chars_fed = 0
        self._state = "head"
        self._held: list[str] = []
        self._cut = ""
        self._passed: list[str] = []
        self._halves = HalfJoiner()

    def feed(self, text: str) -> str:
        """Add a piece of the arguments and return the free text that it completes."""
        self.chars_fed += len(text)
        if self._state == "head":
            text = self._begin(text)
        if self._state == "text":
            return self._pass(self._halves.feed(self._unescaped(text)))
        if text:
            self._held.append(text)
        return ""

    def finish(self) -> FreeInput:
        """Return the whole; text that was cut stays cut."""
        held = "".join(self._held)
        if self._state in ("text", "tail"):
            rest = self._pass(self._halves.finish())
            is_clean = self._state == "tail" and held.strip() == "}"
            return FreeInput(text="".join(self._passed), rest=rest, is_clean=is_clean, is_cut=self._state == "text")
        text, is_clean = ("", False) if self._state == "head" else _unwrapped(held)
        return FreeInput(text=text, rest=text, is_clean=is_clean)

    def _begin(self, text: str) -> str:
        """Return the start of the free text, or nothing while it is not known whether there is one."""
        head = "".join(self._held) + text
        self._held = []
        found = _HEAD.match(head)
        if found is not None:
            self._state = "text"
            return head[found.end() :]
        if len(head) > HEAD_CHARS_MAX or not _HEAD_BARE.startswith("".join(head.split())):
            self._state = "other"
        self._held.append(head)
        return ""

    def _unescaped(self, text: str) -> str:
        """Return the text of the piece up to the closing quote; a cut escape waits for its rest."""
        text, self._cut = self._cut + text, ""
        parts: list[str] = []
        for found in _PIECE.finditer(text):
            match found.lastgroup:
                case "text":
                    parts.append(found[0])
                case "code":
                    parts.append(chr(int(found["code"], 16)))
                case "char":
                    parts.append(_ESCAPES.get(found["char"], found[0]))
                case "cut":
                    self._cut = found[0]
                case _:
                    self._state = "tail"
                    self._held.append(text[found.end() :])
                    break
        return "".join(parts)

    def _pass(self, text: str) -> str:
        if text:
            self._passed.append(text)
        return text


def _unwrapped(arguments: str) -> tuple[str, bool]:
    """Return the text that unusual arguments mean, and whether they were in order all the same."""
    try:
        value: Any = read_json(arguments)
    except BadJson:
        return arguments, False
    if not isinstance(value, dict):
        return arguments, False
    fields = cast("dict[str, Any]", value)
    if isinstance(fields.get("input"), str):
        return fields["input"], True
    texts = list(fields.values())
    if len(texts) == 1 and isinstance(texts[0], str):
        return texts[0], False
    return ("" if not fields else arguments), False


class _Format(msgspec.Struct, kw_only=True):
    type: str = "text"
    syntax: str = ""
    definition: str = ""


_format: msgspec.json.Decoder[_Format] = msgspec.json.Decoder(_Format)


def _format_text(spec: ToolSpec) -> str:
    """Describe in words what the tool's format requires."""
    if spec.format is None:
        return "`input` is free text."
    try:
        form = _format.decode(spec.format)
    except msgspec.DecodeError:
        return f"Format of `input`: {bytes(spec.format).decode()}"
    if form.type == "text":
        return "`input` is free text."
    if not form.definition:
        return f"Format of `input`: {bytes(spec.format).decode()}"
    kind = f"{form.syntax} grammar" if form.syntax else "grammar"
    return f"`input` must follow this {kind}:\n{form.definition}"
