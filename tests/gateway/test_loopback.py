"""The loopback server as foreign clients see it: judged by the real openai SDK, plain HTTP and its own command line."""

import asyncio
import sys

import aiohttp
import openai
import pytest

from treadle.core.json import read_json
from treadle.providers.demo_model.model import reply_to
from treadle.providers.fakes.fake_server import Canned, CannedTable, ScriptServer, main
from treadle.providers.fakes.scripted_model import Script, ScriptMismatch, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall

WAIT_S = 30.0
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCRIPT = Script(
    turns=(
        ScriptTurn(
            sees=Sees(tools=("get_weather",), last_role="user"),
            calls=(ReplyCall(name="get_weather", args={"city": "Zürich"}),),
        ),
        ScriptTurn(sees=Sees(last_role="tool", contains="18"), text="It is 18 °C."),
    )
)


def sdk(server: ScriptServer) -> openai.AsyncOpenAI:
    """Return the real client, without retries."""
    return openai.AsyncOpenAI(base_url=server.url, api_key="k", max_retries=0)


@pytest.mark.parametrize("chunk_bytes", [1, 7, None])
@pytest.mark.parametrize("is_stream", [True, False])
async def test_a_script_is_a_two_round_conversation_for_the_sdk(is_stream, chunk_bytes):
    """Call, result, answer: streamed at any chunk size, and whole."""
    messages: list = [{"role": "user", "content": "Weather?"}]
    async with ScriptServer(SCRIPT, chunk_bytes=chunk_bytes) as server, sdk(server) as client, asyncio.timeout(WAIT_S):
        for round_number in (1, 2):
            if is_stream:
                async with client.chat.completions.stream(model="script", messages=messages, tools=[TOOL]) as stream:
                    completion = await stream.get_final_completion()
            else:
                completion = await client.chat.completions.create(model="script", messages=messages, tools=[TOOL])
            choice = completion.choices[0]
            if round_number == 1:
                (call,) = choice.message.tool_calls
                assert (call.id, call.function.name) == ("call_s1_1", "get_weather")
                assert read_json(call.function.arguments) == {"city": "Zürich"}
                messages += [choice.message.model_dump(exclude_none=True, exclude={"parsed"})]
                messages += [{"role": "tool", "tool_call_id": call.id, "content": "18"}]
        assert (choice.finish_reason, choice.message.content) == ("stop", "It is 18 °C.")
        assert server.player is not None
        server.player.verify()
        assert [received.path for received in server.received] == ["/v1/chat/completions"] * 2


async def test_the_demo_model_is_served_too():
    """The same demo over HTTP: it calls what the request offers."""
    async with ScriptServer(reply_to) as server, sdk(server) as client, asyncio.timeout(WAIT_S):
        completion = await client.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "weather in Paris?"}], tools=[TOOL]
        )
        (call,) = completion.choices[0].message.tool_calls
        assert call.function.arguments == '{"city":"Paris"}'
        assert [model.id async for model in client.models.list()] == ["demo"]


async def test_a_mismatch_is_an_error_for_the_client_and_kept():
    """A foreign client that asks the wrong thing gets a 500 that says so, and the test can verify."""
    script = Script(turns=(ScriptTurn(sees=Sees(last_role="tool"), text="x"),))
    async with ScriptServer(script) as server, sdk(server) as client, asyncio.timeout(WAIT_S):
        with pytest.raises(openai.InternalServerError, match="expected 'tool', got 'user'"):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert server.player is not None
        with pytest.raises(ScriptMismatch):
            server.player.verify()
        assert [model.id async for model in client.models.list()] == ["script"]


async def test_a_scripted_status_is_an_http_status():
    """The fault `status` with its retry-after, as a client sees it."""
    script = Script(turns=(ScriptTurn(faults=Faults(status=429, message="slow down", retry_after_s=7)),))
    async with ScriptServer(script) as server, sdk(server) as client, asyncio.timeout(WAIT_S):
        with pytest.raises(openai.RateLimitError, match="slow down") as caught:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.response.headers["retry-after"] == "7"


async def test_a_scripted_disconnect_cuts_the_stream():
    """The fault `disconnect_after` is a real cut on a real connection."""
    script = Script(turns=(ScriptTurn(text="one two three", faults=Faults(disconnect_after=250)),))
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with (
        ScriptServer(script) as server,
        aiohttp.ClientSession() as session,
        asyncio.timeout(WAIT_S),
        session.post(f"{server.url}/chat/completions", json=body) as response,
    ):
        got = await response.content.readexactly(250)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()
    assert len(got) == 250


@pytest.mark.parametrize(("stall_s", "release"), [(0.01, False), (600.0, True)])
async def test_a_scripted_stall_ends_by_time_or_by_release(stall_s, release):
    """A stall lasts as long as the script says, or until a test lets it go on."""
    script = Script(turns=(ScriptTurn(text="one two", faults=Faults(stall_s=stall_s)),))
    async with ScriptServer(script) as server, sdk(server) as client, asyncio.timeout(WAIT_S):
        stream = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        said = ""
        async for chunk in stream:
            said += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            if release:
                server.release.set()
    assert said == "one two"


async def test_canned_bytes_are_chosen_by_model():
    """Golden streams lie on a shelf by name; an unknown name is a 404 in the API's envelope."""
    table = CannedTable(models={"a": Canned(body=b"data: A\n\n"), "b": Canned(body=b"{}", status=418, headers={})})
    async with ScriptServer(table) as server, aiohttp.ClientSession() as session, asyncio.timeout(WAIT_S):
        answers = []
        for name in ("a", "b", "c"):
            body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
            async with session.post(f"{server.url}/chat/completions", json=body) as response:
                answers.append((response.status, await response.read()))
        async with session.get(f"{server.url}/models") as response:
            listed = [model["id"] for model in (await response.json())["data"]]
    assert answers[:2] == [(200, b"data: A\n\n"), (418, b"{}")]
    assert answers[2][0] == 404
    assert read_json(answers[2][1])["error"]["param"] == "model"
    assert listed == ["a", "b"]


async def test_a_request_that_is_none_is_refused_in_the_api_s_envelope():
    """Nonsense gets a 400 with the field named, not a hang and not a 500."""
    async with (
        ScriptServer(reply_to) as server,
        aiohttp.ClientSession() as session,
        asyncio.timeout(WAIT_S),
        session.post(f"{server.url}/chat/completions", data=b'{"model":"m"}') as response,
    ):
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "messages"


@pytest.mark.parametrize("source", [["--demo"], []])
async def test_it_runs_as_a_command_and_prints_its_address(source):
    """Foreign clients start it as a process and read its URL from the first line."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "treadle.providers.fakes.fake_server",
        "--port",
        "0",
        *source,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            assert process.stdout is not None
            url = (await process.stdout.readline()).decode().strip()
            assert url.startswith("http://127.0.0.1:")
            async with aiohttp.ClientSession() as session, session.get(f"{url}/models") as response:
                assert (await response.json())["data"][0]["id"] == "demo"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), ("[[script]]\ntxt = 1", "unknown field `txt`")])
def test_a_wrong_script_file_is_a_usage_error(tmp_path, capsys, content, words):
    """A missing or mistyped script says what is wrong and exits with 2."""
    path = tmp_path / "script.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit) as caught:
        main(["--script", str(path)])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err
