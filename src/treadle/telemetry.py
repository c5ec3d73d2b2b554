"""Names of metrics, what is counted from a run's events, and what must never be written: all in one place.

Labels come from closed sets: a tool's name only if it is registered, a result code only if it is in the list or a
small number. Arguments, results and keys are never logged; sizes and names are.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from treadle.canon.events import (
    ApprovalDecided,
    ApprovalRequested,
    Noted,
    RoundStarted,
    RunEnded,
    RunEvent,
    ToolFinished,
)
from treadle.canon.tools import RC, is_person_only
from treadle.wire.dialects.stage import RECOVERED

disable_created_metrics()

REDACTED = "[redacted]"
_SECRET_NAME = re.compile(r"key|token|secret|passw|credential|authorization|cookie", re.IGNORECASE)
_CLIENT_KEY = re.compile(r"tr_[0-9a-f]{16}_[0-9a-f]{64}")
_KNOWN_RC: frozenset[str] = frozenset(get_args(RC))
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

upstream_request: ContextVar[str] = ContextVar("treadle_upstream_request", default="")
"""The id that the provider gave the last model call of the run this task works for: it is in the logs of its tools."""


class Metrics:
    """The series of one process, in a registry of its own so that two runtimes do not mix."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._iterations = self._counter("tool_call_iterations", "Model calls made in runs (rounds).")
        self._calls = self._counter("tool_calls", "Server calls answered, by tool.", "tool")
        self._failures = self._counter("tool_call_failures", "Server calls that failed, by result code.", "rc")
        self._output = self._counter("tool_output_bytes", "Bytes that server tools returned.")
        self._latency = self._histogram("tool_call_duration_seconds", "Time a server call took.")
        self._runs = self._counter("treadle_runs", "Runs ended, by protocol and status.", "protocol", "status")
        self._asked = self._counter("treadle_approvals_asked", "Calls that a person was asked about.")
        self._decided = self._counter("treadle_approvals_decided", "Such calls decided, by status.", "status")
        self._limits = self._counter("treadle_run_limits", "Runs that reached a limit, by limit.", "limit")
        self._tokens = self._counter("treadle_tokens", "Tokens reported by upstreams, by direction.", "direction")
        self._repairs = self._counter("treadle_notes", "Repairs, coercions and drops, by code.", "code")
        self._recovered = self._counter("treadle_recovered_calls", "Calls that models wrote as text.", "dialect")
        self._refused = self._counter("treadle_refused_commits", "Calls of facts.commit by a model, all refused.")
        self.live_runs = Gauge("treadle_live_runs", "Runs going on in this process.", registry=self.registry)
        self.requests = self._counter("treadle_http_requests", "HTTP requests, by route and status.", "route", "status")
        self.request_latency = self._histogram("treadle_http_request_duration_seconds", "Time to the last byte.")
        self._cached = self._counter("treadle_cached_answers", "Model calls looked for in the cache.", "outcome")
        self._turned_away = self._counter("treadle_refused_requests", "Requests refused for who or how much.", "code")
        self._alone = self._counter("treadle_rate_fallbacks", "Counts made alone while the shared limits were away.")
        self._guest_cpu = self._counter("treadle_guest_cpu_seconds", "CPU that WASM guests used.")
        self._guest_stops = self._counter("treadle_guest_stops", "WASM guests that ended, by stop code or ok.", "code")
        self._compiles = self._histogram("treadle_guest_compile_seconds", "Time to compile a WASM guest.")
        self._cache_hits = self._counter("treadle_guest_cache_hits", "WASM guests found compiled already.")
        self._upstream = self._counter(
            "treadle_upstream_calls", "Calls of upstreams, by outcome.", "upstream", "outcome"
        )
        self._again = self._counter(
            "treadle_upstream_retries", "Calls made again, there or elsewhere.", "upstream", "where"
        )
        self._tools: frozenset[str] = frozenset()

    def know_tools(self, names: Iterable[str]) -> None:
        """Name the tools that may appear as a label; all others are counted as `unknown`."""
        self._tools = frozenset(names)

    def observe(self, event: RunEvent, protocol: str) -> None:
        """Count what one event of a run says."""
        match event:
            case RoundStarted():
                self._iterations.inc()
            case ToolFinished():
                name = event.call.name
                self._calls.labels(name if name in self._tools else "unknown").inc()
                self._output.inc(event.output_bytes)
                self._latency.observe(event.duration_s)
                if is_person_only(name):
                    self._refused.inc()
                if event.result.is_error:
                    self._failures.labels(rc_label(event.result.rc)).inc()
            case ApprovalRequested():
                self._asked.inc()
            case ApprovalDecided():
                self._decided.labels(event.status).inc()
            case Noted():
                self._repairs.labels(event.note.code).inc(event.note.count)
                if event.note.code == RECOVERED and event.note.field is not None:
                    self._recovered.labels(event.note.field).inc()
            case RunEnded():
                self._runs.labels(protocol, event.status).inc()
                if event.limit is not None:
                    self._limits.labels(event.limit).inc()
                if event.usage is not None:
                    self._tokens.labels("input").inc(event.usage.input_tokens)
                    self._tokens.labels("output").inc(event.usage.output_tokens)
            case _:
                pass

    def cache_looked(self, outcome: str) -> None:
        """Count a model call that was looked for in the cache: a hit or a miss."""
        self._cached.labels(outcome).inc()

    def refused(self, code: str) -> None:
        """Count a request that was refused because of its key, or of what it had used up."""
        self._turned_away.labels(code if code in REFUSALS else "other").inc()

    def counted_alone(self) -> None:
        """Count that a limit was counted in this process alone, because what is shared is away."""
        self._alone.inc()

    def guest_ended(self, code: str, cpu_s: float) -> None:
        """Count the end of a WASM guest, by its stop code or `ok`, and the CPU it used."""
        self._guest_stops.labels(code).inc()
        self._guest_cpu.inc(cpu_s)

    def guest_compiled(self, seconds: float, *, was_cached: bool) -> None:
        """Count a compilation of a WASM guest, or that none was needed."""
        if was_cached:
            self._cache_hits.inc()
        else:
            self._compiles.observe(seconds)

    def upstream_asked(self, upstream: str, outcome: str) -> None:
        """Count one call of an upstream: `ok`, `failed`, `refused`, `open` (not made), `left` (by the client)."""
        self._upstream.labels(upstream, outcome).inc()

    def upstream_retried(self, upstream: str, *, elsewhere: bool) -> None:
        """Count a call that is made again."""
        self._again.labels(upstream, "elsewhere" if elsewhere else "there").inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_LATENCY_S, registry=self.registry)


def rc_label(rc: str) -> str:
    """Return the result code as a label of a bounded set: the closed list, small numbers, else `other`."""
    if rc in _KNOWN_RC or (rc.lstrip("-").isdigit() and len(rc) <= 4):
        return rc
    return "other"


class Redactor:
    """Blanks out values whose name tells a secret, and every known secret value wherever it stands."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = sorted({secret for secret in secrets if len(secret) >= 6}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, found))) if found else None

    def text(self, text: str) -> str:
        """Return the text without the known secrets, and without clients' keys, which nobody can know beforehand."""
        text = _CLIENT_KEY.sub(REDACTED, text) if "tr_" in text else text
        return text if self._secrets is None else self._secrets.sub(REDACTED, text)

    def fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Return the fields with secret ones blanked."""
        return {name: self._value(name, value) for name, value in fields.items()}

    def _value(self, name: str, value: object) -> object:
        if _SECRET_NAME.search(name) and not name.endswith(("_tokens", "_env")):
            return REDACTED
        return self.text(value) if isinstance(value, str) else value


class JsonLines(logging.Formatter):
    """Log records as one JSON object a line: time, level, logger, message, and the fields given as `extra`."""

    _plain = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or Redactor()

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        fields: dict[str, Any] = {
            name: value for name, value in vars(record).items() if name not in self._plain and not name.startswith("_")
        }
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redactor.text(record.getMessage()),
            **self._redactor.fields(fields),
        }
        if record.exc_info:
            line["exception"] = self._redactor.text(self.formatException(record.exc_info))
        return msgspec.json.encode(line, enc_hook=repr).decode()
