"""Upstreams of all four protocols over real HTTP: a script behind each, asked through the whole stage and back."""

import asyncio
from typing import Any, get_args

import pytest

from treadle.core.errors import UpstreamStatus
from treadle.core.events import ArgumentsDelta, Failed, Finished, ItemDone, ModelEvent, Noted
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, CallItem, MessageItem, TextPart, text_message, text_result
from treadle.core.json import read_json
from treadle.core.plan import Plan
from treadle.core.tool_definitions import ToolSpec
from treadle.core.usage import Usage
from treadle.protocols.protocol_registry import ProtocolName
from treadle.providers.fakes.fake_server import ScriptServer
from treadle.providers.fakes.scripted_model import Script, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.providers.provider_client import HttpClient
from treadle.providers.provider_endpoint import Endpoint, Secret
from treadle.providers.provider_model import UpstreamModel, open_call

PROTOCOLS: tuple[ProtocolName, ...] = get_args(ProtocolName)
WAIT_S = 20
TOOLS = (
    ToolSpec(name="facts.propose", description="Propose."),
    ToolSpec(name="exec", kind="custom", description="Run code."),
)
CODE = 'text("é 🌍")\n\\'
PLAN = Plan(items=(text_message("system", "Be brief."), text_message("user", "go")), model="some/model", tools=TOOLS)


async def ask(server: ScriptServer, protocol: ProtocolName, plan: Plan = PLAN, **fields: Any) -> list[ModelEvent]:
    """Return all events of one model call."""
    endpoint = Endpoint(
        name="up", base_url=server.base_url(protocol), protocol=protocol, key=Secret("key-12345"), **fields
    )
    client = HttpClient()
    try:
        model = UpstreamModel(endpoint, client, CountingIds())
        async with asyncio.timeout(WAIT_S):
            return [event async for batch in model.stream(plan, "run_1") for event in batch]
    finally:
        await client.close()


def done(events: list[ModelEvent]) -> list[AnyItem]:
    """Return the complete items."""
    return [event.item for event in events if isinstance(event, ItemDone)]


def turn(protocol: str) -> ScriptTurn:
    """Return a turn that calls both tools under the names this upstream was told."""
    native = protocol == "responses"
    run = ReplyCall(name="exec", raw=CODE, id="call_2") if native else None
    return ScriptTurn(
        sees=Sees(tools=("facts_propose", "exec"), last_role="user", contains="go"),
        text="Now.",
        calls=(
            ReplyCall(name="facts_propose", args={"path": "/a"}, id="call_1"),
            run or ReplyCall(name="exec", args={"input": CODE}, id="call_2"),
        ),
        usage=Usage(input_tokens=3, output_tokens=4),
    )


@pytest.mark.parametrize("chunk_bytes", [1, 64, None])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_conversation_goes_out_and_comes_back(protocol, chunk_bytes):
    """The upstream sees names and tools it can take; the run sees its own names, custom calls and free text."""
    answer = ScriptTurn(sees=Sees(contains=("stored", "ran")), text="Done.")
    async with ScriptServer(Script(turns=(turn(protocol), answer)), chunk_bytes=chunk_bytes) as server:
        events = await ask(server, protocol)
        message, first, second = done(events)
        assert isinstance(message, MessageItem)
        assert message.content == (TextPart(text="Now."),)
        assert isinstance(first, CallItem)
        assert (first.name, first.arguments, first.kind) == ("facts.propose", '{"path":"/a"}', "function")
        assert isinstance(second, CallItem)
        assert (second.name, second.arguments, second.kind) == ("exec", CODE, "custom")
        last = events[-1]
        assert isinstance(last, Finished)
        assert (last.stop, last.usage) == ("calls", Usage(input_tokens=3, output_tokens=4))
        results = (text_result(first, "stored"), text_result(second, "ran"))
        again = Plan(items=(*PLAN.items, message, first, second, *results), model="some/model", tools=TOOLS)
        (said,) = done(await ask(server, protocol, again))
        assert isinstance(said, MessageItem)
        assert said.content == (TextPart(text="Done."),)
        assert server.player is not None
        server.player.verify()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_free_text_of_custom_tools_streams(protocol):
    """The deltas of a custom call add up to its text, whatever the upstream sent."""
    async with ScriptServer(Script(turns=(turn(protocol),)), chunk_bytes=7) as server:
        events = await ask(server, protocol)
    (index,) = [
        event.index
        for event in events
        if isinstance(event, ItemDone) and isinstance(event.item, CallItem) and event.item.kind == "custom"
    ]
    deltas = [event.text for event in events if isinstance(event, ArgumentsDelta) and event.index == index]
    assert "".join(deltas) == CODE


PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/some%2Fmodel:streamGenerateContent",
}
KEYS = {"messages": ("x-api-key", "key-12345"), "gemini": ("x-goog-api-key", "key-12345")}


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_each_protocol_has_its_path_and_its_key(protocol):
    """The key is in one header only, the one where the protocol looks for it."""
    async with ScriptServer(Script(turns=(ScriptTurn(text="hi"),))) as server:
        await ask(server, protocol)
    (received,) = server.received
    headers = {name.lower(): value for name, value in received.headers.items()}
    name, value = KEYS.get(protocol, ("authorization", "Bearer key-12345"))
    assert headers[name] == value
    assert [key for key, text in headers.items() if "key-12345" in text] == [name]
    assert ("anthropic-version" in headers) is (protocol == "messages")
    assert received.path.replace("/some/", "/some%2F") == PATHS[protocol]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_refusal_keeps_its_meaning(protocol):
    """Each API's own envelope is read: status, message and when to come back."""
    faults = Faults(status=429, message="slow down", retry_after_s=3)
    async with ScriptServer(Script(turns=(ScriptTurn(faults=faults),))) as server:
        with pytest.raises(UpstreamStatus, match="upstream 'up' answered 429: slow down") as caught:
            await ask(server, protocol)
    assert (caught.value.info.status, caught.value.info.retry_after_s) == (429, 3.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_connection_that_breaks_off_is_a_failure(protocol):
    """In the middle of an answer it is the last event, in every protocol."""
    broken = ScriptTurn(text="word " * 200, faults=Faults(disconnect_after=5_000))
    async with ScriptServer(Script(turns=(broken,))) as server:
        events = await ask(server, protocol)
    assert isinstance(events[-1], Failed)


async def test_notes_come_first_and_can_be_had_without_asking():
    """What sending a plan would cost is known before it is sent."""
    endpoint = Endpoint(name="up", base_url="http://127.0.0.1:9/v1", quirks=("no_parallel_flag",))
    call = open_call("chat", PLAN, CountingIds(), endpoint.name, endpoint.profile("other"))
    assert {note.code for note in call.notes} == {"name_mapped", "custom_tool"}
    async with ScriptServer(Script(turns=(ScriptTurn(text="hi"),))) as server:
        events = await ask(server, "chat")
    assert [event.note.code for event in events[:2] if isinstance(event, Noted)] == ["name_mapped", "custom_tool"]


async def test_quirks_of_an_endpoint_change_what_is_sent():
    """A configured quirk reaches the wire."""
    plan = Plan(items=PLAN.items, model="m")
    async with ScriptServer(Script(turns=(ScriptTurn(text="hi"),))) as server:
        await ask(server, "chat", plan, quirks=("no_stream_options",))
    assert "stream_options" not in read_json(server.received[0].body)
