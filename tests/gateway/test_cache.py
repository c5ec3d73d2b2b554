"""Answers given again over real HTTP: on every API, whole and streamed, and said so in a header."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest

from gateway.apis import APIS, post, text_of
from gateway.gateway import Gateway
from treadle.config.settings import CacheSection
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.providers.fakes.scripted_reply import ReplyCall
from treadle.tools import Tool, tool

ANSWERS = Script(turns=(ScriptTurn(text="It is 17 °C in Paris."), ScriptTurn(text="It rains.")))
ON = CacheSection(enabled=True)
HEADER = "x-treadle-cache"


@tool(name="get_weather", effect="read")
def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"17 °C in {city}"


@tool(name="set_weather", effect="idempotent")
def set_weather(city: str) -> str:
    """Make the weather."""
    return f"rain in {city}"


@pytest.fixture
def cached(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that gives answers again."""
    with Gateway(ANSWERS, tmp_path, cache=ON) as gateway:
        yield gateway


def said(api: str, answer: httpx2.Response, *, stream: bool) -> str:
    """Return the text of an answer, and all else of one that is not streamed."""
    assert answer.status_code == 200, answer.text
    return text_of(api, answer.content) if stream else answer.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_the_second_of_two_equal_requests_is_a_hit(cached: Gateway, api: str, stream: bool) -> None:
    """The upstream is asked once; the answers are of two runs, and say the same."""
    first, second = (post(cached, api, stream=stream) for _ in range(2))
    assert [each.headers[HEADER] for each in (first, second)] == ["miss", "hit"]
    assert first.headers["x-treadle-run"] != second.headers["x-treadle-run"]
    assert "17 °C" in said(api, second, stream=stream)
    assert len(cached.upstream.received) == 1
    if stream:
        assert said(api, first, stream=True) == said(api, second, stream=True)
    assert second.headers["x-treadle-fidelity"] == first.headers["x-treadle-fidelity"]


def test_whole_and_streamed_are_one_plan(cached: Gateway) -> None:
    """How the client wants to be answered is no part of what the model is asked."""
    assert post(cached, "responses", stream=True).headers[HEADER] == "miss"
    assert post(cached, "responses").headers[HEADER] == "hit"


@pytest.mark.parametrize("words", ["no-cache", "no-store", "max-age=0, No-Cache"])
def test_a_client_can_have_the_model_asked(cached: Gateway, words: str) -> None:
    """By the header that HTTP has for it."""
    post(cached, "chat")
    asked = post(cached, "chat", headers={"cache-control": words})
    assert (HEADER in asked.headers, "It rains." in asked.text) == (False, True)


def test_several_choices_are_asked_for(cached: Gateway) -> None:
    """Two equal ones would be of no use."""
    client = openai.OpenAI(base_url=cached.url, api_key="x", max_retries=0)
    answer = client.chat.completions.create(model="script", messages=[{"role": "user", "content": "?"}], n=2)
    assert len({choice.message.content for choice in answer.choices}) == 2


def test_a_run_under_the_same_idempotency_key_is_the_same_run(cached: Gateway) -> None:
    """To come back is not to ask again, so its answer is told as it was: no hit."""
    key = {"idempotency-key": "one"}
    first, second = (post(cached, "chat", headers=key) for _ in range(2))
    assert first.headers["x-treadle-run"] == second.headers["x-treadle-run"]
    assert (first.headers[HEADER], HEADER in second.headers) == ("miss", False)
    assert first.content == second.content


def test_without_the_setting_there_is_no_cache_and_no_header(tmp_path: Path) -> None:
    """Off is the default."""
    with Gateway(ANSWERS, tmp_path) as gateway:
        answers = [post(gateway, "chat") for _ in range(2)]
        assert [HEADER in each.headers for each in answers] == [False, False]
        assert len(gateway.upstream.received) == 2


def test_hits_and_misses_are_counted(cached: Gateway) -> None:
    """And the trace of the run says whose answer it got."""
    first, *_, last = [post(cached, "chat") for _ in range(3)]
    metrics = httpx2.get(f"{cached.origin}/metrics", timeout=20).text
    assert 'treadle_cached_answers_total{outcome="hit"} 2.0' in metrics
    assert 'treadle_cached_answers_total{outcome="miss"} 1.0' in metrics
    trace = httpx2.get(f"{cached.origin}/treadle/v1/runs/{last.headers['x-treadle-run']}", timeout=20).json()
    notes = [entry["data"] for entry in trace["entries"] if entry["kind"] == "note"]
    assert [each["field"] for each in notes if each["code"] == "cache_hit"] == [first.headers["x-treadle-run"]]


@pytest.mark.parametrize(("offered", "asked"), [(get_weather, 2), (set_weather, 4)], ids=["read", "idempotent"])
def test_tools_decide_whether_answers_are_given_again(tmp_path: Path, offered: Tool, asked: int) -> None:
    """With tools that only read both model calls are found; with one that does more none is looked for."""
    calls = ScriptTurn(calls=(ReplyCall(name=offered.name, args={"city": "Paris"}, id="call_paris"),))
    script = Script(turns=(calls, ScriptTurn(text="Done.")) * 2)
    with Gateway(script, tmp_path, tools=[offered], cache=ON) as gateway:
        answers = [post(gateway, "responses") for _ in range(2)]
        assert all("Done." in each.text for each in answers)
        assert len(gateway.upstream.received) == asked
        results = [each.text.count("Paris") for each in answers]
        assert results[0] == results[1]


def test_a_deleted_response_is_not_given_again(cached: Gateway) -> None:
    """What a client deletes is gone, here too."""
    first = post(cached, "responses")
    assert post(cached, "responses").headers[HEADER] == "hit"
    gone = httpx2.delete(f"{cached.url}/responses/{first.json()['id']}", timeout=20)
    assert gone.status_code == 200
    again = post(cached, "responses")
    assert (again.headers[HEADER], "It rains." in again.text) == ("miss", True)
