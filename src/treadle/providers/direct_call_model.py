"""The model of a direct tool call: requests that one call, and ends once its result is there.

It gives a single call a run of its own, with the same policy and journal as any other. Its only state is the plan, so
such a run can be recovered after a crash like any other.
"""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from treadle.core.errors import UpstreamError
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent
from treadle.core.items import CallItem, MessageItem, text_message, text_of
from treadle.core.json import write_json
from treadle.core.plan import Plan
from treadle.core.request import DIRECT_MODEL, Request
from treadle.core.tool_definitions import ToolChoice

_CALL_ID = "call_direct"


class DirectCall(msgspec.Struct, frozen=True, kw_only=True):
    """The call, as it is encoded in the input of its run."""

    tool: str
    arguments: dict[str, Any]


def direct_request(tool: str, arguments: dict[str, Any]) -> Request:
    """Return the request of a run that makes one call."""
    direct_call = write_json(DirectCall(tool=tool, arguments=arguments)).decode()
    return Request(
        protocol="treadle",
        model=DIRECT_MODEL,
        items=(text_message("user", direct_call),),
        tool_choice=ToolChoice(mode="auto", allowed=(tool,)),
        is_fresh=True,
    )


class DirectModel:
    """A model that requests the call named by its input, and then ends."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield the call, or the end once there is a result.

        Raises: UpstreamError, if the input names no call.
        """
        last = plan.items[-1] if plan.items else None
        if not isinstance(last, MessageItem):
            yield [Finished(stop="done")]
            return
        try:
            direct_call = msgspec.json.decode(text_of(last.content), type=DirectCall)
        except msgspec.MsgspecError as error:
            raise UpstreamError(f"The input names no call: {error}.", code="no_call") from None
        call = CallItem(call_id=_CALL_ID, name=direct_call.tool, arguments=write_json(direct_call.arguments).decode())
        started = msgspec.structs.replace(call, arguments="")
        yield [ItemAdded(index=0, item=started), ItemDone(index=0, item=call), Finished(stop="calls")]
