"""What only the provider that made it can read, on its way through a Chat client and back.

Chat has no place for the maker's name, so it is written into the value itself: a client that sends its history back
as it got it sends that too, and the value goes to that provider again and to no other. What carries no name is the
client's own and none of this module's business.
"""

from typing import Any, cast

import msgspec

from treadle.core.items import Blob
from treadle.core.json import BadJson, read_json, write_json
from treadle.protocols.decoding.json_values import as_list, as_object

CALL_STATE = "extra_content"
"""The field of a call, and the kind of blob it is kept as: Gemini's thought signature travels there."""

THOUGHT_STATE = "reasoning_details"
"""The field of a message, and the kind of blob it is kept as: OpenRouter's signatures and sealed reasoning."""

MESSAGE_STATE = "message_fields"
"""The kind of blob that fields of an answer are kept as which Treadle does not know."""

KINDS = frozenset({CALL_STATE, THOUGHT_STATE, MESSAGE_STATE})

MAKER = "treadle"


def may_return(blob: Blob, provider: str, model: str) -> bool:
    """Return whether this provider and model made the blob."""
    is_same_model = blob.model == model or not (blob.model and model)
    return bool(provider) and blob.provider == provider and is_same_model


def show(blob: Blob) -> Any:
    """Return the value with its maker's name in it, as a client is given it."""
    value = read_json(blob.data)
    maker = {"provider": blob.provider, "model": blob.model}
    if isinstance(value, list):
        return [{**as_object(entry), MAKER: maker} for entry in cast("list[Any]", value)]
    return {**as_object(value), MAKER: maker}


def take_back(kind: str, raw: msgspec.Raw) -> Blob | None:
    """Return the blob that a client's value was shown from; None where it has another origin."""
    try:
        value = read_json(bytes(raw))
    except BadJson:
        return None
    entries = as_list(value) or [value]
    makers = [as_object(as_object(entry).pop(MAKER, None)) for entry in entries]
    provider, model = makers[0].get("provider"), makers[0].get("model")
    if not (isinstance(provider, str) and isinstance(model, str)) or any(maker != makers[0] for maker in makers):
        return None
    return Blob(provider=provider, kind=kind, data=write_json(value).decode(), model=model)
