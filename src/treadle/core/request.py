"""A client's request in protocol-independent form."""

from typing import Literal

import msgspec

from treadle.core.items import AnyItem
from treadle.core.json import OptionalRaw
from treadle.core.tool_definitions import AUTO, ToolChoice, ToolSpec

DIRECT_MODEL = "treadle:call"
"""The model name of a run that makes one tool call without a model."""
NoteAction = Literal["dropped", "coerced", "emulated", "repaired", "buffered", "kept"]


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice from pure code, such as a repair or a dropped field, which the caller logs and journals."""

    code: str
    action: NoteAction
    message: str
    field: str | None = None
    count: int = 1


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the model shall answer. `extra` holds fields Treadle does not act on, spelled as in `extra_protocol`.

    `betas` are names of features that a client of Anthropic's protocol turns on beside the body, `api_version` is the
    version of the protocol that it names there.
    """

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    output_schema: OptionalRaw = None
    betas: tuple[str, ...] = ()
    api_version: str = ""
    extra: dict[str, msgspec.Raw] = {}
    extra_protocol: str = ""


class Surface(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the client wants to be answered: nothing of this reaches the model.

    `tool_status` announces server tools as text, `is_array` streams one JSON array instead of SSE frames (Gemini).
    `choices` asks for that many answers (Chat, Gemini), each of them a run of its own.
    """

    stream: bool = False
    include_usage: bool = False
    legacy_functions: bool = False
    extended_events: bool = False
    tool_status: bool = False
    is_array: bool = False
    choices: int = 1
    metadata: OptionalRaw = None
    tools_echo: OptionalRaw = None
    tool_choice_echo: OptionalRaw = None


class Assent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client's answer to an approval that an earlier run asked for; `field` is where the request says it."""

    approval_id: str
    approve: bool
    reason: str = ""
    field: str = "approval_request_id"


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a client. `items` is the input in order; history named by id is joined by the runs room.

    `inherits` takes what this request leaves out (instructions, tools, options) from the previous one it names.
    `strict_fidelity` would rather fail than drop something. `is_fresh` wants the model asked, whatever is known.
    """

    protocol: str
    model: str
    items: tuple[AnyItem, ...] = ()
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Options = Options()
    surface: Surface = Surface()
    store: bool = True
    background: bool = False
    previous_response_id: str | None = None
    inherits: bool = False
    max_tool_calls: int | None = None
    strict_fidelity: bool = False
    is_fresh: bool = False
    approvals: tuple[Assent, ...] = ()
    notes: tuple[Note, ...] = ()


def inherit(request: Request, previous: Request) -> Request:
    """Return the request with what it leaves out taken from the one before it."""
    options = {
        name: getattr(previous.options, name)
        for name in Options.__struct_fields__
        if getattr(request.options, name) == getattr(_NO_OPTIONS, name)
    }
    options["extra"] = {**previous.options.extra, **request.options.extra}
    return msgspec.structs.replace(
        request,
        instructions=request.instructions or previous.instructions,
        tools=request.tools or previous.tools,
        tool_choice=previous.tool_choice if request.tool_choice == AUTO else request.tool_choice,
        options=msgspec.structs.replace(request.options, **options),
    )


def is_json_wanted(options: Options) -> bool:
    """Return whether the answer shall be JSON, by a schema or without one."""
    return options.output_schema is not None or "response_format" in options.extra


def answer_form(schema: msgspec.Raw) -> msgspec.Raw:
    """Return a JSON Schema as `Options.output_schema` names the form of an answer."""
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "name": "answer", "schema": schema}))


_NO_OPTIONS = Options()
