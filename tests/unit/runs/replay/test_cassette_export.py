"""A stored run as a cassette: opaque state comes back as its provider made it, and what does not is said."""

import msgspec
import pytest

from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, TextDelta
from treadle.core.items import AnyItem, Blob, CallItem, MessageItem, ReasoningItem, TextPart, text_message
from treadle.core.plan import Plan
from treadle.core.tool_definitions import ToolSpec
from treadle.engine.recorded_run import ReplyRecord
from treadle.journal.journal_interface import RunRow
from treadle.protocols.protocol_registry import ProtocolName
from treadle.providers.provider_endpoint import Endpoint
from treadle.runs.replay.cassette_export import CassetteExport, export_run
from treadle.runs.views.recorded_rounds import ModelCall, StoredRun

ROW = RunRow(id="r", response_id="p", conversation_id="c", protocol="chat", model="m", created_at=0.0)
PLAN = Plan(items=(text_message("user", "hi"),), model="m", tools=(ToolSpec(name="f"),))


def taped(protocol: ProtocolName, *items: AnyItem) -> CassetteExport:
    """Tape a run of one model call that said these items."""
    events: list[ModelEvent] = []
    for index, item in enumerate(items):
        begun = {"content": ()} if isinstance(item, MessageItem) else {"arguments": ""}
        if isinstance(item, ReasoningItem):
            begun = {"text": (), "summary": ()}
        events.append(ItemAdded(index=index, item=msgspec.structs.replace(item, **begun)))
        if isinstance(item, MessageItem):
            events += [TextDelta(index=index, text=part.text) for part in item.content if isinstance(part, TextPart)]
        events.append(ItemDone(index=index, item=item))
    events.append(Finished(stop="done"))
    call = ModelCall(
        plan=PLAN,
        events=tuple(events),
        items=items,
        results=(),
        reply=ReplyRecord(ending="finished", stop="done"),
        asked_at=10.0,
        replied_at=12.0,
    )
    endpoint = Endpoint(name="up", base_url="http://up.invalid/v1", protocol=protocol)
    return export_run(StoredRun(row=ROW, added=(), offers={}, calls=(call,)), endpoint)


def blob(kind: str, data: str) -> Blob:
    """Opaque state of the endpoint's own making."""
    return Blob(provider="up", kind=kind, data=data, model="m")


@pytest.mark.parametrize(
    ("protocol", "item"),
    [
        ("messages", ReasoningItem(id="rs_1", text=("Hm.",), blobs=(blob("signature", "c2lnbmVk"),))),
        ("messages", ReasoningItem(id="rs_1", blobs=(blob("redacted", "c2VjcmV0"),))),
        (
            "responses",
            ReasoningItem(
                id="rs_1", summary=("Hm.",), blobs=(blob("encrypted_content", "c2VhbA=="), blob("item_id", "rs_theirs"))
            ),
        ),
        (
            "gemini",
            CallItem(id="fc_1", call_id="c1", name="f", arguments="{}", blobs=(blob("thought_signature", "c2ln"),)),
        ),
    ],
)
def test_opaque_state_is_spelled_as_its_provider_spells_it(protocol: ProtocolName, item: AnyItem) -> None:
    """Not sealed as for a client: a replay would send the seal back, and not find its request."""
    result = taped(protocol, item)
    assert result.notes == ()
    text = "".join(chunk.text or "" for chunk in result.cassette.calls[0].chunks)
    assert all(each.data in text for each in getattr(item, "blobs", ()))


def test_what_can_not_be_spelled_is_said() -> None:
    """Chat has no place for a signature of reasoning."""
    result = taped("chat", ReasoningItem(id="rs_1", text=("Hm.",), blobs=(blob("signature", "c2ln"),)))
    assert result.notes == ("model call 1: the reasoning is not spelled exactly",)


def test_the_time_is_spread_over_the_pieces() -> None:
    """The journal knows when a call began and when it had ended."""
    call = taped("chat", text_message("assistant", "Hi")).cassette.calls[0]
    assert (call.asked.at, call.ended.how) == (10.0, "eof")
    assert sum(chunk.after_s for chunk in call.chunks) == pytest.approx(2.0)
