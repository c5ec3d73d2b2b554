"""The bounds that no setting raises, each with the reason why, as docs/configuration.md has them."""

from importlib import import_module
from typing import NamedTuple

_TOKENS = "a model cannot use more: its own output is bounded far below"
_DECODE = "what is behind it is no answer; it bounds memory and time for hostile upstreams"


class Fixed(NamedTuple):
    """A bound: what it is of, the constant that has it, and why it is the same everywhere."""

    what: str
    place: str
    why: str


FIXED: tuple[Fixed, ...] = (
    Fixed("calls in one answer of Chat", "treadle.protocols.chat.upstream_assembly:CALLS_MAX", _TOKENS),
    Fixed("calls in one answer of Gemini", "treadle.protocols.gemini.upstream_assembly:CALLS_MAX", _TOKENS),
    Fixed("blocks in one answer of Messages", "treadle.protocols.messages.upstream_assembly:BLOCKS_MAX", _TOKENS),
    Fixed("items in one answer of Responses", "treadle.protocols.responses.upstream_assembly:ITEMS_MAX", _TOKENS),
    Fixed(
        "bytes of one line of a stream, at least; `upstreams.answer_bytes_max`, where that is more",
        "treadle.protocols.sse:LINE_BYTES_MAX",
        _DECODE,
    ),
    Fixed("depth of JSON", "treadle.core.json:DEPTH_MAX", "readers everywhere recurse; no schema or answer is deeper"),
    Fixed(
        "notes told of one answer",
        "treadle.protocols.decoding.answer_meter:NOTES_MAX",
        "further ones are counted in `more_notes`",
    ),
    Fixed(
        "choices of one Chat request (`n`)",
        "treadle.protocols.chat.client_request:CHOICES_MAX",
        "each is a run of its own, with its own tool calls",
    ),
    Fixed(
        "candidates of one Gemini request",
        "treadle.protocols.gemini.client_request:CANDIDATES_MAX",
        "each is a run of its own, with its own tool calls",
    ),
    Fixed(
        "bytes of an error's message from an upstream",
        "treadle.providers.error_mapping:MESSAGE_BYTES_MAX",
        "it goes into headers, logs and the journal",
    ),
    Fixed(
        "bytes read of an upstream's error",
        "treadle.providers.provider_client:ERROR_BYTES_MAX",
        "the message is at its beginning",
    ),
    Fixed(
        "seconds that a `retry-after` may ask for",
        "treadle.providers.error_mapping:RETRY_AFTER_S_MAX",
        "a longer one is told as this one; `upstreams.retry_after_s_max` decides about waiting",
    ),
    Fixed(
        "models listed of one upstream",
        "treadle.providers.model_listing:MODELS_MAX",
        "routes by pattern reach those that are not listed",
    ),
    Fixed(
        "failed requests told apart by a breaker",
        "treadle.providers.resilience.endpoint_guard_state:FAILED_REQUESTS_MAX",
        "more in one window mean that the endpoint is sick",
    ),
    Fixed(
        "results shown in Treadle's own answer at a limit",
        "treadle.engine.limit_answer:CALLS_SHOWN",
        "for a person to read; the journal has all of them",
    ),
    Fixed(
        "headers of a request",
        "treadle.server.request_guard:HEADERS_MAX",
        "as other servers have it; a proxy in front has its own",
    ),
    Fixed(
        "bytes of a request's headers",
        "treadle.server.request_guard:HEADER_BYTES_MAX",
        "as other servers have it; a proxy in front has its own",
    ),
    Fixed(
        "characters of an `Idempotency-Key`",
        "treadle.server.delivery.request_headers:KEY_CHARS_MAX",
        "it is a key of the journal, not a text",
    ),
    Fixed(
        "errors told of one call's arguments",
        "treadle.tools.compiled_schema:ERRORS_MAX",
        "the model puts these right first",
    ),
    Fixed("bytes of one line from an MCP server", "treadle.tools.mcp.stdio_transport:LINE_BYTES_MAX", _DECODE),
    Fixed("bytes of one HTTP answer of an MCP server", "treadle.tools.mcp.http_transport:ANSWER_BYTES_MAX", _DECODE),
)


def fixed_bounds() -> str:
    """Write the table, with the values as the code has them."""
    rows = [f"| {each.what} | {_value(each):,} | {each.why} |" for each in FIXED]
    return "\n".join(["| what is bounded | by | why no setting raises it |", "|---|---|---|", *rows, ""])


def _value(bound: Fixed) -> float:
    module, _, name = bound.place.partition(":")
    return getattr(import_module(module), name)
