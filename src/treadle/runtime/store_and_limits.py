"""Builds from the settings the store, limits, runner and tracer, and lists the secrets that logs must not show."""

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.access.rate_limiter import RateLimiter
from treadle.access.sliding_window import SlidingWindow
from treadle.config import Settings, sqlite_path
from treadle.config import mcp_settings as mcp
from treadle.config.loader import data_directory
from treadle.core.errors import ConfigError
from treadle.core.shared_ports import Clock
from treadle.engine.limits import Limits
from treadle.journal.journal_interface import Store
from treadle.journal.keys_interface import KeyRates
from treadle.journal.open_store import open_store
from treadle.journal.store_url import MEMORY, PostgresAddress, is_postgres
from treadle.providers.provider_endpoint import Endpoint
from treadle.runs import RunsOptions
from treadle.runs.approvals.durable_approver import ApproverRules
from treadle.runs.response_cache import CacheRules
from treadle.runs.runners.runner_interface import RunDriver as RunsRunner
from treadle.runs.runners.runner_interface import RunnerTerms
from treadle.runs.runners.store_runners import LocalRunner, SharedStoreRunner
from treadle.runs.tool_offers import OfferRules
from treadle.telemetry import Metrics
from treadle.tools import RunnerLimits

if TYPE_CHECKING:
    from treadle.telemetry.spans import Spans

SECRET_VARIABLES = ("TREADLE_SECRET", "TREADLE_LOGIN_SECRET")
OTLP_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
LIMIT_NOTICE_BYTES = 256
"""Room reserved in a result for a notice about a limit, so that both fit into the cap."""
STORE_NAME = "treadle.db"


def make_store(settings: Settings, clock: Clock, env: Mapping[str, str]) -> Store:
    """Return the store of the settings, not yet open. Raises: ConfigError."""
    url = settings.store.url
    if settings.store.persistence == "off":
        return open_store(MEMORY, clock=clock.now, monotonic=clock.monotonic)
    if is_postgres(url):
        return open_store(url, clock=clock.now, password=env.get(settings.store.password_env, ""))
    path = sqlite_path(url) if url else data_directory(env) / STORE_NAME
    return open_store(str(path), clock=clock.now, monotonic=clock.monotonic)


def known_secrets(settings: Settings, endpoints: Sequence[Endpoint], env: Mapping[str, str]) -> list[str]:
    """Return the secrets that logs must not show: provider keys, passwords, and Treadle's own secrets."""
    keys = [endpoint.key.reveal() for endpoint in endpoints if endpoint.key is not None]
    keys += mcp.secrets_of(settings, env)
    keys += [env[name] for name in (settings.rates.password_env, *SECRET_VARIABLES) if env.get(name)]
    if not is_postgres(settings.store.url):
        return keys
    address = PostgresAddress(settings.store.url, password=env.get(settings.store.password_env, ""))
    return [*keys, *address.secrets]


def approver_rules(settings: Settings, *, is_attended: bool) -> ApproverRules:
    """Return how approvals are asked for; if no person can be asked, only stored rules decide."""
    asked = settings.approvals
    return ApproverRules(
        wait_s=asked.wait_s,
        stored_s=asked.stored_s,
        is_open=asked.enabled and is_attended,
        project=asked.project or str(Path.cwd()),
    )


def account_limits(settings: Settings) -> KeyRates:
    """Return the default rates of a key."""
    rates = settings.rates
    return KeyRates(
        requests_per_min=rates.requests_per_min, tokens_per_min=rates.tokens_per_min, runs_max=rates.runs_max
    )


def make_limiter(
    settings: Settings, clock: Clock, metrics: Metrics, env: Mapping[str, str], workers: int = 1
) -> RateLimiter:
    """Return the rate limiter: local, or shared through the Redis of the settings.

    Without Redis each of several workers gets an equal part of a limit.

    Raises: ConfigError, if the Redis library is missing.
    """
    rates, local = settings.rates, SlidingWindow(clock.monotonic)
    if not rates.url:
        return RateLimiter(local, clock.monotonic, replicas=workers)
    try:
        from treadle.access.redis_counters import RedisCounter
    except ImportError as error:
        message = f"rates.url needs a library that is not installed ({error.name})"
        raise ConfigError(message, param="rates.url", hint="pip install 'treadle[redis]'") from error
    shared = RedisCounter(rates.url, env.get(rates.password_env, ""))
    return RateLimiter(
        local, clock.monotonic, shared=shared, replicas=rates.replicas * workers, fell_back=metrics.rates_fell_back
    )


def make_tracer(settings: Settings, env: Mapping[str, str]) -> "Spans | None":
    """Return the span exporter, or None if spans are off.

    Raises: ConfigError, if there is no endpoint, or the OpenTelemetry library is missing.
    """
    telemetry = settings.telemetry
    if not telemetry.spans:
        return None
    endpoint = telemetry.otlp_endpoint or next((env[name] for name in OTLP_VARIABLES if env.get(name)), "")
    if not endpoint:
        hint = "for example http://127.0.0.1:4318, or set OTEL_EXPORTER_OTLP_ENDPOINT"
        raise ConfigError(
            "telemetry.spans is on, and nothing says where to send them", param="telemetry.otlp_endpoint", hint=hint
        )
    try:
        from treadle.telemetry.otlp_export import open_spans
    except ImportError as error:
        message = f"telemetry.spans needs a library that is not installed ({error.name})"
        raise ConfigError(message, param="telemetry.spans", hint="pip install 'treadle[otel]'") from error
    return open_spans(endpoint, telemetry.service_name)


def runner_limits(settings: Settings) -> RunnerLimits:
    """Return the size limits of tool arguments and results."""
    limits = settings.limits
    return RunnerLimits(
        arguments_bytes_max=limits.arguments_bytes_max,
        output_bytes_max=max(LIMIT_NOTICE_BYTES, limits.max_tool_output_bytes - LIMIT_NOTICE_BYTES),
        stored_bytes_max=limits.stored_bytes_max,
    )


def make_runner(settings: Settings, env: Mapping[str, str], workers: int = 1) -> RunsRunner:
    """Return the runner of background runs.

    Raises: ConfigError, if the Temporal library or key is missing.
    """
    wanted = settings.runner
    kind = wanted.kind
    if kind == "auto":
        kind = "claims" if is_postgres(settings.store.url) or workers > 1 else "process"
    if kind == "process" or settings.store.persistence == "off":
        return LocalRunner()
    if kind == "claims":
        return SharedStoreRunner(wanted.background_max)
    try:
        from treadle.runs.runners.temporal_runner import TemporalRunner
    except ImportError as error:
        message = f"runner.kind needs a library that is not installed ({error.name})"
        raise ConfigError(message, param="runner.kind", hint="pip install 'treadle[temporal]'") from error
    key = env.get(wanted.key_env, "") if wanted.key_env else ""
    if wanted.key_env and not key:
        raise ConfigError(f"the variable {wanted.key_env} is not set", param="runner.key_env")
    return TemporalRunner(
        wanted.temporal,
        namespace=wanted.namespace,
        queue=wanted.queue,
        key=key,
        tls=wanted.tls,
        terms=RunnerTerms(heartbeat_s=wanted.heartbeat_s, runs_max=wanted.background_max),
    )


def runs_options(settings: Settings) -> RunsOptions:
    """Return the options of runs: storage, limits and offered tools."""
    limits, cache = settings.limits, settings.cache
    return RunsOptions(
        owner=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
        default_model=settings.model,
        cache=CacheRules(ttl_s=cache.ttl_s, bytes_max=cache.bytes_max) if cache.enabled else None,
        persistence=settings.store.persistence == "on",
        keep_s=settings.store.keep_days * 86_400.0 or None,
        defers_approvals=settings.approvals.responses == "item",
        limits=Limits(
            max_iterations=limits.max_iterations,
            max_total_tool_calls=limits.max_total_tool_calls,
            identical_repeats_max=limits.identical_repeats_max,
            wall_s=limits.wall_s or None,
            strict_unknown_tool=settings.tools.strict_unknown_tool,
            recovered_effects=settings.repair.effects,
            taint=settings.policy.taint,
        ),
        offers=OfferRules(
            collision=settings.tools.collision,
            tools_max=limits.tools_max,
            tools_bytes_max=limits.tools_bytes_max,
            routes=tuple((route.model, route.tools) for route in settings.route),
        ),
    )
