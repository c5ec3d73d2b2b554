"""The items of a conversation: messages, reasoning, calls, results, and unknown items that are passed through.

Modelled on the Responses API, the only one that keeps calls, results and reasoning separate and in order, plus
`is_error` on results, plus blobs that only their provider can read. `id` identifies the item, `call_id` pairs a call
with its result, `upstream_id` is the provider's call id. No item can contain itself, so `gc=False` is safe: a history
has thousands of these.
"""

from typing import Literal

import msgspec

from treadle.core.json import OptionalRaw

Role = Literal["system", "developer", "user", "assistant"]
Side = Literal["server", "client"]
CallKind = Literal["function", "custom"]
Origin = Literal["model", "repaired", "recovered", "guessed"]
"""How a call came to be: `recovered` from text by its markers, `guessed` from text that has none."""


class Extra(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Fields that a protocol gives an item, a part or a tool and Treadle does not act on, as they were written.

    They go back only to upstreams of the same protocol.
    """

    protocol: str
    fields: dict[str, msgspec.Raw]


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="type"):
    """A piece of the content of a message or a result."""

    extra: Extra | None = None


class TextPart(Part, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="text"):
    """Plain text; `annotations` and `logprobs` are arrays as the Responses API spells their entries."""

    text: str
    annotations: OptionalRaw = None
    logprobs: OptionalRaw = None


class RefusalPart(Part, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="refusal"):
    """The model declined, in its own words."""

    text: str
    logprobs: OptionalRaw = None


class ImagePart(Part, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="image"):
    """An image by http(s) or data URL, or by a provider's file id."""

    url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class FilePart(Part, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="file"):
    """A file by URL, data URL or a provider's file id."""

    url: str | None = None
    file_id: str | None = None
    filename: str | None = None


class OpaquePart(Part, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="opaque"):
    """A part of a kind that Treadle does not know, kept exactly for upstreams of the same protocol."""

    protocol: str
    raw: msgspec.Raw


AnyPart = TextPart | RefusalPart | ImagePart | FilePart | OpaquePart


class Blob(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Opaque state that only the provider and model that made it may see again."""

    provider: str
    kind: str
    data: str
    model: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag_field="type"):
    """One step of a conversation."""

    id: str = ""
    extra: Extra | None = None


class MessageItem(Item, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="message"):
    """A message; `is_partial` when it was cut off before its end."""

    role: Role
    content: tuple[AnyPart, ...] = ()
    name: str | None = None
    phase: str | None = None
    is_partial: bool = False
    blobs: tuple[Blob, ...] = ()


class ReasoningItem(Item, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="reasoning"):
    """What the model thought: summaries, raw text, and what only its provider can read."""

    summary: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()


class CallItem(Item, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="call"):
    """The model asks for a tool.

    `arguments` is JSON text for functions and free text for custom tools. `raw` is what the model really
    wrote, where that differs. `side` says who runs it.
    """

    call_id: str
    name: str
    arguments: str = ""
    kind: CallKind = "function"
    side: Side = "client"
    origin: Origin = "model"
    namespace: str | None = None
    raw: str | None = None
    upstream_id: str | None = None
    blobs: tuple[Blob, ...] = ()


class ResultItem(Item, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="result"):
    """What a call gave: for the model `output`, for a person `summary`."""

    call_id: str
    name: str = ""
    output: tuple[AnyPart, ...] = ()
    is_error: bool = False
    kind: CallKind = "function"
    summary: str | None = None
    rc: str = "ok"


class OpaqueItem(Item, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="opaque"):
    """An item of a kind that Treadle does not know, kept exactly for upstreams of the same protocol."""

    protocol: str
    raw: msgspec.Raw


class ReferenceItem(Item, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag="reference"):
    """A reference to a stored item by `id`; `runs` replaces it by the item."""


AnyItem = MessageItem | ReasoningItem | CallItem | ResultItem | OpaqueItem | ReferenceItem


def text_of(parts: tuple[AnyPart, ...]) -> str:
    """Join the text of the text parts."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def text_message(role: Role, text: str, item_id: str = "") -> MessageItem:
    """Return a message of one text part; undecodable bytes from a terminal are replaced."""
    return MessageItem(id=item_id, role=role, content=(TextPart(text=text.encode("utf-8", "replace").decode()),))


def text_result(call: CallItem, text: str, *, is_error: bool = False, rc: str = "ok") -> ResultItem:
    """Return the result of a call as one text part."""
    return ResultItem(
        call_id=call.call_id,
        name=call.name,
        output=(TextPart(text=text),),
        is_error=is_error,
        kind=call.kind,
        rc=rc,
    )
