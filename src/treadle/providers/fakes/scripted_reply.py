"""The reply of a scripted or demo model as data: text, calls, finish reason and faults.

It is independent of any protocol; `reply_rendering` encodes it.
"""

from typing import Any

import msgspec

from treadle.core.events import Stop
from treadle.core.json import write_json
from treadle.core.usage import Usage


class ReplyCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call. `raw` is the exact text of the arguments, for invalid JSON; otherwise `args` is encoded."""

    name: str
    args: dict[str, Any] = {}
    raw: str | None = None
    id: str | None = None

    @property
    def arguments(self) -> str:
        """Return the arguments as text."""
        return write_json(self.args).decode() if self.raw is None else self.raw


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The faults of one reply.

    Network faults: `status` refuses before the first byte (with `message`, `code`, `retry_after_s`),
    `disconnect_after` cuts after that many bytes, `stall_s` pauses half-way. The others are shape faults, as seen with
    real providers; `stream_faults` implements them.
    """

    status: int | None = None
    message: str = "scripted failure"
    code: str | None = None
    retry_after_s: float | None = None
    disconnect_after: int | None = None
    stall_s: float | None = None
    dup_chunk: bool = False
    no_index: bool = False
    index_zero: bool = False
    no_id: bool = False
    name_after_args: bool = False
    args_as_object: bool = False
    empty_final: bool = False
    no_done: bool = False


NO_FAULTS = Faults()


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply of a model. `finish` is its finish reason, if that does not follow from the calls."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[ReplyCall, ...] = ()
    finish: Stop | None = None
    usage: Usage | None = None
    faults: Faults = NO_FAULTS
