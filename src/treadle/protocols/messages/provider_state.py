"""Call ids and opaque state in forms that a Messages client keeps and sends back unchanged.

The API's ids are of a small alphabet, and its signatures are strings without an owner. So an id outside the alphabet
travels encoded, and a blob of another provider travels sealed: inside a signature, with its owner's name.
"""

import base64
import binascii
import re

import msgspec

from treadle.core.items import Blob, ReasoningItem
from treadle.core.json import type_errors, write_json
from treadle.protocols.protocol_registry import MESSAGES

PROTOCOL = MESSAGES
OWNER = "anthropic"
"""Whose a signature is that no seal names the owner of."""

INVALID_JSON = "INVALID_JSON"
"""The key under which the API's own guide puts arguments that are not a JSON object."""

SIGNATURE = "signature"
REDACTED = "redacted"

_ID_PREFIX = "x64_"
_SEAL_PREFIX = "treadle.1."
_PLAIN_ID = re.compile(rf"(?!{_ID_PREFIX})[A-Za-z0-9_-]+")


class Sealed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a seal holds; `is_summary` where the visible text is a summary of the reasoning."""

    blobs: tuple[Blob, ...]
    is_summary: bool = False


_sealed = msgspec.json.Decoder(Sealed)


def shown_id(call_id: str) -> str:
    """Return the id as the API may see it; different ids stay different."""
    if _PLAIN_ID.fullmatch(call_id):
        return call_id
    return _ID_PREFIX + _encoded(call_id.encode("utf-8", "surrogatepass"))


def real_id(shown: str) -> str:
    """Return the id that `shown_id` was given; any other id is its own."""
    if not shown.startswith(_ID_PREFIX):
        return shown
    try:
        call_id = _decoded(shown.removeprefix(_ID_PREFIX)).decode("utf-8", "surrogatepass")
    except ValueError:
        return shown
    return call_id if shown_id(call_id) == shown else shown


def shown_reasoning(item: ReasoningItem) -> tuple[str, str]:
    """Return the type of block that shows reasoning, and its signature or data."""
    if not item.blobs:
        return "thinking", ""
    first = item.blobs[0]
    if len(item.blobs) == 1 and first.provider in ("", OWNER):
        if first.kind == SIGNATURE:
            return "thinking", first.data
        if first.kind == REDACTED and not item.text:
            return "redacted_thinking", first.data
    sealed = Sealed(blobs=item.blobs, is_summary=bool(item.summary) and not item.text)
    data = _SEAL_PREFIX + _encoded(write_json(sealed))
    is_visible = bool(item.summary or item.text) or any(blob.kind == SIGNATURE for blob in item.blobs)
    return ("thinking" if is_visible else "redacted_thinking"), data


def read_reasoning(text: str, data: str, kind: str) -> ReasoningItem:
    """Return the reasoning that a block shows; `kind` is what its data is unless a seal says otherwise."""
    texts = (text,) if text else ()
    if not data:
        return ReasoningItem(text=texts)
    sealed = _opened(data)
    if sealed is None:
        return ReasoningItem(text=texts, blobs=(Blob(provider=OWNER, kind=kind, data=data),))
    if sealed.is_summary:
        return ReasoningItem(summary=texts, blobs=sealed.blobs)
    return ReasoningItem(text=texts, blobs=sealed.blobs)


def _opened(data: str) -> Sealed | None:
    if not data.startswith(_SEAL_PREFIX):
        return None
    try:
        return _sealed.decode(_decoded(data.removeprefix(_SEAL_PREFIX)))
    except (ValueError, *type_errors):
        return None


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """Decode what `_encoded` made. Raises: ValueError."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
