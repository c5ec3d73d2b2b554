"""What a model of this process says in one call, as data: text, calls, how it ends, and what shall go wrong.

A reply is neutral of any protocol; `render` spells it. It must not know how it came about (script or demo).
"""

from typing import Any

import msgspec

from treadle.core.events import Stop
from treadle.core.json import write_json
from treadle.core.usage import Usage


class ReplyCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call. `raw` is the text of the arguments exactly, for what no JSON value can say; else `args` is written."""

    name: str
    args: dict[str, Any] = {}
    raw: str | None = None
    id: str | None = None

    @property
    def arguments(self) -> str:
        """Return the arguments as the model writes them."""
        return write_json(self.args).decode() if self.raw is None else self.raw


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong with one reply.

    On the network: `status` refuses before the first byte (with `message`, `code`, `retry_after_s`),
    `disconnect_after` cuts after so many bytes, `stall_s` falls silent half-way.
    In the shape, as seen at real providers: the others; `render` says what each does.
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
    """One answer of a model. `finish` is how it ends, where that does not follow from the calls."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[ReplyCall, ...] = ()
    finish: Stop | None = None
    usage: Usage | None = None
    faults: Faults = NO_FAULTS
