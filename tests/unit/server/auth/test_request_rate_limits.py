"""How many requests come in: of an address, of a key, of an API; and how each API is told what is left."""

import re
from typing import Any

import pytest

from treadle.config.access_settings import ApiRate, KeysSection, RatesSection
from treadle.journal.keys_interface import KeyBudget, KeyRates
from treadle.server.app import App
from treadle.server.auth.request_rate_limits import address_group, without_port
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.keys import ask, make_key
from unit.server.visit import JSON_TYPE, LOCAL, Visit

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}]}
MESSAGES = {**CHAT, "max_tokens": 10}
RESPONSES = {"model": "demo", "input": "hi"}
GEMINI = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
GEMINI_PATH = "/v1beta/models/demo:generateContent"
ALWAYS = KeysSection(required="always")


async def come(app: App, peer: str, path: str = "/v1/models", forwarded: str = "") -> Visit:
    """Make a request from an address."""
    headers = [LOCAL, JSON_TYPE, *([("x-forwarded-for", forwarded)] if forwarded else [])]
    visit = Visit(app, "GET", path, headers=headers)
    visit.scope["client"] = (peer, 4000)
    return await visit.run()


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/v1/chat/completions", CHAT, ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests")),
        ("/v1/responses", RESPONSES, ("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests")),
        ("/v1/messages", MESSAGES, ("anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining")),
        (GEMINI_PATH, GEMINI, ("ratelimit-limit", "ratelimit-remaining")),
        ("/treadle/v1/runs", {"input": "hi"}, ("ratelimit-limit", "ratelimit-remaining")),
    ],
)
async def test_a_key_has_its_requests_per_minute(
    open_app: OpenApp, path: str, body: Any, names: tuple[str, str]
) -> None:
    """Two, and a third is 429 in the API's envelope, with what was left all along and when to come back."""
    async with open_app(keys=ALWAYS) as app:
        key = await make_key(app, "two", rates=KeyRates(requests_per_min=2))
        other = await make_key(app, "free")
        left = []
        for _ in range(2):
            visit = await ask(app, "POST", path, key=key, body=body)
            assert visit.status in (200, 201)
            left.append(tuple(visit.headers[name] for name in names))
        assert left == [("2", "1"), ("2", "0")]
        refused = await ask(app, "POST", path, key=key, body=body)
        assert refused.status == 429
        assert 0 < int(refused.headers["retry-after"]) <= 60
        assert refused.headers[names[1]] == "0"
        assert b"2 requests per minute" in refused.body
        assert (await ask(app, "POST", path, key=other, body=body)).status in (200, 201)


async def test_resets_are_told_as_each_api_tells_them(open_app: OpenApp) -> None:
    """A span for OpenAI's, a time for Anthropic's, seconds for the others."""
    async with open_app(rates=RatesSection(requests_per_min=100, tokens_per_min=5_000)) as app:
        chat = (await ask(app, "POST", "/v1/chat/completions", body=CHAT)).headers
        assert re.fullmatch(r"\d+s", chat["x-ratelimit-reset-requests"])
        assert chat["x-ratelimit-limit-tokens"] == "5000"
        messages = (await ask(app, "POST", "/v1/messages", body=MESSAGES)).headers
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", messages["anthropic-ratelimit-requests-reset"])
        assert messages["anthropic-ratelimit-tokens-limit"] == "5000"
        own = (await ask(app, "GET", "/treadle/v1/runs")).headers
        assert own["ratelimit-reset"].isdigit()


async def test_an_api_may_have_a_limit_of_its_own(open_app: OpenApp) -> None:
    """It does not count for the others."""
    async with open_app(rate=(ApiRate(api="responses", requests_per_min=1),)) as app:
        statuses = [(await ask(app, "POST", "/v1/responses", body=RESPONSES)).status for _ in range(2)]
        assert statuses == [200, 429]
        assert (await ask(app, "POST", "/v1/chat/completions", body=CHAT)).status == 200


async def test_an_address_has_its_requests_whatever_keys_it_brings(open_app: OpenApp) -> None:
    """Also those that are refused; whether the server lives may always be asked."""
    rates = RatesSection(address_requests_per_min=2)
    async with open_app(keys=ALWAYS, rates=rates) as app:
        statuses = [(await come(app, "192.0.2.1")).status for _ in range(3)]
        assert statuses == [401, 401, 429]
        assert (await come(app, "192.0.2.2")).status == 401
        assert (await come(app, "192.0.2.1", "/healthz")).status == 200


async def test_only_trusted_proxies_are_believed(open_app: OpenApp) -> None:
    """What a stranger says of where it comes from changes nothing; behind a proxy each client has its own count."""
    rates = RatesSection(address_requests_per_min=1, proxies=("10.0.0.0/8",))
    async with open_app(rates=rates) as app:
        assert (await come(app, "192.0.2.1", forwarded="198.51.100.1")).status == 200
        assert (await come(app, "192.0.2.1", forwarded="198.51.100.2")).status == 429
        assert (await come(app, "10.0.0.1", forwarded="203.0.113.1")).status == 200
        assert (await come(app, "10.0.0.1", forwarded="spoofed, 203.0.113.1, 10.9.9.9")).status == 429
        assert (await come(app, "10.0.0.1", forwarded="203.0.113.2")).status == 200


async def test_a_proxy_is_known_by_either_spelling_and_a_port_behind_an_address_does_not_count(
    open_app: OpenApp,
) -> None:
    """A socket for both families shows IPv4 peers as mapped ones; some proxies write the client's port too."""
    rates = RatesSection(address_requests_per_min=1, proxies=("10.0.0.0/8",))
    async with open_app(rates=rates) as app:
        assert (await come(app, "::ffff:10.0.0.1", forwarded="203.0.113.1:5001")).status == 200
        assert (await come(app, "::ffff:10.0.0.1", forwarded="203.0.113.1:5002")).status == 429
        assert (await come(app, "::ffff:10.0.0.1", forwarded="203.0.113.2")).status == 200


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:80", "192.0.2.1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("unknown", "unknown"),
        ("192.0.2.1:x", "192.0.2.1:x"),
    ],
)
def test_an_address_is_read_without_its_port(text: str, address: str) -> None:
    """As proxies write it, with and without brackets."""
    assert without_port(text) == address


async def test_the_tightest_of_all_limits_is_told(open_app: OpenApp) -> None:
    """Also where that is the address's."""
    rates = RatesSection(address_requests_per_min=3, requests_per_min=100)
    async with open_app(rates=rates, rate=(ApiRate(api="chat", requests_per_min=50),)) as app:
        visit = await ask(app, "POST", "/v1/chat/completions", body=CHAT)
        assert visit.headers["x-ratelimit-limit-requests"] == "3"
        assert visit.headers["x-ratelimit-remaining-requests"] == "2"


@pytest.mark.parametrize(
    ("of_all", "of_chat", "told"),
    [
        (9, 1, "1 requests per minute to the chat API"),
        (1, 9, "1 requests per minute is"),
        (1, 1, "1 requests per minute is"),
    ],
)
async def test_a_refusal_names_the_limit_that_was_reached(
    open_app: OpenApp, of_all: int, of_chat: int, told: str
) -> None:
    """That of the API, or that of all."""
    rate = (ApiRate(api="chat", requests_per_min=of_chat),)
    async with open_app(rates=RatesSection(requests_per_min=of_all), rate=rate) as app:
        visits = [await ask(app, "POST", "/v1/chat/completions", body=CHAT) for _ in range(2)]
        assert [visit.status for visit in visits] == [200, 429]
        assert told in visits[1].json()["error"]["message"]


async def test_without_trusted_proxies_the_header_is_not_looked_at(open_app: OpenApp) -> None:
    """Not even from this machine."""
    async with open_app(rates=RatesSection(address_requests_per_min=1)) as app:
        assert (await come(app, "127.0.0.1", forwarded="198.51.100.1")).status == 200
        assert (await come(app, "127.0.0.1", forwarded="198.51.100.2")).status == 429


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", ""),
        ("x" * 100, "x" * 64),
    ],
)
def test_whoever_has_a_network_is_one(text: str, counted: str) -> None:
    """Of IPv6 the network counts; what is no address is cut."""
    assert address_group(text) == counted


async def test_tokens_are_counted_when_a_run_has_ended(open_app: OpenApp) -> None:
    """The run that goes over the limit is finished; the next one waits for the minute to pass."""
    async with open_app(keys=ALWAYS) as app:
        key = await make_key(app, "few", rates=KeyRates(tokens_per_min=1))
        first = await ask(app, "POST", "/v1/responses", key=key, body=RESPONSES)
        assert (first.status, first.headers["x-ratelimit-remaining-tokens"]) == (200, "1")
        refused = await ask(app, "POST", "/v1/responses", key=key, body=RESPONSES)
        assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_tokens")
        assert 0 < int(refused.headers["retry-after"]) <= 60
        reading = await ask(app, "GET", f"/v1/responses/{first.json()['id']}", key=key)
        assert reading.status == 200


async def test_a_budget_that_is_used_up_is_told_once_and_for_all(open_app: OpenApp) -> None:
    """429 with a word that trying again is of no use; what was begun under an idempotency key is still attached to."""
    async with open_app(keys=ALWAYS) as app:
        key = await make_key(app, "poor", budget=KeyBudget(tokens=1))
        header = [("idempotency-key", "first")]
        first = await ask(app, "POST", "/v1/responses", key=key, body=RESPONSES, headers=header)
        refused = await ask(app, "POST", "/v1/responses", key=key, body=RESPONSES)
        assert (first.status, refused.status) == (200, 429)
        assert (refused.json()["error"]["code"], refused.headers["x-should-retry"]) == ("budget_exceeded", "false")
        again = await ask(app, "POST", "/v1/responses", key=key, body=RESPONSES, headers=header)
        assert (again.status, again.json()["id"]) == (200, first.json()["id"])
        admin = await make_key(app, "admin", role="admin")
        listed = (await ask(app, "GET", "/treadle/v1/keys", key=admin)).json()["keys"]
        used = next(each["used"]["total"] for each in listed if each["name"] == "poor")
        assert used["runs"] == 1
        assert used["input_tokens"] + used["output_tokens"] > 0


async def test_runs_at_once_are_bounded_while_they_go_on(open_app: OpenApp) -> None:
    """The second is refused, also as a turn, a fork or an answer with two choices; then there is room again."""
    model = HeldModel()
    async with open_app(model=model, keys=ALWAYS) as app:
        key = await make_key(app, "one", rates=KeyRates(runs_max=1))
        begun = await ask(app, "POST", "/treadle/v1/runs", key=key, body={"input": "hi", "model": "demo"})
        assert begun.status == 201
        refused = await ask(app, "POST", "/v1/chat/completions", key=key, body=CHAT)
        assert (refused.status, refused.json()["error"]["code"]) == (429, "rate_limit_runs")
        assert refused.headers["retry-after"] == "1"
        session = (await ask(app, "POST", "/treadle/v1/sessions", key=key, body={"name": "s"})).json()["id"]
        turn = await ask(app, "POST", f"/treadle/v1/sessions/{session}/turns", key=key, body={"input": "hi"})
        assert turn.status == 429
        model.released.set()
        await ask(app, "GET", f"/treadle/v1/runs/{begun.json()['id']}/events", key=key)
        handle = app.service.runtime.runs.find_live(begun.json()["id"])
        if handle is not None:
            await handle.wait()
        assert (await ask(app, "POST", "/v1/chat/completions", key=key, body={**CHAT, "n": 2})).status == 429
        assert (await ask(app, "POST", "/v1/chat/completions", key=key, body=CHAT)).status == 200
