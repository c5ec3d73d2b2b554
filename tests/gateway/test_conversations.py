"""Conversations of the Responses API, used by the real openai SDK."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.gateway import Gateway
from treadle.config import StoreSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.tools.demo_tools import DEMO_TOOLS

PARIS = ReplyCall(name="get_weather", args={"city": "Paris"}, id="call_paris")
TALK = Script(
    turns=(
        ScriptTurn(text="Blue."),
        ScriptTurn(sees=Sees(contains="again"), text="Blue, as I said."),
        ScriptTurn(text="Still blue."),
    )
)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway with a model that answers three times."""
    with Gateway(TALK, tmp_path) as opened:
        yield opened


@pytest.fixture
def sdk(gateway: Gateway) -> Iterator[openai.OpenAI]:
    """A plain SDK client."""
    with _client(gateway) as client:
        yield client


def _client(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url, api_key="unused", max_retries=0)


def message(text: str, **more: Any) -> Any:
    """Return an input message."""
    return {"type": "message", "role": "user", "content": text, **more}


def texts(items: Any) -> list[str]:
    """Return the text of messages, other items by their type."""
    return [item.content[0].text if item.type == "message" else item.type for item in items]


def read_by_model(gateway: Gateway, turn: int) -> list[str]:
    """Return the messages that the model read in that call."""
    assert gateway.upstream.player is not None
    return [item.content[0].text for item in gateway.upstream.player.plans[turn].items if hasattr(item, "content")]


def test_a_conversation_is_made_read_changed_and_deleted(sdk: openai.OpenAI) -> None:
    """With metadata, and gone after the end."""
    made = sdk.conversations.create(metadata={"topic": "colours"})
    assert (made.id.startswith("conv_"), made.object, made.metadata) == (True, "conversation", {"topic": "colours"})
    assert sdk.conversations.retrieve(made.id) == made
    changed = sdk.conversations.update(made.id, metadata={"topic": "sky"})
    assert (changed.id, changed.created_at, changed.metadata) == (made.id, made.created_at, {"topic": "sky"})
    assert sdk.conversations.retrieve(made.id) == changed
    deleted = sdk.conversations.delete(made.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (made.id, "conversation.deleted", True)
    for missing in (sdk.conversations.retrieve, sdk.conversations.delete, sdk.conversations.items.list):
        with pytest.raises(openai.NotFoundError):
            missing(made.id)


def test_responses_of_a_conversation_go_on_from_each_other(gateway: Gateway, sdk: openai.OpenAI) -> None:
    """The model reads what was said before; the response says which conversation it belongs to."""
    made = sdk.conversations.create(items=[message("You see the sky.")])
    first = sdk.responses.create(model="script", input="What colour?", conversation=made.id)
    second = sdk.responses.create(model="script", input="Say it again", conversation={"id": made.id})
    assert (first.output_text, second.output_text) == ("Blue.", "Blue, as I said.")
    assert first.conversation is not None
    assert first.conversation.id == made.id == sdk.responses.retrieve(first.id).conversation.id  # pyright: ignore[reportOptionalMemberAccess]
    assert read_by_model(gateway, 1) == ["You see the sky.", "What colour?", "Blue.", "Say it again"]
    listed = sdk.conversations.items.list(made.id, order="asc")
    assert texts(listed) == ["You see the sky.", "What colour?", "Blue.", "Say it again", "Blue, as I said."]
    inputs = sdk.responses.input_items.list(second.id, order="asc")
    assert texts(inputs) == ["You see the sky.", "What colour?", "Blue.", "Say it again"]


def test_a_streamed_response_moves_the_conversation_on(sdk: openai.OpenAI) -> None:
    """The next one goes on from it at once."""
    made = sdk.conversations.create()
    with sdk.responses.stream(model="script", input="What colour?", conversation=made.id) as stream:
        assert stream.get_final_response().output_text == "Blue."
    assert sdk.responses.create(model="script", input="again", conversation=made.id).output_text == "Blue, as I said."


def test_items_are_added_listed_and_read_one_by_one(sdk: openai.OpenAI) -> None:
    """In the order in which they came; pages as everywhere."""
    made = sdk.conversations.create(items=[message("a", id="msg_a")])
    added = sdk.conversations.items.create(made.id, items=[message("b", id="msg_b"), message("c")])
    assert (texts(added.data), added.first_id, added.has_more) == (["b", "c"], "msg_b", False)
    assert texts(sdk.conversations.items.list(made.id)) == ["c", "b", "a"]
    page = sdk.conversations.items.list(made.id, order="asc", limit=2)
    assert (texts(page.data), page.has_more) == (["a", "b"], True)
    assert texts(sdk.conversations.items.list(made.id, order="asc", after="msg_a").data) == ["b", "c"]
    assert texts([sdk.conversations.items.retrieve("msg_b", conversation_id=made.id)]) == ["b"]
    assert texts(sdk.conversations.items.list(made.id, order="asc", limit=1)) == ["a", "b", "c"]


def test_a_deleted_item_is_not_read_any_more(gateway: Gateway, sdk: openai.OpenAI) -> None:
    """Neither by people nor by the model; the others keep their order."""
    made = sdk.conversations.create(items=[message("a", id="msg_a"), message("b", id="msg_b")])
    assert sdk.conversations.items.delete("msg_a", conversation_id=made.id) == made
    assert texts(sdk.conversations.items.list(made.id)) == ["b"]
    with pytest.raises(openai.NotFoundError):
        sdk.conversations.items.retrieve("msg_a", conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        sdk.conversations.items.delete("msg_a", conversation_id=made.id)
    sdk.responses.create(model="script", input="c", conversation=made.id)
    assert read_by_model(gateway, 0) == ["b", "c"]


def test_a_server_call_is_one_item_and_deleted_as_one(tmp_path: Path) -> None:
    """Its result goes with it."""
    script = Script(turns=(ScriptTurn(calls=(PARIS,)), ScriptTurn(text="17 °C."), ScriptTurn(text="Yes.")))
    with Gateway(script, tmp_path, tools=DEMO_TOOLS) as gateway:
        with openai.OpenAI(base_url=gateway.url, api_key="unused") as sdk:
            made = sdk.conversations.create()
            first = sdk.responses.create(model="script", input="Weather?", conversation=made.id)
            listed = sdk.conversations.items.list(made.id, order="asc").data
            assert texts(listed) == ["Weather?", "mcp_call", "17 °C."]
            call_id = first.output[0].id or ""
            assert listed[1].id == call_id
            assert sdk.conversations.items.retrieve(call_id, conversation_id=made.id) == listed[1]
            sdk.conversations.items.delete(call_id, conversation_id=made.id)
            assert texts(sdk.conversations.items.list(made.id, order="asc")) == ["Weather?", "17 °C."]
            sdk.responses.create(model="script", input="Sure?", conversation=made.id)
        assert gateway.upstream.player is not None
        kinds = [type(item).__name__ for item in gateway.upstream.player.plans[2].items]
    assert kinds == ["MessageItem"] * 3


def test_calls_and_their_outputs_can_be_added(sdk: openai.OpenAI) -> None:
    """Any item that a response may be asked with; what is named is put in its place."""
    made = sdk.conversations.create(items=[message("a", id="msg_a")])
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    output: Any = {"type": "function_call_output", "call_id": "call_1", "output": "17"}
    sdk.conversations.items.create(made.id, items=[call, output])
    assert texts(sdk.conversations.items.list(made.id, order="asc")) == ["a", "function_call", "function_call_output"]
    other = sdk.conversations.create(items=[{"type": "item_reference", "id": "msg_a"}])
    assert texts(sdk.conversations.items.list(other.id)) == ["a"]


def test_a_conversation_is_closed_while_a_response_is_made_in_it(tmp_path: Path) -> None:
    """A second writer would tear it in two."""
    script = Script(turns=(ScriptTurn(text="A long, long answer.", faults=Faults(stall_s=60.0)), ScriptTurn(text="B")))
    with Gateway(script, tmp_path) as gateway, _client(gateway) as sdk:
        made = sdk.conversations.create()
        first = sdk.responses.create(model="script", input="Go", conversation=made.id, background=True)
        for attempt in (
            lambda: sdk.responses.create(model="script", input="And?", conversation=made.id),
            lambda: sdk.conversations.items.create(made.id, items=[message("x")]),
            lambda: sdk.conversations.delete(made.id),
        ):
            with pytest.raises(openai.ConflictError) as caught:
                attempt()
            assert (caught.value.code, caught.value.param) == ("conversation_locked", "conversation")
        assert sdk.responses.cancel(first.id).status == "cancelled"
        assert sdk.responses.create(model="script", input="And?", conversation=made.id).output_text == "B"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"conversation": "conv_none"}, 404, "conversation"),
        ({"conversation": {"name": "x"}}, 400, "conversation"),
        ({"conversation": 7}, 400, "conversation"),
        ({"conversation": "conv_none", "previous_response_id": "resp_1"}, 400, "conversation"),
    ],
)
def test_a_conversation_that_is_none_is_refused(sdk: openai.OpenAI, fields: Any, status: int, param: str) -> None:
    """Unknown, not an id, or beside a previous response."""
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.responses.create(model="script", input="hi", **fields)
    assert (caught.value.status_code, caught.value.param) == (status, param)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"k" * 65: "x"}}, f"metadata.{'k' * 64}"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": 7}}, "metadata[...]"),
        ({"items": [message(str(n)) for n in range(21)]}, "items"),
        ({"items": "x"}, "items"),
        ({"items": [{"type": "message", "role": "user", "content": 7}]}, "items[0].content"),
        ({"items": [{"type": "item_reference", "id": "msg_none"}]}, "items"),
    ],
)
def test_a_bad_field_is_named(sdk: openai.OpenAI, body: Any, param: str) -> None:
    """Nothing is made of it."""
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.post("/conversations", body=body, cast_to=object)
    assert caught.value.status_code in (400, 404)
    assert caught.value.param == param


def test_adding_nothing_is_refused(sdk: openai.OpenAI) -> None:
    """The field is named."""
    made = sdk.conversations.create()
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.conversations.items.create(made.id, items=[])
    assert caught.value.param == "items"


def test_a_session_is_no_conversation(gateway: Gateway, sdk: openai.OpenAI) -> None:
    """Treadle's own sessions are not shown under another API's name, nor the other way round."""
    session_id = gateway.ask(gateway.runtime.session("mine"))
    for name in (session_id, "mine"):
        with pytest.raises(openai.NotFoundError):
            sdk.conversations.retrieve(name)


def test_a_server_that_keeps_nothing_has_no_conversations(tmp_path: Path) -> None:
    """It says so, instead of forgetting them."""
    off = StoreSection(persistence="off")
    with Gateway(TALK, tmp_path, store=off) as gateway, _client(gateway) as sdk, pytest.raises(openai.BadRequestError):
        sdk.conversations.create()


def test_what_is_not_stored_does_not_stay_in_the_conversation(sdk: openai.OpenAI) -> None:
    """The model reads the conversation, and nothing is added to it."""
    made = sdk.conversations.create(items=[message("a")])
    response = sdk.responses.create(model="script", input="What colour?", conversation=made.id, store=False)
    assert response.output_text == "Blue."
    assert texts(sdk.conversations.items.list(made.id)) == ["a"]
    sdk.conversations.items.create(made.id, items=[message("b")])
    assert texts(sdk.conversations.items.list(made.id, order="asc")) == ["a", "b"]
