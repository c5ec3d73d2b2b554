"""Keys as the vendors' SDKs meet them: a wrong one, one that is used up, and two tenants of one gateway."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from gateway.gateway import Gateway
from treadle.access.keyring import Keyring
from treadle.config import Settings, StoreSection
from treadle.config.access_settings import KeysSection
from treadle.config.settings import Price
from treadle.core.usage import Usage
from treadle.journal.keys_interface import KeyBudget, KeyGrant, KeyRates
from treadle.providers.fakes.scripted_model import Script, ScriptTurn
from treadle.server.auth.installation_secret import secret_for, stored_secret

ASK: Any = [{"role": "user", "content": "hi"}]
TALK = Script(turns=(ScriptTurn(text="Hello.", usage=Usage(input_tokens=10, output_tokens=5)),) * 8)
PRICE = Price(model="*", input=1_000_000.0, output=0.0)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    """A gateway that wants keys and knows a price."""
    with Gateway(TALK, tmp_path, keys=KeysSection(required="always"), price=(PRICE,)) as opened:
        yield opened


def key(gateway: Gateway, tmp_path: Path, name: str, **grant: Any) -> str:
    """Make a key as another process would: with the secret beside the journal."""
    settings = Settings(store=StoreSection(url=f"sqlite:///{tmp_path}/treadle.db"))
    runtime = gateway.runtime
    ring = Keyring(
        runtime.store.keys, secret_for("keys", stored_secret(settings)), clock=runtime.clock, ids=runtime.ids
    )
    return gateway.ask(ring.create(name, KeyGrant(**grant)))[1].text


class Sdks:
    """The vendors' SDKs, which try nothing again unless told, closed with the test."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._open = ExitStack()

    def close(self) -> None:
        """Close their connections."""
        self._open.close()

    def openai(self, text: str, retries: int = 0) -> openai.OpenAI:
        """Return OpenAI's."""
        made = openai.OpenAI(base_url=self._gateway.url, api_key=text, max_retries=retries)
        self._open.callback(made.close)
        return made

    def anthropic(self, text: str) -> anthropic.Anthropic:
        """Return Anthropic's."""
        made = anthropic.Anthropic(base_url=self._gateway.origin, api_key=text, max_retries=0)
        self._open.callback(made.close)
        return made

    def google(self, text: str) -> genai.Client:
        """Return Google's."""
        made = genai.Client(api_key=text, http_options=genai_types.HttpOptions(base_url=self._gateway.origin))
        self._open.callback(made.close)
        return made


@pytest.fixture
def sdks(gateway: Gateway) -> Iterator[Sdks]:
    """The SDKs at the gateway."""
    made = Sdks(gateway)
    yield made
    made.close()


def ask_all(sdks: Sdks, text: str) -> list[Any]:
    """Ask through each SDK and return what each heard."""
    chat = sdks.openai(text).chat.completions.create(model="m", messages=ASK)
    response = sdks.openai(text).responses.create(model="m", input="hi")
    message: Any = sdks.anthropic(text).messages.create(model="m", messages=ASK, max_tokens=9)
    made = sdks.google(text).models.generate_content(model="m", contents="hi")
    return [chat.choices[0].message.content, response.output_text, message.content[0].text, made.text]


def test_every_sdk_brings_its_key_in_its_own_way(gateway: Gateway, sdks: Sdks, tmp_path: Path) -> None:
    """And is answered."""
    assert ask_all(sdks, key(gateway, tmp_path, "ada")) == ["Hello."] * 4


@pytest.mark.parametrize("wrong", ["sk-wrong", "tr_" + "0" * 16 + "_" + "0" * 64])
def test_a_wrong_key_is_each_sdks_own_error(gateway: Gateway, sdks: Sdks, wrong: str) -> None:
    """The one that its users catch; nothing reaches the upstream."""
    with pytest.raises(openai.AuthenticationError, match="not one of this server"):
        sdks.openai(wrong).chat.completions.create(model="m", messages=ASK)
    with pytest.raises(openai.AuthenticationError):
        list(sdks.openai(wrong).responses.create(model="m", input="hi", stream=True))
    with pytest.raises(anthropic.AuthenticationError):
        sdks.anthropic(wrong).messages.create(model="m", messages=ASK, max_tokens=9)
    with pytest.raises(genai_errors.ClientError) as caught:
        sdks.google(wrong).models.generate_content(model="m", contents="hi")
    assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")
    assert gateway.upstream.received == []


def test_too_much_is_each_sdks_rate_limit_error(gateway: Gateway, sdks: Sdks, tmp_path: Path) -> None:
    """With the time to come back where that SDK looks for it."""
    text = key(gateway, tmp_path, "one", rates=KeyRates(requests_per_min=1))
    sdks.openai(text).chat.completions.create(model="m", messages=ASK)
    with pytest.raises(openai.RateLimitError) as refused:
        sdks.openai(text).responses.create(model="m", input="hi")
    assert 0 < int(refused.value.response.headers["retry-after"]) <= 60
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(anthropic.RateLimitError) as told:
        sdks.anthropic(text).messages.create(model="m", messages=ASK, max_tokens=9)
    assert told.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    with pytest.raises(genai_errors.ClientError) as caught:
        sdks.google(text).models.generate_content(model="m", contents="hi")
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")


def test_a_scope_is_each_sdks_permission_error(gateway: Gateway, sdks: Sdks, tmp_path: Path) -> None:
    """Of the API, and of the model."""
    text = key(gateway, tmp_path, "narrow", apis=("messages",), models=("claude-*",))
    with pytest.raises(openai.PermissionDeniedError):
        sdks.openai(text).chat.completions.create(model="claude-1", messages=ASK)
    with pytest.raises(anthropic.PermissionDeniedError, match="may not use the model"):
        sdks.anthropic(text).messages.create(model="m", messages=ASK, max_tokens=9)
    sdks.anthropic(text).messages.create(model="claude-1", messages=ASK, max_tokens=9)


def test_a_budget_in_money_ends_with_the_run_that_uses_it_up(gateway: Gateway, sdks: Sdks, tmp_path: Path) -> None:
    """Ten tokens at a dollar each; an SDK that would try again is told not to."""
    text = key(gateway, tmp_path, "poor", budget=KeyBudget(usd=10.0, period="month"))
    patient = sdks.openai(text, retries=2)
    patient.chat.completions.create(model="m", messages=ASK)
    with pytest.raises(openai.RateLimitError, match=r"\$10.00 of \$10.00"):
        patient.chat.completions.create(model="m", messages=ASK)
    assert len(gateway.upstream.received) == 1


def test_two_tenants_do_not_meet(gateway: Gateway, sdks: Sdks, tmp_path: Path) -> None:
    """A response of one is not found by the other, by name or as what to go on from."""
    ada, eve = (sdks.openai(key(gateway, tmp_path, name)) for name in ("ada", "eve"))
    mine = ada.responses.create(model="m", input="hi")
    with pytest.raises(openai.NotFoundError):
        eve.responses.retrieve(mine.id)
    with pytest.raises(openai.NotFoundError):
        eve.responses.create(model="m", input="and?", previous_response_id=mine.id)
    with pytest.raises(openai.NotFoundError):
        eve.responses.delete(mine.id)
    assert ada.responses.retrieve(mine.id).id == mine.id
