"""What one look found."""

from typing import Literal

import msgspec

from treadle.core.errors import TreadleError


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What one look found. `advice` says what to do about it."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str
    advice: str = ""


def broken(name: str, error: TreadleError, advice: str = "") -> Check:
    """Return an error as a finding; its own hint says best what to do."""
    return Check(name=name, state="broken", detail=error.operator_info.message, advice=error.hint or advice)
