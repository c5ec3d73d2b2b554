"""Opaque state of any provider inside `encrypted_content`, the one field of reasoning that clients send back unread.

A client has no place for whose the state is and which id it is bound to, so both travel inside, with Treadle's mark.
What does not bear the mark was made by OpenAI itself and is passed on as it is.
"""

import base64
import binascii

import msgspec

from treadle.core.items import Blob
from treadle.core.json import type_errors, write_json

OWNER = "openai"
SEALED = "encrypted_content"

_MARK = "treadle.1."
_blobs: msgspec.json.Decoder[tuple[Blob, ...]] = msgspec.json.Decoder(tuple[Blob, ...])


def seal(blobs: tuple[Blob, ...]) -> str:
    """Return the state as a client carries it; no state is no text."""
    if not blobs:
        return ""
    if len(blobs) == 1 and blobs[0].kind == SEALED and blobs[0].provider in ("", OWNER) and not blobs[0].model:
        return blobs[0].data
    return _MARK + base64.urlsafe_b64encode(write_json(blobs)).decode()


def unseal(text: str) -> tuple[Blob, ...]:
    """Return the state that a client carried."""
    if text.startswith(_MARK):
        try:
            return _blobs.decode(base64.b64decode(text.removeprefix(_MARK), altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, *type_errors):
            pass
    return (Blob(provider=OWNER, kind=SEALED, data=text),) if text else ()
