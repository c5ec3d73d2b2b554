"""What happens in a run and is no output of a Responses stream, judged by the real openai SDK."""

from stream.responses_oracle import COMPLETED, judge
from stream.responses_runs import message, message_item
from treadle.core.events import ItemAdded, ItemDone, RunEvent
from treadle.core.items import AnyItem, ReferenceItem, ResultItem


def test_what_is_no_output_is_not_shown_as_any() -> None:
    """Results stand in the calls they belong to; a reference stands for what was shown before."""
    hidden: list[AnyItem] = [ResultItem(id="fco_1", call_id="call_1"), ReferenceItem(id="msg_0")]
    events: list[RunEvent] = []
    for index, item in enumerate(hidden):
        events += [ItemAdded(index=index, item=item), ItemDone(index=index, item=item)]
    seen = judge([*events, *message(2, "Hello"), COMPLETED])
    assert seen.final["output"] == [message_item("Hello")]
