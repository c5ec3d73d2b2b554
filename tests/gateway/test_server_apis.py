"""Stock clients' own requests, and the SDKs' side endpoints, through a whole Treadle to a scripted upstream."""

import http.client
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx2
import msgspec
import openai
import pytest
from google import genai

from gateway import stock
from gateway.gateway import Gateway
from treadle.providers.fakes.scripted_model import Script, ScriptTurn, Sees
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall

LS = ReplyCall(name="exec_command", args={"cmd": "ls"}, id="call_ls")
TIMEOUT_S = 20


class Answer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def events(self) -> list[Any]:
        """Return the data of every frame."""
        lines = [line for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [msgspec.json.decode(line.removeprefix("data: ")) for line in lines]


def post(gateway: Gateway, path: str, body: stock.Body, headers: dict[str, str] | None = None) -> Answer:
    """Send a body exactly as given."""
    connection = http.client.HTTPConnection(urlsplit(gateway.origin).netloc, timeout=TIMEOUT_S)
    given = {"content-type": "application/json", **(headers or {})}
    connection.request("POST", path, body=msgspec.json.encode(body), headers=given)
    answer = connection.getresponse()
    got = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    connection.close()
    return got


def script(*turns: ScriptTurn) -> Script:
    """Return what the upstream shall say."""
    return Script(turns=turns)


def sent(gateway: Gateway, number: int = -1) -> Any:
    """Return a body that the upstream got."""
    return msgspec.json.decode(gateway.upstream.received[number].body)


def response_of(answer: Answer) -> Any:
    """Return the final response of a stream that must have completed."""
    assert (answer.status, answer.events()[-1]["type"]) == (200, "response.completed"), answer.body
    return answer.events()[-1]["response"]


def test_codex_with_a_name_it_does_not_know(tmp_path: Path) -> None:
    """Functions, a namespace, a custom tool and hosted ones in one list; the calls come back as codex made them."""
    spawn = ReplyCall(name="multi_agent_v1__spawn_agent", args={"cmd": "x"}, id="call_spawn")
    patch = ReplyCall(name="apply_patch", args={"input": "*** Begin"}, id="call_patch")
    turns = script(
        ScriptTurn(calls=(LS, spawn, patch)), ScriptTurn(sees=Sees(last_role="tool", contains="a.txt"), text="One.")
    )
    with Gateway(turns, tmp_path) as gateway:
        first = post(gateway, "/v1/responses", stock.codex())
        calls = response_of(first)["output"]
        replay = [
            *calls,
            {"type": "function_call_output", "id": "fco_1", "call_id": "call_ls", "output": "a.txt"},
            {"type": "function_call_output", "id": "fco_2", "call_id": "call_spawn", "output": "agent"},
            {"type": "custom_tool_call_output", "id": "fco_3", "call_id": "call_patch", "output": "done"},
        ]
        second = response_of(post(gateway, "/v1/responses", stock.codex(*replay)))
    assert [(item["type"], item["name"], item.get("namespace")) for item in calls] == [
        ("function_call", "exec_command", None),
        ("function_call", "spawn_agent", "multi_agent_v1"),
        ("custom_tool_call", "apply_patch", None),
    ]
    assert (calls[0]["arguments"], calls[2]["input"]) == ('{"cmd":"ls"}', "*** Begin")
    assert second["output"][0]["content"][0]["text"] == "One."
    assert first.headers["x-treadle-fidelity"].startswith("dropped=")


def test_codex_in_code_mode(tmp_path: Path) -> None:
    """Tools travel as an input item; the call is custom, in its namespace, and its output is an array of parts."""
    run = ReplyCall(name="exec", args={"input": "await tools.ls()"}, id="call_exec")
    turns = script(ScriptTurn(calls=(run,)), ScriptTurn(sees=Sees(last_role="tool", contains="a.txt"), text="One."))
    headers = {"x-openai-internal-codex-responses-lite": "true", "authorization": "Bearer sk-unused"}
    with Gateway(turns, tmp_path) as gateway:
        (call,) = response_of(post(gateway, "/v1/responses", stock.codex_lite(), headers))["output"]
        output = {
            "type": "custom_tool_call_output",
            "id": "fco_1",
            "call_id": call["call_id"],
            "output": [{"type": "input_text", "text": "a.txt"}, {"type": "input_text", "text": "exit 0"}],
        }
        second = response_of(post(gateway, "/v1/responses", stock.codex_lite(call, output), headers))
        offered = [tool[tool["type"]]["name"] for tool in sent(gateway)["tools"]]
    wanted = ("custom_tool_call", "exec", "functions", "await tools.ls()")
    assert (call["type"], call["name"], call["namespace"], call["input"]) == wanted
    assert second["output"][0]["content"][0]["text"] == "One."
    assert offered == ["exec", "wait", "clock__sleep"]


def test_codex_compacts(tmp_path: Path) -> None:
    """The built-in provider wants exactly one item back, and sends it instead of the conversation from then on."""
    turns = script(ScriptTurn(text="They list files."), ScriptTurn(sees=Sees(contains="Go on"), text="On it."))
    with Gateway(turns, tmp_path) as gateway:
        (item,) = response_of(post(gateway, "/v1/responses", stock.codex({"type": "compaction_trigger"})))["output"]
        body = stock.codex() | {"input": [item, {"type": "message", "role": "user", "content": "Go on"}]}
        second = response_of(post(gateway, "/v1/responses", body))
        history = sent(gateway)["messages"]
    assert item["type"] == "compaction"
    assert second["output"][0]["content"][0]["text"] == "On it."
    assert "They list files." in history[0]["content"]


def test_codex_titles_reach_the_upstream_as_a_schema(tmp_path: Path) -> None:
    """A structured-output request at start-up."""
    with Gateway(script(ScriptTurn(text='{"title":"Files"}')), tmp_path) as gateway:
        response_of(post(gateway, "/v1/responses", stock.codex_title()))
        form = sent(gateway)["response_format"]
    assert (form["type"], form["json_schema"]["schema"]["required"]) == ("json_schema", ["title"])


def test_item_references_of_the_ai_sdk(tmp_path: Path) -> None:
    """It names what was stored by id and sends the rest."""
    turns = script(ScriptTurn(text="Blue."), ScriptTurn(sees=Sees(contains="again"), text="Blue, as I said."))
    with Gateway(turns, tmp_path) as gateway:
        ask = {"role": "user", "content": [{"type": "input_text", "text": "Which colour?"}]}
        first = post(gateway, "/v1/responses", {"model": "stub", "input": [ask]}).json()
        again = {"role": "user", "content": [{"type": "input_text", "text": "Say it again."}]}
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        second = post(gateway, "/v1/responses", {"model": "stub", "input": [ask, reference, again]})
        history = [message["content"] for message in sent(gateway)["messages"]]
    assert (second.status, history) == (200, ["Which colour?", "Blue.", "Say it again."])


def test_the_openai_sdk_reads_the_side_endpoints(tmp_path: Path) -> None:
    """Input items page by page, token counts, a compacted window, and the refusal to cancel."""
    turns = script(ScriptTurn(text="Blue."), ScriptTurn(text="They asked for a colour."))
    ask: Any = [{"role": "user", "content": word} for word in ("Which", "colour", "is it?")]
    with Gateway(turns, tmp_path) as gateway, openai.OpenAI(base_url=gateway.url, api_key="k", max_retries=0) as sdk:
        first = sdk.responses.create(model="stub", input=ask)
        items = list(sdk.responses.input_items.list(first.id, limit=2, order="asc"))
        count = sdk.responses.input_tokens.count(model="stub", input="x" * 40)
        window = sdk.responses.compact(model="stub", input=ask)
        with pytest.raises(openai.BadRequestError, match="synchronous"):
            sdk.responses.cancel(first.id)
    assert [item.content[0].text for item in items] == ["Which", "colour", "is it?"]  # pyright: ignore
    assert (count.object, count.input_tokens) == ("response.input_tokens", 14)
    assert (window.object, [item.type for item in window.output]) == ("response.compaction", ["compaction"])


def test_claude_code(tmp_path: Path) -> None:
    """System entries among the messages, betas, adaptive thinking, a deferred tool: answered, and its result taken."""
    call = ReplyCall(name="Bash", args={"command": "ls"}, id="toolu_1")
    turns = script(ScriptTurn(calls=(call,)), ScriptTurn(sees=Sees(last_role="tool", contains="a.txt"), text="One."))
    with Gateway(turns, tmp_path) as gateway:
        first = post(gateway, "/v1/messages?beta=true", stock.claude_code(), stock.CLAUDE_HEADERS)
        assert first.status == 200, first.body
        start = next(event for event in first.events() if event["type"] == "content_block_start")
        block = {**start["content_block"], "input": {"command": "ls"}}
        result = {
            "type": "tool_result",
            "tool_use_id": block["id"],
            "content": "a.txt",
            "cache_control": {"type": "ephemeral"},
        }
        more = ({"role": "assistant", "content": [block]}, {"role": "user", "content": [result]})
        second = post(gateway, "/v1/messages?beta=true", stock.claude_code(*more), stock.CLAUDE_HEADERS)
    assert (block["type"], block["name"]) == ("tool_use", "Bash")
    assert [event["type"] for event in second.events()][-1] == "message_stop"
    assert "".join(event["delta"].get("text", "") for event in second.events() if "delta" in event) == "One."
    assert second.headers["request-id"] == second.headers["x-request-id"]


def test_claude_code_counts_and_titles(tmp_path: Path) -> None:
    """The count needs no max_tokens and is an estimate; a title's schema reaches the upstream."""
    body = {name: value for name, value in stock.claude_code().items() if name not in ("max_tokens", "stream")}
    with Gateway(script(ScriptTurn(text='{"title":"Files"}')), tmp_path) as gateway:
        count = post(gateway, "/v1/messages/count_tokens?beta=true", body, stock.CLAUDE_HEADERS)
        title = post(gateway, "/v1/messages?beta=true", stock.claude_title(), stock.CLAUDE_HEADERS)
        form = sent(gateway)["response_format"]
    assert (count.status, count.headers["x-treadle-estimate"], list(count.json())) == (200, "true", ["input_tokens"])
    assert count.json()["input_tokens"] > 100
    assert (title.status, title.json()["content"][0]["text"]) == (200, '{"title":"Files"}')
    assert form["json_schema"]["schema"]["required"] == ["title"]


def test_the_anthropic_tool_runner_keeps_its_thread_here(tmp_path: Path) -> None:
    """Its second request carries only the results; system, tools and history are those of the first."""

    @anthropic.beta_tool
    def list_files(folder: str) -> str:
        """List a folder.

        Args:
            folder: Its path.
        """
        return f"a.txt in {folder}"

    call = ReplyCall(name="list_files", args={"folder": "src"}, id="toolu_1")
    turns = script(
        ScriptTurn(calls=(call,)),
        ScriptTurn(sees=Sees(tools=("list_files",), last_role="tool", contains="a.txt in src"), text="One file."),
    )
    with Gateway(turns, tmp_path) as gateway, anthropic.Anthropic(base_url=gateway.origin, api_key="k") as sdk:
        runner = sdk.beta.messages.tool_runner(
            model="stub",
            max_tokens=500,
            system="Be brief.",
            tools=[list_files],
            messages=[{"role": "user", "content": "List src."}],
        )
        final = runner.until_done()
        roles = [message["role"] for message in sent(gateway)["messages"]]
    assert [block.text for block in final.content if block.type == "text"] == ["One file."]
    assert roles == ["system", "user", "assistant", "tool"]


def test_a_thread_that_is_not_stored_is_replayed_by_the_sdk(tmp_path: Path) -> None:
    """The refusal has the code that makes it send everything again."""
    thread = {"type": "continue", "previous_message_id": "msg_lost"}
    body: stock.Body = {
        "model": "stub",
        "max_tokens": 10,
        "thread": thread,
        "messages": [{"role": "user", "content": "hi"}],
    }
    with Gateway(script(), tmp_path) as gateway, anthropic.Anthropic(base_url=gateway.origin, api_key="k") as sdk:
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            refused = post(gateway, path, body)
            assert (refused.status, refused.json()["error"]["details"]) == (404, {"error_code": "thread_not_found"})
        with pytest.raises(anthropic.NotFoundError) as caught:
            sdk.messages.create(
                model="stub", max_tokens=10, messages=[{"role": "user", "content": "hi"}], extra_body={"thread": thread}
            )
    assert type(caught.value).__name__ == "ThreadNotFoundError"


@pytest.mark.parametrize("version", ["v1beta", "v1"])
def test_gemini_cli(version: str, tmp_path: Path) -> None:
    """Streamed as frames; its call's result is taken back, and the thought signature with it."""
    call = ReplyCall(name="run_shell_command", args={"command": "ls"}, id="call_1")
    turns = script(ScriptTurn(calls=(call,)), ScriptTurn(sees=Sees(last_role="tool", contains="a.txt"), text="One."))
    path = f"/{version}/models/vendor/stub-1:streamGenerateContent?alt=sse"
    with Gateway(turns, tmp_path) as gateway:
        first = post(gateway, path, stock.gemini_cli(), {"x-goog-api-key": "k"})
        assert first.status == 200, first.body
        parts = [
            part for event in first.events() for part in event["candidates"][0].get("content", {}).get("parts", ())
        ]
        (asked,) = [part for part in parts if "functionCall" in part]
        answered = {
            "functionResponse": {
                "id": asked["functionCall"].get("id"),
                "name": "run_shell_command",
                "response": {"output": "a.txt"},
            }
        }
        more = ({"role": "model", "parts": parts}, {"role": "user", "parts": [answered]})
        second = post(gateway, path, stock.gemini_cli(*more), {"x-goog-api-key": "k"})
        model = sent(gateway)["model"]
    assert first.headers["content-type"].startswith("text/event-stream")
    assert asked["functionCall"]["args"] == {"command": "ls"}
    texts = [part.get("text", "") for event in second.events() for part in event["candidates"][0]["content"]["parts"]]
    assert ("".join(texts), model) == ("One.", "vendor/stub-1")
    assert b"[DONE]" not in second.body


def test_gemini_streams_an_array_without_alt_sse(tmp_path: Path) -> None:
    """One JSON document, typed as such."""
    path = "/v1beta/models/stub:streamGenerateContent"
    with Gateway(script(ScriptTurn(text="Hello there.")), tmp_path) as gateway:
        answer = post(gateway, path, stock.gemini_cli())
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    texts = [part.get("text", "") for chunk in answer.json() for part in chunk["candidates"][0]["content"]["parts"]]
    assert "".join(texts) == "Hello there."


def test_gemini_clis_router_question(tmp_path: Path) -> None:
    """Upper-case types become those that every upstream knows."""
    answer = '{"reasoning":"easy","model_choice":"flash"}'
    with Gateway(script(ScriptTurn(text=answer)), tmp_path) as gateway:
        got = post(gateway, "/v1beta/models/router:generateContent", stock.gemini_router())
        schema = sent(gateway)["response_format"]["json_schema"]["schema"]
    assert got.json()["candidates"][0]["content"]["parts"][0]["text"] == answer
    assert (schema["type"], schema["properties"]["reasoning"]["type"]) == ("object", "string")


def test_google_genai_replays_chunks_and_results_without_ids(tmp_path: Path) -> None:
    """Every chunk comes back as a content of its own, the last of them empty; results go by order."""
    call: stock.Body = {"functionCall": {"name": "run_shell_command", "args": {"command": "ls"}}}
    result: stock.Body = {"functionResponse": {"name": "run_shell_command", "response": {"result": "a.txt"}}}
    more: list[stock.Body] = [
        {"role": "model", "parts": [{"text": "Let me "}]},
        {"role": "model", "parts": [{"text": "look."}]},
        {"role": "model", "parts": [call]},
        {"role": "model", "parts": [{"text": ""}]},
        {"role": "user", "parts": [result]},
    ]
    turns = script(ScriptTurn(sees=Sees(last_role="tool", contains="a.txt"), text="One."))
    with Gateway(turns, tmp_path) as gateway:
        got = post(gateway, "/v1/models/stub:generateContent", stock.genai_python(*more))
        history = sent(gateway)["messages"]
    assert got.status == 200, got.body
    assert [message["role"] for message in history] == ["user", "assistant", "tool"]
    assert history[1]["content"] == "Let me look."
    assert history[1]["tool_calls"][0]["id"] == history[2]["tool_call_id"]


def test_the_genai_sdk_counts_and_lists(tmp_path: Path) -> None:
    """Counting with the request inside or beside, and models in Gemini's shape."""
    with Gateway(script(), tmp_path) as gateway:
        sdk = genai.Client(api_key="k", http_options={"base_url": gateway.origin})
        count = sdk.models.count_tokens(model="stub", contents="x" * 40)
        names = [model.name for model in sdk.models.list()]
        wrapped = {"generateContentRequest": {"model": "models/stub", **stock.gemini_cli()}}
        larger = post(gateway, "/v1beta/models/stub:countTokens?key=k", wrapped)
    assert count.total_tokens == 14
    assert names == ["models/script"]
    assert (larger.status, larger.headers["x-treadle-estimate"], larger.json()["totalTokens"] > 50) == (
        200,
        "true",
        True,
    )


API_BODIES: dict[str, tuple[str, stock.Body]] = {
    "chat": ("/v1/chat/completions", {"model": "stub", "messages": [{"role": "user", "content": "hi"}]}),
    "responses": ("/v1/responses", {"model": "stub", "input": "hi"}),
    "messages": (
        "/v1/messages",
        {"model": "stub", "max_tokens": 10, "messages": [{"role": "user", "content": "hi"}]},
    ),
    "gemini": ("/v1beta/models/stub:generateContent", {"contents": [{"parts": [{"text": "hi"}]}]}),
}


@pytest.mark.parametrize("api", API_BODIES)
@pytest.mark.parametrize(
    ("upstream", "status"), [(400, 400), (401, 502), (403, 502), (404, 404), (429, 429), (500, 502), (529, 503)]
)
def test_an_upstreams_refusal_keeps_its_meaning_in_every_api(
    api: str, upstream: int, status: int, tmp_path: Path
) -> None:
    """Our key is never the client's fault, so its 401 is none here; and every wait says how long."""
    path, body = API_BODIES[api]
    with Gateway(script(*[ScriptTurn(faults=Faults(status=upstream))] * 9), tmp_path) as gateway:
        answer = post(gateway, path, body)
    assert answer.status == status, answer.body
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    assert answer.json()["error"]["message"]
    assert (answer.json().get("type") == "error") == (api == "messages")
    assert ("status" in answer.json()["error"]) == (api == "gemini")


@pytest.mark.parametrize("protocol", ["messages", "chat"])
def test_the_features_a_client_turns_on_reach_the_upstream_that_knows_them(protocol: str, tmp_path: Path) -> None:
    """Parts of a body mean nothing to Anthropic without their beta; other upstreams never hear of it."""
    turn = ScriptTurn(text="Blue.")
    with Gateway(Script(turns=(turn,)), tmp_path, protocol=protocol) as gateway:
        body = {"model": "script", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"anthropic-beta": "context-management-2025-06-27, x-1"}
        answer = httpx2.post(f"{gateway.url}/messages", json=body, headers=headers)
        assert answer.status_code == 200
        sent = {name.lower(): value for name, value in gateway.upstream.received[0].headers.items()}
    expected = "context-management-2025-06-27,x-1" if protocol == "messages" else None
    assert sent.get("anthropic-beta") == expected


@pytest.mark.parametrize(("strict", "status"), [("true", 400), ("false", 200)])
def test_a_strict_client_would_rather_fail_than_lose_something(strict: str, status: int, tmp_path: Path) -> None:
    """What the upstream cannot take is refused before anything is sent to it, or dropped and said so."""
    with Gateway(Script(turns=(ScriptTurn(text="Blue."),)), tmp_path, protocol="chat") as gateway:
        body = {
            "model": "script",
            "max_tokens": 9,
            "top_k": 5,
            "messages": [{"role": "user", "content": "hi"}],
        }
        answer = httpx2.post(f"{gateway.url}/messages", json=body, headers={"x-treadle-strict-fidelity": strict})
        assert answer.status_code == status, answer.text
        assert len(gateway.upstream.received) == (0 if status == 400 else 1)
        if status == 200:
            assert "dropped" in answer.headers["x-treadle-fidelity"]
