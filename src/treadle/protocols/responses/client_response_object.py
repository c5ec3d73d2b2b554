"""The response object and its output items as they are written.

All keys that the Open Responses specification requires are always there; what the client did not say has the
official default. Nothing here holds state.
"""

from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from treadle.core.errors import ErrorInfo
from treadle.core.events import RunEnded, RunStarted
from treadle.core.request import Request
from treadle.core.usage import Usage
from treadle.protocols.field_reader import NULL
from treadle.protocols.protocol_registry import RESPONSES

EMPTY = msgspec.Raw(b"[]")


class OutputText(msgspec.Struct, frozen=True, kw_only=True, tag="output_text"):
    """Text of a message."""

    text: str
    annotations: msgspec.Raw = EMPTY
    logprobs: msgspec.Raw = EMPTY


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """A refusal in a message."""

    refusal: str


class ReasoningText(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning_text"):
    """Raw reasoning."""

    text: str


class SummaryText(msgspec.Struct, frozen=True, kw_only=True, tag="summary_text"):
    """A summary of reasoning."""

    text: str


ContentPart = OutputText | Refusal | ReasoningText | SummaryText


class Message(msgspec.Struct, frozen=True, kw_only=True, tag="message"):
    """A message of the model."""

    id: str
    status: str
    role: str = "assistant"
    content: tuple[ContentPart, ...] = ()
    phase: str | UnsetType = UNSET


class Reasoning(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought."""

    id: str
    status: str
    summary: tuple[ContentPart, ...] = ()
    content: tuple[ContentPart, ...] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, tag="function_call"):
    """A call that the client shall run."""

    id: str
    status: str
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | UnsetType = UNSET


class CustomCall(msgspec.Struct, frozen=True, kw_only=True, tag="custom_tool_call"):
    """A call with free text that the client shall run."""

    id: str
    status: str
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET


class ErrorText(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """A text block of what a failed tool gave."""

    text: str


class ExecutionError(msgspec.Struct, frozen=True, kw_only=True, tag="mcp_tool_execution_error"):
    """What a failed tool gave."""

    content: tuple[ErrorText, ...]


class ServerCall(msgspec.Struct, frozen=True, kw_only=True, tag="mcp_call"):
    """A call that Treadle ran."""

    id: str
    status: str
    server_label: str
    name: str
    arguments: str = ""
    output: str | None = None
    error: ExecutionError | None = None
    approval_request_id: str | None = None


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True, tag="mcp_approval_request"):
    """A call that Treadle runs once a person agrees; the client's next request holds the decision."""

    id: str
    server_label: str
    name: str
    arguments: str


class ImageCall(msgspec.Struct, frozen=True, kw_only=True, tag="image_generation_call"):
    """An image that the model gave, in base64."""

    id: str
    status: str
    result: str | None = None
    output_format: str | UnsetType = UNSET


OutputItem = Message | Reasoning | FunctionCall | CustomCall | ServerCall | ApprovalRequest | ImageCall | msgspec.Raw


class InputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Where input tokens came from."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What output tokens were spent on."""

    reasoning_tokens: int


class UsageObject(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the whole run."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int
    unknown: bool | UnsetType = UNSET


class ErrorObject(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response is incomplete."""

    reason: str


class ResponseObject(msgspec.Struct, frozen=True, kw_only=True):
    """The response, whole at every moment."""

    id: str
    object: str = "response"
    created_at: int
    status: str = "in_progress"
    background: bool
    completed_at: int | None = None
    error: ErrorObject | None = None
    frequency_penalty: msgspec.Raw
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str
    output: tuple[OutputItem, ...] = ()
    parallel_tool_calls: bool
    presence_penalty: msgspec.Raw
    previous_response_id: str | None
    prompt_cache_key: msgspec.Raw
    reasoning: dict[str, Any]
    safety_identifier: msgspec.Raw
    service_tier: msgspec.Raw
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: msgspec.Raw
    tools: msgspec.Raw
    top_logprobs: msgspec.Raw
    top_p: float
    truncation: msgspec.Raw
    usage: UsageObject | None = None
    user: msgspec.Raw
    metadata: dict[str, Any]
    conversation: msgspec.Raw | UnsetType = UNSET


_ZERO = msgspec.Raw(b"0")
_AUTO = msgspec.Raw(b'"auto"')
_DEFAULT = msgspec.Raw(b'"default"')
_DISABLED = msgspec.Raw(b'"disabled"')
_FUNCTION = msgspec.Raw(b'"function"')
_FUNCTION_KEYS = {"type": _FUNCTION, "name": NULL, "description": NULL, "parameters": NULL, "strict": NULL}

_tools: msgspec.json.Decoder[list[dict[str, msgspec.Raw]]] = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

ERROR_CODES: frozenset[str] = frozenset(
    {
        "server_error",
        "rate_limit_exceeded",
        "invalid_prompt",
        "data_residency_mismatch",
        "bio_policy",
        "misalignment_policy_violation",
        "vector_store_timeout",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_content_policy_violation",
        "invalid_image_mode",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)
"""The closed list of the official API; a typed client rejects any other code."""

_CODE_OF_STATUS = {400: "invalid_prompt", 413: "invalid_prompt", 429: "rate_limit_exceeded"}
_REASONS = {"length": "max_output_tokens", "filtered": "content_filter"}
_STATUSES = {
    "completed": "completed",
    "requires_action": "completed",
    "incomplete": "incomplete",
    "failed": "failed",
    "cancelled": "cancelled",
}


def started_response(request: Request, started: RunStarted) -> ResponseObject:
    """Return the response as it is when the run starts."""
    options = request.options
    extra = options.extra if options.extra_protocol == RESPONSES else {}
    surface = request.surface
    return ResponseObject(
        id=started.response_id,
        created_at=int(started.created_at),
        background=request.background,
        instructions=request.instructions,
        max_output_tokens=options.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        model=started.model,
        parallel_tool_calls=options.parallel_tool_calls is not False,
        previous_response_id=started.previous_response_id or request.previous_response_id,
        reasoning=_filled(extra.get("reasoning"), {"effort": options.reasoning_effort, "summary": None}),
        store=request.store,
        temperature=1.0 if options.temperature is None else options.temperature,
        text=_filled(extra.get("text"), {"format": {"type": "text"}}),
        tool_choice=surface.tool_choice_echo or _AUTO,
        tools=_shown_tools(surface.tools_echo),
        top_p=1.0 if options.top_p is None else options.top_p,
        metadata=_filled(surface.metadata, {}),
        conversation=_conversation(extra.get("conversation")),
        frequency_penalty=extra.get("frequency_penalty", _ZERO),
        presence_penalty=extra.get("presence_penalty", _ZERO),
        prompt_cache_key=extra.get("prompt_cache_key", NULL),
        safety_identifier=extra.get("safety_identifier", NULL),
        service_tier=extra.get("service_tier", _DEFAULT),
        top_logprobs=extra.get("top_logprobs", _ZERO),
        truncation=extra.get("truncation", _DISABLED),
        user=extra.get("user", NULL),
    )


def ended(response: ResponseObject, event: RunEnded, output: tuple[OutputItem, ...]) -> ResponseObject:
    """Return the response as it is when the run is over."""
    status = _STATUSES[event.status]
    failed = status == "failed"
    reason = _REASONS.get(event.stop, "max_output_tokens") if status == "incomplete" else None
    return msgspec.structs.replace(
        response,
        status=status,
        completed_at=int(event.ended_at) if status == "completed" and event.ended_at else None,
        error=_error_object(event.error) if failed else None,
        incomplete_details=IncompleteDetails(reason=reason) if reason else None,
        output=output,
        # AI SDK 7 ignores a terminal event without numbers, and opencode 1.18 then asks again without end (2026-11-15).
        usage=None if failed and event.usage is None else _usage_object(event.usage),
        metadata={**response.metadata, "treadle_limit": event.limit} if event.limit else response.metadata,
    )


def _filled(raw: msgspec.Raw | None, defaults: dict[str, Any]) -> dict[str, Any]:
    given = msgspec.json.decode(raw) if raw is not None else None
    if not isinstance(given, dict):
        return defaults
    fields = cast("dict[str, Any]", given)
    return {**defaults, **{name: value for name, value in fields.items() if value is not None}}


def _shown_tools(raw: msgspec.Raw | None) -> msgspec.Raw:
    """Return the tools as the client wrote them, with the keys that typed clients expect of a function.

    They are many, and the same in every event that shows the response: so they are written once.
    """
    if raw is None:
        return EMPTY
    shown = [{**_FUNCTION_KEYS, **tool} if _is_flat(tool) else tool for tool in _tools.decode(raw)]
    return msgspec.Raw(msgspec.json.encode(shown))


def _is_flat(tool: dict[str, msgspec.Raw]) -> bool:
    return tool.get("type") == _FUNCTION and "function" not in tool


def _conversation(raw: msgspec.Raw | None) -> msgspec.Raw | UnsetType:
    """Return the conversation as the object form, whichever form the client used."""
    if raw is None:
        return UNSET
    return msgspec.Raw(b'{"id":' + bytes(raw) + b"}") if bytes(raw).startswith(b'"') else raw


def _usage_object(reported: Usage | None) -> UsageObject:
    """Return the tokens used: zeros that are marked as unknown, where the upstream reported none."""
    usage = reported or Usage()
    return UsageObject(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputDetails(
            cached_tokens=usage.cached_tokens, cache_write_tokens=usage.cache_write_tokens
        ),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.total_tokens,
        unknown=UNSET if reported is not None else True,
    )


def _error_object(error: ErrorInfo | None) -> ErrorObject:
    if error is None:
        return ErrorObject(code="server_error", message="the run failed")
    code = error.code if error.code in ERROR_CODES else _CODE_OF_STATUS.get(error.status, "server_error")
    return ErrorObject(code=code, message=error.message)
