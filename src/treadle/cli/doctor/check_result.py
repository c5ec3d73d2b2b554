"""The result of one check."""

from typing import Literal

import msgspec

from treadle.core.errors import TreadleError


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check. `advice` is the suggested fix."""

    name: str
    state: Literal["ok", "note", "broken"]
    detail: str
    advice: str = ""


def broken(name: str, error: TreadleError, advice: str = "") -> Check:
    """Return an error as a failed check, with its own hint as advice where it has one."""
    return Check(name=name, state="broken", detail=error.operator_info.message, advice=error.hint or advice)
