"""All metrics of a process: their names, labels and help texts, and the methods that count.

Labels come from closed sets: a tool's name only if it is registered, a result code only if it is in the list or a
small number.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, get_args

from treadle.core.events import RunEnded, ToolFinished
from treadle.core.request import Note
from treadle.core.tool_definitions import RC, is_person_only
from treadle.protocols.text_calls.text_call_recovery import RECOVERED
from treadle.telemetry.counters import Counter, CounterValue, Histogram
from treadle.telemetry.prometheus import MetricRegistry, MetricSample, Series

_KNOWN_RC: frozenset[str] = frozenset(get_args(RC))
_OTHER = "other"
_INPUT, _OUTPUT, _CACHED, _REASONING = ("input",), ("output",), ("cached",), ("reasoning",)
"""The directions of tokens, as labels."""

_LABELS_MAX = 256
"""Bound on the values of a label that has no closed list; values beyond it are counted as `other`."""

BREAKER_STATES = {"closed": 0, "half_open": 1, "open": 2}
"""A circuit breaker's state as a number: higher is worse."""

_LATENCY_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

REFUSALS = (
    "missing_api_key",
    "invalid_api_key",
    "revoked_api_key",
    "expired_api_key",
    "key_scope",
    "rate_limit_address",
    "rate_limit_requests",
    "rate_limit_tokens",
    "rate_limit_runs",
    "budget_exceeded",
)
"""Why requests are refused, as a label."""


class UpstreamHealth(Protocol):
    """What metrics read of an upstream."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def breaker(self) -> str:
        """The state of its circuit breaker."""
        ...

    @property
    def live(self) -> int:
        """How many calls are running."""
        ...

    @property
    def waiting(self) -> int:
        """How many calls are queued."""
        ...


class Metrics:
    """The series of one process, in a registry of its own so that two runtimes do not mix."""

    def __init__(self) -> None:
        self.registry = MetricRegistry()
        self.rounds = self._counter("tool_call_iterations", "Model calls made in runs (rounds).")
        self._calls = self._counter("tool_calls", "Server calls answered, by tool.", "tool")
        self._failures = self._counter("tool_call_failures", "Server calls that failed, by result code.", "rc")
        self._output = self._counter("tool_output_bytes", "Bytes that server tools returned.")
        self._latency = self._histogram("tool_call_duration_seconds", "Time a server call took.")
        self._runs = self._counter("treadle_runs", "Runs ended, by protocol and status.", "protocol", "status")
        self.asked = self._counter("treadle_approvals_asked", "Calls that a person was asked about.")
        self.decided = self._counter("treadle_approvals_decided", "Such calls decided, by status.", "status")
        self._limits = self._counter("treadle_run_limits", "Runs that reached a limit, by limit.", "limit")
        self._tokens = self._counter("treadle_tokens", "Tokens reported by upstreams, by direction.", "direction")
        for direction in (_INPUT, _OUTPUT, _CACHED, _REASONING):
            # All directions exist from the start: Prometheus computes no rate over a series' first sample.
            self._tokens.inc(*direction, by=0)
        self._repairs = self._counter("treadle_notes", "Repairs, coercions and drops, by code.", "code")
        self._recovered = self._counter("treadle_recovered_calls", "Calls that models wrote as text.", "dialect")
        self._refused = self._counter("treadle_refused_commits", "Calls of facts.commit by a model, all refused.")
        self.requests = self._counter("treadle_http_requests", "HTTP requests, by route and status.", "route", "status")
        self.request_latency = self._histogram("treadle_http_request_duration_seconds", "Time to the last byte.")
        self._cached = self._counter("treadle_cached_answers", "Model calls looked for in the cache.", "outcome")
        self._refused_http = self._counter("treadle_refused_requests", "Requests refused for who or how much.", "code")
        self._local_limits = self._counter(
            "treadle_rate_fallbacks", "Counts made alone while the shared limits were away."
        )
        self._store_s = self._histogram("treadle_store_latency_seconds", "Time the store took to answer a probe.")
        self._taken_over = self._counter(
            "treadle_leases_taken_over", "Runs gone on with here after the process that drove them died."
        )
        self._lost_leases = self._counter("treadle_leases_lost", "Runs that another process took from this one.")
        self._guest_cpu = self._counter("treadle_guest_cpu_seconds", "CPU that WASM guests used.")
        self._guest_stops = self._counter("treadle_guest_stops", "WASM guests that ended, by stop code or ok.", "code")
        self._compiles = self._histogram("treadle_guest_compile_seconds", "Time to compile a WASM guest.")
        self._cache_hits = self._counter("treadle_guest_cache_hits", "WASM guests found compiled already.")
        self._upstream = self._counter(
            "treadle_upstream_calls", "Calls of upstreams, by outcome.", "upstream", "outcome"
        )
        self._retries = self._counter(
            "treadle_upstream_retries", "Calls made again, there or elsewhere.", "upstream", "where"
        )
        self.run_s = self._histogram("treadle_run_duration_seconds", "Time from a run's start to its end.")
        self.call_s = self._histogram(
            "treadle_model_call_duration_seconds", "Time a model call took, retries included.", "upstream"
        )
        self.first_s = self._histogram(
            "treadle_model_first_event_seconds", "Time to the first event of a model's answer.", "upstream"
        )
        self.wait_s = self._histogram("treadle_approval_wait_seconds", "Time that calls waited for a person.")
        self._dropped = self._counter("treadle_dropped_readers", "Readers cut off because they did not keep up.")
        self._tools: frozenset[str] = frozenset()
        self._codes: set[str] = set()
        self._shown: dict[str, CounterValue] = {}

    def set_tool_names(self, names: Iterable[str]) -> None:
        """Set the tools that may appear as a label; all others are counted as `unknown`."""
        self._tools = frozenset(names)

    def tool_finished(self, event: ToolFinished) -> None:
        """Count a finished call."""
        name = event.call.name
        self._calls.counts[(name if name in self._tools else "unknown",)] += 1
        self._output.counts[()] += event.output_bytes
        self._latency.times[()].add(event.duration_s)
        if is_person_only(name):
            self._refused.inc()
        if event.result.is_error:
            self._failures.inc(rc_label(event.result.rc))

    def noted(self, note: Note) -> None:
        """Count a repair, a coercion or a drop."""
        self._repairs.inc(self._code(note.code), by=note.count)
        if note.code == RECOVERED and note.field is not None:
            self._recovered.inc(self._code(note.field))

    def request_ended(self, route: str, status: int, lasted_s: float) -> None:
        """Count an HTTP request that was answered."""
        self.requests.counts[route, str(status)] += 1
        self.request_latency.times[()].add(lasted_s)

    def run_ended(self, event: RunEnded, protocol: str) -> None:
        """Count a run that ended, and what it used: cached and reasoning tokens are parts of the others."""
        self._runs.counts[protocol, event.status] += 1
        if event.limit is not None:
            self._limits.inc(event.limit)
        usage = event.usage
        if usage is not None:
            tokens = self._tokens.counts
            tokens[_INPUT] += max(0, usage.input_tokens)
            tokens[_OUTPUT] += max(0, usage.output_tokens)
            if usage.cached_tokens or usage.reasoning_tokens:
                tokens[_CACHED] += max(0, usage.cached_tokens)
                tokens[_REASONING] += max(0, usage.reasoning_tokens)

    def _code(self, code: str) -> str:
        """Return a code as a label, or `other` if there are too many."""
        if code not in self._codes:
            if len(self._codes) >= _LABELS_MAX:
                return _OTHER
            self._codes.add(code)
        return code

    def reader_dropped(self) -> None:
        """Count a reader that was disconnected because it was too slow."""
        self._dropped.inc()

    def show_upstreams(self, health: Callable[[], Iterable[UpstreamHealth]]) -> None:
        """Export the state of every upstream, read when metrics are read."""
        self.registry.register(_UpstreamsCollector(health))

    def show_store(self, stats: Callable[[], "StoreNumbers"]) -> None:
        """Export the numbers of a store, read when metrics are read."""
        self.registry.register(_StoreCollector(stats))

    def show_differences(self, counts: Callable[[], Mapping[str, float]]) -> None:
        """Export how many replicas differ from this process, by kind."""
        self.registry.register(_DifferencesCollector(counts))

    def show(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Export a gauge, read when metrics are read; a second call with the same name replaces its function."""
        shown = self._shown.get(name)
        if shown is None:
            self._shown[name] = CounterValue(name, text, value, self.registry)
        else:
            shown.value = value

    def cache_checked(self, outcome: str) -> None:
        """Count a cache lookup of a model call: a hit or a miss."""
        self._cached.inc(outcome)

    def refused(self, code: str) -> None:
        """Count a request that was refused for its key, its rate or its budget."""
        self._refused_http.inc(code if code in REFUSALS else "other")

    def store_answered(self, seconds: float) -> None:
        """Count a health check that the store answered, and how long that took."""
        self._store_s.observe(seconds)

    def lease_taken_over(self) -> None:
        """Count a run that this process recovered after its owner died."""
        self._taken_over.inc()

    def lease_lost(self) -> None:
        """Count a run whose lease another process took."""
        self._lost_leases.inc()

    def rates_fell_back(self) -> None:
        """Count a rate limit that was applied locally because the shared counters were unavailable."""
        self._local_limits.inc()

    def guest_ended(self, code: str, cpu_s: float) -> None:
        """Count the end of a WASM guest, by its stop code or `ok`, and the CPU it used."""
        self._guest_stops.inc(self._code(code))
        self._guest_cpu.inc(by=cpu_s)

    def guest_compiled(self, seconds: float, *, was_cached: bool) -> None:
        """Count a compilation of a WASM guest, or that none was needed."""
        if was_cached:
            self._cache_hits.inc()
        else:
            self._compiles.observe(seconds)

    def upstream_asked(self, upstream: str, outcome: str) -> None:
        """Count one call of an upstream: `ok`, `failed`, `refused`, `open` (not made), `left` (by the client)."""
        self._upstream.counts[upstream, outcome] += 1

    def upstream_retried(self, upstream: str, *, elsewhere: bool) -> None:
        """Count a retry, at the same upstream or at a fallback."""
        self._retries.inc(upstream, "elsewhere" if elsewhere else "there")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, _LATENCY_S, self.registry)


class StoreNumbers(Protocol):
    """What metrics read of a store."""

    @property
    def errors(self) -> Mapping[str, int]:
        """Errors since the store was opened, by code."""
        ...

    @property
    def pool_in_use(self) -> int:
        """How many connections are in use."""
        ...

    @property
    def pool_waiting(self) -> int:
        """How many operations wait for a connection."""
        ...

    @property
    def reconnects(self) -> int:
        """How often its listener reconnected."""
        ...


class _StoreCollector:
    """Collects the series of the store."""

    def __init__(self, stats: Callable[[], StoreNumbers]) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Series]:
        """Return the series."""
        stats = self._stats()
        name = "treadle_store_errors"
        counts = [MetricSample(f"{name}_total", {"code": code}, count) for code, count in sorted(stats.errors.items())]
        yield Series(name, "counter", "Reads and writes of the store that failed, by code.", tuple(counts), ("code",))
        in_use = "Connections to the database in use."
        yield _single_sample("treadle_store_pool_in_use", "gauge", in_use, stats.pool_in_use)
        waiting = "Reads and writes that wait for a connection."
        yield _single_sample("treadle_store_pool_waiting", "gauge", waiting, stats.pool_waiting)
        again = "Times the listener for changes lost its connection and made another."
        yield _single_sample("treadle_store_listener_reconnects", "counter", again, stats.reconnects)


class _DifferencesCollector:
    """Collects how many replicas differ from this process."""

    def __init__(self, counts: Callable[[], Mapping[str, float]]) -> None:
        self._counts = counts

    def collect(self) -> Iterable[Series]:
        """Return the series."""
        name = "treadle_replica_differences"
        samples = [MetricSample(name, {"kind": kind}, count) for kind, count in self._counts().items()]
        yield Series(name, "gauge", "Replicas that differ from this process, by kind.", tuple(samples), ("kind",))


def _single_sample(name: str, kind: str, text: str, value: float) -> Series:
    sample = MetricSample(f"{name}_total" if kind == "counter" else name, {}, float(value))
    return Series(name, kind, text, (sample,))


class _UpstreamsCollector:
    """Collects the series of upstreams, so that no gauge has to be updated on every call."""

    def __init__(self, health: Callable[[], Iterable[UpstreamHealth]]) -> None:
        self._health = health

    def collect(self) -> Iterable[Series]:
        """Return the series."""
        found = list(self._health())
        states = "State of an upstream's breaker: 0 closed, 1 half open, 2 open."
        yield _by_upstream("treadle_upstream_breaker_state", states, {e.name: BREAKER_STATES[e.breaker] for e in found})
        live = "Calls under way at an upstream."
        yield _by_upstream("treadle_upstream_live_calls", live, {each.name: each.live for each in found})
        waiting = "Calls that wait for a place at an upstream."
        yield _by_upstream("treadle_upstream_waiting_calls", waiting, {each.name: each.waiting for each in found})


def _by_upstream(name: str, text: str, values: dict[str, int]) -> Series:
    samples = [MetricSample(name, {"upstream": upstream}, value) for upstream, value in values.items()]
    return Series(name, "gauge", text, tuple(samples), ("upstream",))


def rc_label(rc: str) -> str:
    """Return the result code as a label of a bounded set: the closed list, small numbers, else `other`."""
    if rc in _KNOWN_RC or (rc.lstrip("-").isdigit() and len(rc) <= 4):
        return rc
    return _OTHER
