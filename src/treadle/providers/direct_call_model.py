"""The model behind a call that somebody made without one: it asks for that call and says nothing of the result.

So a single call has a run of its own, under the same policy and in the same journal as every other. It knows only what
its plan says, so that such a run goes on after a crash like any other.
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
    """The call, as the input of its run says it."""

    tool: str
    arguments: dict[str, Any]


def direct_request(tool: str, arguments: dict[str, Any]) -> Request:
    """Return the request of a run that makes one call."""
    wanted = write_json(DirectCall(tool=tool, arguments=arguments)).decode()
    return Request(
        protocol="treadle",
        model=DIRECT_MODEL,
        items=(text_message("user", wanted),),
        tool_choice=ToolChoice(mode="auto", allowed=(tool,)),
        is_fresh=True,
    )


class DirectModel:
    """Asks for the call that its input names, once; then it has nothing more to say."""

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield the call, or the end once there is a result.

        Raises: UpstreamError, when the input names no call.
        """
        last = plan.items[-1] if plan.items else None
        if not isinstance(last, MessageItem):
            yield [Finished(stop="done")]
            return
        try:
            wanted = msgspec.json.decode(text_of(last.content), type=DirectCall)
        except msgspec.MsgspecError as error:
            raise UpstreamError(f"The input names no call: {error}.", code="no_call") from None
        call = CallItem(call_id=_CALL_ID, name=wanted.tool, arguments=write_json(wanted.arguments).decode())
        begun = msgspec.structs.replace(call, arguments="")
        yield [ItemAdded(index=0, item=begun), ItemDone(index=0, item=call), Finished(stop="calls")]
