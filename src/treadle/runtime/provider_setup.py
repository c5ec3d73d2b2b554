"""Builds the providers from the settings: endpoints, cassettes, the HTTP client, and the router to their models."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.config import Settings, Upstream
from treadle.config.settings import CASSETTE, DEMO_MODEL, TIERS
from treadle.core.errors import NotFound
from treadle.core.shared_ports import Clock, Meter
from treadle.core.usage import Price, Usage, cost_of
from treadle.engine.ports import Model
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.providers.cassettes import Cassette, CassetteClient, Player, Recorder, Secrets, load_cassette
from treadle.providers.demo_model import DemoModel
from treadle.providers.direct_call_model import DIRECT_MODEL, DirectModel
from treadle.providers.model_router import ModelRoute, Router, match_pattern
from treadle.providers.provider_client import RESPONSE_BYTES_MAX, HttpClient
from treadle.providers.provider_endpoint import Endpoint, Secret
from treadle.providers.resilience import BreakerRules, EndpointGuard, GuardRules, RetryRules
from treadle.runtime.injected_parts import Parts


class Prices:
    """Prices of models from the settings; the first `[[price]]` whose pattern matches is used."""

    def __init__(self, settings: Settings) -> None:
        self._prices = settings.price

    def price(self, model: str) -> Price | None:
        """Return the price of a model, or None if it is unknown."""
        if not self._prices:
            return None
        found = next((row for row in self._prices if match_pattern(row.model, model) is not None), None)
        if found is None:
            return None
        return Price(input=found.input, output=found.output, cached=found.cached, cache_write=found.cache_write)

    def cost(self, model: str, usage: Usage | None) -> float | None:
        """Return the cost of a usage in US dollars, or None if the price or the usage is unknown."""
        price = self.price(model)
        return None if price is None or usage is None else cost_of(usage, price)


def open_cassettes(settings: Settings) -> dict[str, Cassette]:
    """Load the cassettes of the upstreams that replay one, by upstream."""
    return {
        upstream.name: load_cassette(Path(upstream.base_url.removeprefix(CASSETTE)).expanduser(), upstream.name)
        for upstream in settings.upstream
        if upstream.base_url.startswith(CASSETTE)
    }


def make_endpoint(
    upstream: Upstream, env: Mapping[str, str], settings: Settings, cassette: Cassette | None = None
) -> Endpoint:
    """Return the endpoint of an upstream; one that replays a cassette takes address and protocol from it."""
    value = env.get(upstream.key_env, "") if upstream.key_env else ""
    if cassette is not None:
        recorded = cassette.header
        upstream = msgspec.structs.replace(
            upstream,
            base_url=recorded.base_url,
            protocol=recorded.protocol,
            quirks=recorded.quirks,
            models=upstream.models or cassette.models,
        )
    return Endpoint(
        name=upstream.name,
        base_url=upstream.base_url,
        protocol=upstream.protocol,
        key=Secret(value) if value else None,
        key_env=upstream.key_env,
        headers=upstream.headers,
        quirks=upstream.quirks,
        models=upstream.models,
        repair=repair_rules(upstream.repair, settings),
        connect_s=upstream.connect_s,
        idle_s=upstream.idle_s or settings.limits.idle_s,
        streams_max=upstream.streams_max,
        answer_bytes_max=settings.upstreams.answer_bytes_max,
        arguments_bytes_max=settings.upstreams.arguments_bytes_max,
    )


def repair_rules(chosen: tuple[str, ...] | None, settings: Settings) -> RepairRules:
    """Return which tool calls are recovered from text: the chosen tiers and dialects, else the global ones."""
    section = settings.repair
    if chosen is None:
        return RepairRules(tiers=section.tiers, dialects=section.dialects, held_chars_max=section.held_chars_max)
    return RepairRules(
        tiers=tuple(tier for tier in TIERS if tier in chosen),
        dialects=tuple(name for name in chosen if name not in TIERS),
        held_chars_max=section.held_chars_max,
    )


def make_client(
    settings: Settings, endpoints: Sequence[Endpoint], cassettes: Mapping[str, Cassette], clock: Clock
) -> HttpClient:
    """Return the HTTP client for providers, with cassette replay and recording if they are configured."""
    chosen = settings.upstreams
    connections_max, env_proxies = chosen.connections_max, chosen.env_proxies
    # The framing of a stream makes a response several times as long as its answer.
    response_bytes_max = max(RESPONSE_BYTES_MAX, 4 * chosen.answer_bytes_max)
    if not cassettes and not settings.record:
        return HttpClient(
            connections_max=connections_max, env_proxies=env_proxies, response_bytes_max=response_bytes_max
        )
    secrets = Secrets(endpoints)
    speeds = {upstream.name: upstream.cassette_speed for upstream in settings.upstream}
    players = {
        name: Player(cassette, name=name, speed=speeds[name], secrets=secrets, sleep=clock.sleep)
        for name, cassette in cassettes.items()
    }
    folder = Path(settings.record).expanduser()
    recorder = Recorder(folder, secrets, now=clock.now, monotonic=clock.monotonic) if settings.record else None
    return CassetteClient(
        players=players,
        recorder=recorder,
        connections_max=connections_max,
        env_proxies=env_proxies,
        response_bytes_max=response_bytes_max,
    )


def make_router(
    settings: Settings,
    endpoints: Sequence[Endpoint],
    client: HttpClient,
    model: Model | None,
    parts: Parts,
    meter: Meter | None = None,
) -> Router:
    """Return the router to the configured endpoints, the injected models, and the demo model if there is no other."""
    models = dict(parts.models)
    default = settings.model
    if model is not None:
        default = default if default and default != DEMO_MODEL else "model"
        return Router(client=client, ids=parts.ids, models={default: model, **models}, default=default)
    if not endpoints and not models:
        models[DEMO_MODEL] = DemoModel(parts.ids, delay_s=parts.demo_delay_s, sleep=parts.clock.sleep)
    routes = [
        ModelRoute(
            model=route.model,
            upstream=route.upstream,
            rename=route.rename,
            repair=None if route.repair is None else repair_rules(route.repair, settings),
            fallback=route.fallback,
        )
        for route in settings.route
    ]
    make_guard = _guard_maker(settings, parts.clock, meter)
    return Router(
        [make_guard(endpoint) for endpoint in endpoints],
        client=client,
        ids=parts.ids,
        routes=routes,
        models=models,
        default=default,
    )


def _guard_maker(settings: Settings, clock: Clock, meter: Meter | None) -> Callable[[Endpoint], EndpointGuard]:
    """Return the factory of endpoint guards."""
    chosen = settings.upstreams
    retry = RetryRules(
        retries=chosen.retries,
        backoff_s=chosen.backoff_s,
        retry_after_s_max=chosen.retry_after_s_max,
        share=chosen.retry_share,
    )
    breaker = BreakerRules(
        calls_min=chosen.breaker_calls,
        share=chosen.breaker_share,
        window_s=chosen.breaker_window_s,
        open_s=chosen.breaker_open_s,
        open_s_max=chosen.breaker_open_s * 12,
    )

    def make(endpoint: Endpoint) -> EndpointGuard:
        rules = GuardRules(retry=retry, breaker=breaker, streams_max=endpoint.streams_max, queue_s=chosen.queue_s)
        return EndpointGuard(endpoint, rules, clock=clock, meter=meter)

    return make


class ConfiguredModels:
    """The router's models, and the model of direct calls if they are served."""

    def __init__(self, router: Router, *, serves_calls: bool) -> None:
        self._router = router
        self._serves_calls = serves_calls

    def model_for(self, name: str) -> Model:
        """Return the model of a name. Raises: NotFound."""
        if name != DIRECT_MODEL:
            return self._router.model_for(name)
        if not self._serves_calls:
            raise NotFound(f"no upstream serves the model {name!r}", code="model_not_found", param="model")
        return DirectModel()
