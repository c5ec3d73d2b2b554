"""Compaction: a conversation sealed into one item, and opened again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ErrorInfo
from treadle.core.events import (
    ItemAdded,
    ItemDone,
    KeptAlive,
    Noted,
    RoundBroken,
    RoundStarted,
    RunEnded,
    RunEvent,
    RunStarted,
    TextDelta,
)
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, MessageItem, OpaqueItem, text_message
from treadle.core.request import Note, Options, Request
from treadle.core.tool_definitions import NONE, ToolSpec
from treadle.protocols.compaction import (
    ASK,
    INTRODUCTION,
    CompactedText,
    WindowEncoder,
    ask,
    is_asked,
    restore,
    seal,
    unseal,
)
from treadle.protocols.responses import read_request

STARTED = RunStarted(run_id="run_1", response_id="resp_1", model="m", created_at=1.0)
COMPLETED = RunEnded(status="completed")


def _read(*items: dict[str, Any], **fields: Any) -> Request:
    return read_request(msgspec.json.encode({"model": "m", "input": items, **fields}))


@given(st.text())
def test_a_seal_is_opened_again(text: str) -> None:
    """Whatever the summary says."""
    assert unseal(seal(text)) == text


@pytest.mark.parametrize(
    "sealed",
    [
        "",
        "gAAAAABo",
        "treadle.1.",
        "treadle.1.%%%",
        "treadle.1.abc",
        "treadle.1._w==",
        "treadle.1.Y%Q==",
        "treadle.2.YQ==",
    ],
)
def test_what_others_sealed_or_broke_is_not_opened(sealed: str) -> None:
    """It is kept as it is; only an empty summary is nothing at all."""
    assert not unseal(sealed)


def test_a_sealed_summary_becomes_text_again() -> None:
    """The model reads it where the item stood; the other items stay as they were."""
    request = _read(
        {"type": "compaction", "id": "cmp_1", "encrypted_content": seal("We build a boat.")},
        {"role": "user", "content": "Go on."},
    )
    first, second = restore(request).items
    assert first == text_message("user", INTRODUCTION + "We build a boat.", "cmp_1")
    assert second == request.items[1]


@pytest.mark.parametrize("content", ["gAAAAABo", None, 7, {"a": 1}])
def test_what_another_provider_sealed_is_carried_unread(content: Any) -> None:
    """An upstream of the same protocol can still open it."""
    request = _read({"type": "compaction", "encrypted_content": content})
    assert restore(request) == request


def test_a_trigger_asks_for_compaction() -> None:
    """And nothing else does, not even an item of an odd role and no type."""
    assert is_asked(_read({"role": "user", "content": "hi"}, {"type": "compaction_trigger"}))
    odd = {"type": None, "role": "oracle", "content": "hi"}
    assert not is_asked(_read({"role": "user", "content": "hi"}, odd, {"type": "new_thing"}))
    assert not is_asked(
        Request(protocol="chat", model="m", items=(OpaqueItem(protocol="chat", raw=msgspec.Raw(b"{}")),))
    )


def test_the_model_is_asked_for_a_summary_and_may_call_nothing() -> None:
    """Tools stay in the list, for providers that want every call of the history declared; nothing is stored."""
    tool = ToolSpec(name="look")
    request = msgspec.structs.replace(
        _read({"role": "user", "content": "hi"}, {"type": "compaction_trigger"}),
        tools=(tool,),
        options=Options(max_output_tokens=5, output_schema=msgspec.Raw(b"{}"), reasoning_effort="low"),
    )
    asked = ask(request)
    assert asked.items == (request.items[0], text_message("user", ASK))
    assert (asked.tools, asked.tool_choice, asked.store) == ((tool,), NONE, False)
    assert asked.options == Options(reasoning_effort="low")


def _retold(*events: RunEvent) -> list[RunEvent]:
    retelling = CompactedText(CountingIds())
    return [told for event in events for told in retelling.feed(event)]


def test_the_only_output_is_the_sealed_summary() -> None:
    """Text, thoughts and calls on the way are not told; what keeps the stream going is."""
    quiet: list[RunEvent] = [
        STARTED,
        Noted(note=Note(code="c", action="kept", message="m")),
        RoundStarted(round=1, fingerprint="f"),
        KeptAlive(),
    ]
    call = CallItem(call_id="call_1", name="look")
    told = _retold(
        *quiet,
        ItemAdded(index=0, item=MessageItem(role="assistant")),
        TextDelta(index=0, text="A boat."),
        ItemDone(index=0, item=text_message("assistant", "A boat.")),
        ItemDone(index=1, item=call),
        ItemDone(index=2, item=text_message("assistant", "Half done.")),
        COMPLETED,
    )
    raw = msgspec.Raw(
        msgspec.json.encode(
            {"type": "compaction", "id": "cmp_0001", "encrypted_content": seal("A boat.\n\nHalf done.")}
        )
    )
    item = OpaqueItem(id="cmp_0001", protocol="responses", raw=raw)
    assert told == [*quiet, ItemAdded(index=0, item=item), ItemDone(index=0, item=item), COMPLETED]


def test_a_summary_that_was_broken_off_is_not_told() -> None:
    """A crash made the model write it again: only the second one counts."""
    first, second = text_message("assistant", "A boat."), text_message("assistant", "A ship.")
    again: list[RunEvent] = [RoundBroken(round=1), ItemDone(index=1, item=second), COMPLETED]
    told = msgspec.json.encode(_retold(STARTED, ItemDone(index=0, item=first), *again)).decode()
    assert (seal("A ship.") in told, seal("A boat.\n\nA ship.") in told) == (True, False)


def test_no_summary_is_a_failure() -> None:
    """An empty item would erase the conversation."""
    ended = _retold(STARTED, ItemDone(index=0, item=text_message("assistant", "  ")), COMPLETED)[-1]
    error = ErrorInfo(code="compaction_failed", message="The model answered with no summary.", status=502)
    assert ended == RunEnded(status="failed", error=error)


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_run_that_broke_is_told_as_it_ended(status: Any) -> None:
    """Half a summary is none."""
    ended = RunEnded(status=status)
    assert _retold(STARTED, ItemDone(index=0, item=text_message("assistant", "Half")), ended) == [STARTED, ended]


def test_the_answer_of_compacting_is_a_window_to_go_on_with() -> None:
    """It has the sealed item, what making it cost, and nothing else of a response."""
    retelling, encoder = CompactedText(CountingIds()), WindowEncoder(_read(), CountingIds())
    said: list[RunEvent] = [STARTED, ItemDone(index=0, item=text_message("assistant", "A boat.")), COMPLETED]
    for event in said:
        for told in retelling.feed(event):
            encoder.feed(told)
    body = msgspec.json.decode(encoder.body())
    assert sorted(body) == ["created_at", "id", "object", "output", "usage"]
    assert (body["object"], body["id"]) == ("response.compaction", "resp_1")
    assert body["output"] == [{"type": "compaction", "id": "cmp_0001", "encrypted_content": seal("A boat.")}]
