"""The model behind a call that somebody made without one."""

import pytest

from treadle.core.errors import UpstreamError
from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent
from treadle.core.items import AnyItem, CallItem, text_message, text_result
from treadle.core.plan import Plan
from treadle.providers.direct_call_model import DIRECT_MODEL, DirectModel, direct_request


async def said(*items: AnyItem) -> list[ModelEvent]:
    """Return what the model says to these items."""
    plan = Plan(items=items, model=DIRECT_MODEL)
    return [event async for batch in DirectModel().stream(plan, "run_1") for event in batch]


async def test_it_asks_for_the_call_that_its_input_names() -> None:
    """With exactly these arguments, and only that tool on offer."""
    request = direct_request("odd name", {"a": [1, "ü"], "b": None})
    assert request.tool_choice.allowed == ("odd name",)
    call = CallItem(call_id="call_direct", name="odd name", arguments='{"a":[1,"ü"],"b":null}')
    begun = CallItem(call_id="call_direct", name="odd name")
    assert await said(*request.items) == [
        ItemAdded(index=0, item=begun),
        ItemDone(index=0, item=call),
        Finished(stop="calls"),
    ]


async def test_it_has_nothing_to_say_of_a_result() -> None:
    """The result is the answer."""
    call = CallItem(call_id="call_direct", name="x", arguments="{}")
    items = (*direct_request("x", {}).items, call, text_result(call, "done"))
    assert await said(*items) == [Finished(stop="done")]


@pytest.mark.parametrize("words", ["hello", "{}", '{"tool": 1, "arguments": {}}', '{"tool": "x", "arguments": []}'])
async def test_what_names_no_call_is_refused(words: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UpstreamError, match="names no call"):
        await said(text_message("user", words))
