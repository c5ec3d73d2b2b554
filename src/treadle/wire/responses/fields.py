"""Decoding whole structs of a request: absent raw values, and errors that name the field as every codec's do."""

import msgspec

from treadle.wire.fields import at, missing
from treadle.wire.fields import read_value as read

__all__ = ["NULL", "at", "missing", "read"]

NULL = msgspec.Raw(b"null")
"""The default of a raw field: msgspec takes no raw value in a union with None, so absent and null are one."""
