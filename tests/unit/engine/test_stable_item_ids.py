"""Items of a repeated model call: under the ids that clients know, and under none that is void."""

from treadle.core.events import ItemAdded, ItemDone, RunEvent, RunRecovered
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem
from treadle.engine.stable_item_ids import StableItemIds

THOUGHT = ReasoningItem(id="rs_1")
SAID = MessageItem(id="msg_1", role="assistant")
CALL = CallItem(id="fc_1", call_id="call_1", name="pay", side="client")


def _repeated(*items: AnyItem, done: int = 0, is_recovered: bool = True) -> StableItemIds:
    """Return what is expected after a call broke that had begun these items and ended the first of them."""
    said: list[RunEvent] = [ItemAdded(index=index, item=item) for index, item in enumerate(items)]
    said += [ItemDone(index=index, item=item) for index, item in enumerate(items[:done])]
    said += [RunRecovered()] * is_recovered
    repeated = StableItemIds(CountingIds())
    repeated.expect(said, dict(list(enumerate(items))[done:]), [item.id for item in items[:done]])
    return repeated


def test_what_was_begun_keeps_its_ids() -> None:
    """One after the other, by kind and name; what comes beyond has its own."""
    repeated = _repeated(SAID, CALL)
    again = CallItem(id="fc_9", call_id="call_9", name="pay", arguments="{}")
    assert repeated.adopt(MessageItem(id="msg_9", role="assistant")) == SAID
    assert repeated.adopt(again) == CallItem(
        id="fc_1", call_id="call_1", name="pay", arguments="{}", upstream_id="call_9"
    )
    assert repeated.adopt(again) is None


def test_what_was_ended_is_void_and_so_is_its_id() -> None:
    """Another item of that id gets a fresh one."""
    repeated = _repeated(THOUGHT, SAID, done=1)
    assert repeated.adopt(THOUGHT) is None
    assert repeated.with_unused_id(THOUGHT) == ReasoningItem(id="rs_0001")
    assert repeated.adopt(MessageItem(id="msg_9", role="assistant")) == SAID
    assert repeated.with_unused_id(SAID) is SAID


def test_another_answer_has_items_of_its_own() -> None:
    """From the first that differs in kind or name."""
    repeated = _repeated(CALL, SAID)
    assert repeated.adopt(CallItem(call_id="call_9", name="look")) is None
    assert repeated.adopt(MessageItem(id="msg_9", role="assistant")) is None


def test_the_next_call_repeats_nothing() -> None:
    """Its items are new, and still none gets a void id."""
    repeated = _repeated(THOUGHT, SAID, done=1)
    repeated.forget()
    assert repeated.adopt(SAID) is None
    assert repeated.with_unused_id(THOUGHT).id == "rs_0001"


def test_older_journals_are_replayed_as_they_are() -> None:
    """They do not say that the run was recovered, and their items have ids of their own."""
    repeated = _repeated(SAID, is_recovered=False)
    assert repeated.adopt(MessageItem(id="msg_9", role="assistant")) is None
