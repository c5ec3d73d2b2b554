"""Checks of upstreams: each has its key, answers, and serves the default model. Local ones are asked unless
--offline is given, others only with --online."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from treadle.cli.doctor.check_result import Check, broken
from treadle.config import Settings, Upstream
from treadle.config.cross_checks import is_loopback
from treadle.config.environment import PROVIDERS
from treadle.config.error_messages import nearest
from treadle.config.settings import CASSETTE, DEMO_MODEL
from treadle.core.errors import ConfigError
from treadle.protocols.protocol_registry import PROTOCOLS

PROBE_S = 3.0
"""How long an upstream may take to answer."""
ANSWER_BYTES_MAX = 1_048_576
Asking = Literal["none", "local", "all"]


def check_upstreams(settings: Settings, env: Mapping[str, str], *, asking: Asking = "all") -> list[Check]:
    """Check all upstreams at the same time."""
    if not settings.upstream and settings.model != DEMO_MODEL:
        advice = "set a provider's key such as OPENAI_API_KEY, or write an [[upstream]]; -m demo needs neither"
        detail = f"none, and so nobody serves the model {settings.model!r}"
        return [Check(name="upstream", state="broken", detail=detail, advice=advice)]
    if not settings.upstream:
        keys = ", ".join(provider.key_env for provider in PROVIDERS)
        advice = f"for a real model set one of {keys}, OPENAI_BASE_URL for one without a key, or write an [[upstream]]"
        return [Check(name="upstream", state="note", detail="none: the demo model answers", advice=advice)]
    with ThreadPoolExecutor(min(16, len(settings.upstream))) as pool:
        asked = [pool.submit(check_upstream, each, env, settings, asking=asking) for each in settings.upstream]
        return [future.result() for future in asked]


def check_upstream(upstream: Upstream, env: Mapping[str, str], settings: Settings, *, asking: Asking) -> Check:
    """Check whether an upstream has its key, answers, and knows the model of the settings."""
    name = f"upstream {upstream.name}"
    key = env.get(upstream.key_env, "") if upstream.key_env else ""
    if upstream.key_env and not key:
        advice = f"export {upstream.key_env}=…"
        return Check(name=name, state="broken", detail=f"{upstream.key_env} is unset", advice=advice)
    if upstream.base_url.startswith(CASSETTE):
        return _check_cassette(name, upstream)
    key_text = f"{upstream.key_env} is set" if upstream.key_env else f"without a key{_unset_key(upstream, env)}"
    if asking == "none":
        return Check(name=name, state="note", detail=f"{upstream.base_url}, {key_text}, not asked")
    if asking == "local" and not is_loopback(urlsplit(upstream.base_url).hostname or ""):
        detail = f"{upstream.base_url}, {key_text}, not asked"
        return Check(name=name, state="note", detail=detail, advice="--online asks it for its models")
    return _probe(name, upstream, key, key_text, settings.default_model)


def _check_cassette(name: str, upstream: Upstream) -> Check:
    """Check whether a recording can be played."""
    from treadle.providers.cassettes import load_cassette

    try:
        cassette = load_cassette(Path(upstream.base_url.removeprefix(CASSETTE)).expanduser(), upstream.name)
    except ConfigError as error:
        return broken(name, error)
    return Check(name=name, state="ok", detail=f"{upstream.base_url}, {len(cassette.calls)} recorded calls")


def _unset_key(upstream: Upstream, env: Mapping[str, str]) -> str:
    """Name the variable that would give a key to an upstream made by its address alone."""
    names = [each.key_env for each in PROVIDERS if each.name == upstream.name and not env.get(each.key_env)]
    return f" ({names[0]} is unset)" if names else ""


def _probe(name: str, upstream: Upstream, key: str, key_text: str, model: str) -> Check:
    row = PROTOCOLS[upstream.protocol]
    headers = {**upstream.headers, **({**row.headers, **row.key_headers(key)} if key else {})}
    request = urllib.request.Request(f"{upstream.base_url.rstrip('/')}/models", headers=headers)
    body = b""
    try:
        with urllib.request.urlopen(request, timeout=PROBE_S) as response:
            status = response.status
            body = response.read(ANSWER_BYTES_MAX)
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        advice = "check base_url, the network, and whether the server runs"
        return Check(name=name, state="broken", detail=f"{upstream.base_url}, {key_text}: {reason}", advice=advice)
    if status in (401, 403):
        advice = f"the key in {upstream.key_env} is refused" if upstream.key_env else "it wants a key: set key_env"
        return Check(name=name, state="broken", detail=f"{upstream.base_url} answers {status}", advice=advice)
    detail = f"{upstream.base_url} answers, {key_text}"
    return _check_model(Check(name=name, state="ok", detail=detail), model, list_models(body))


def _check_model(check: Check, model: str, served: list[str]) -> Check:
    """Report when an upstream lists its models and the default model is not among them."""
    if not model or not served or model.rpartition("/")[2] in served or model in served:
        return check
    near = nearest(model, served)
    advice = f"did you mean {near}?" if near else f"it has {', '.join(served[:5])}{' …' if len(served) > 5 else ''}"
    detail = f"{check.detail}; it does not list the model {model!r}"
    return Check(name=check.name, state="note", detail=detail, advice=f"{advice} (default_model, or -m)")


def list_models(body: bytes) -> list[str]:
    """Return the names of the models that an upstream lists, in whichever API's manner; none where it is unclear."""
    for kind in (_Listed, _Named):
        try:
            return [name.removeprefix("models/") for name in msgspec.json.decode(body, type=kind).names]
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return []


class _Model(msgspec.Struct):
    id: str


class _Listed(msgspec.Struct):
    """The model list of OpenAI and Anthropic."""

    data: list[_Model]

    @property
    def names(self) -> list[str]:
        """Return the names of the models."""
        return [model.id for model in self.data]


class _NamedModel(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    """The model list of Google."""

    models: list[_NamedModel]

    @property
    def names(self) -> list[str]:
        """Return the names of the models."""
        return [model.name for model in self.models]
