"""Writes a plan as the body of a Responses request. It always streams, and nothing is stored at the upstream.

The history is written by `upstream_input`; here are the tools, the choice among them, and the options.
"""

import re
from typing import Any

import msgspec

from treadle.core.items import AnyItem, MessageItem, TextPart
from treadle.core.json import write_json
from treadle.core.memoized import Memo
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import ToolChoice, ToolSpec
from treadle.protocols.chat.tools import is_built_in
from treadle.protocols.codec_interfaces import WrittenRequest
from treadle.protocols.field_reader import LIST, NULL, OBJECT, starts_with
from treadle.protocols.protocol_registry import CHAT
from treadle.protocols.responses.content_parts import PROTOCOL
from treadle.protocols.responses.tools import ABOUT, bare_name
from treadle.protocols.responses.upstream_input import write_history, write_plain_input
from treadle.protocols.translation_notes import (
    CHOICE,
    HOSTED,
    LOGPROBS,
    METADATA,
    OPENAI_ALIKE,
    Notes,
    kind_of,
    note_foreign,
    note_hosted,
    note_unread,
    unread,
)
from treadle.protocols.turn_grouping import is_continued

SEALED_REASONING = "reasoning.encrypted_content"

VERBOSITY = "text.verbosity"
"""The path of the option for the length of the answer."""

SEARCH = "web_search_options"
"""The field by which a Chat client has its upstream search the web."""

_THOUGHTLESS = re.compile(r"(?:.*/)?(?:gpt-[34]|chatgpt|gpt-5(?:\.\d+)?-chat)")
"""Models that do not reason: to ask for their sealed reasoning is a 400 (pydantic-ai#2865 and #3326, 2025-11)."""

_OURS = frozenset({"previous_response_id", "conversation", "background", "store", "stream", "stream_options"})
"""Fields that are between the client and Treadle, which holds the conversation itself."""

_FROM_CHAT = {
    **{name: name for name in (*OPENAI_ALIKE, METADATA)},
    "verbosity": VERBOSITY,
    "logprobs": LOGPROBS,
}
"""Options of Chat Completions and where this API has them."""

_words: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])


def write_request(plan: Plan, *, provider: str = "") -> WrittenRequest:
    """Write the request; sealed reasoning goes back only to the `provider` that made it."""
    notes = Notes()
    instructions, items = _instructions(plan.items)
    written = write_plain_input(items, provider=provider, model=plan.model)
    if written is None or plan.tools:
        note_foreign(() if written is not None else plan.items, plan.tools, PROTOCOL, notes)
    extra = _extra_fields(plan.options, notes) if plan.options.extra else {}
    body: dict[str, Any] = {"model": plan.model}
    if instructions is not None:
        body["instructions"] = instructions
    body["input"] = write_history(items, notes, provider=provider, model=plan.model) if written is None else written
    if plan.tools or extra:
        body |= _tool_fields(plan, extra)
    _add_options(body, plan.options, extra, notes)
    body["stream"], body["store"] = True, False
    include = _include(extra, plan.model)
    if include:
        body["include"] = include
    for name, raw in extra.items():
        body.setdefault(name, raw)
    return WrittenRequest(body=write_json(body), notes=notes.all())


def _instructions(items: tuple[AnyItem, ...]) -> tuple[str | None, tuple[AnyItem, ...]]:
    """Move a leading system text to the field of its own; any other stays, and so does one that is the only item."""
    first = items[0] if len(items) > 1 else None
    if type(first) is not MessageItem or first.role != "system" or len(first.content) != 1:
        return None, items
    part = first.content[0]
    if type(part) is not TextPart or first.extra is not None or part.extra is not None:
        return None, items
    return part.text, items[1:]


def _tool_fields(plan: Plan, extra: dict[str, msgspec.Raw]) -> dict[str, Any]:
    client_choice = extra.pop(CHOICE, None)
    hosted = extra.pop(HOSTED, None)
    tools = [*_TOOLS.of(plan.tools), *(() if hosted is None else LIST.decode(hosted))]
    if not tools:
        return {}
    fields: dict[str, Any] = {"tools": tools}
    choice = _choice(plan.tool_choice, plan.tools)
    if choice is None and not is_continued(plan.items):
        choice = client_choice
    if choice is not None:
        fields[CHOICE] = choice
    if plan.options.parallel_tool_calls is not None and plan.tool_choice.mode != "none":
        fields["parallel_tool_calls"] = plan.options.parallel_tool_calls
    return fields


def _tools(specs: tuple[ToolSpec, ...]) -> tuple[msgspec.Raw, ...]:
    """Write the tools in order, those of one namespace together where its first one stands."""
    written: list[dict[str, Any]] = []
    spaces: dict[str, list[dict[str, Any]]] = {}
    for spec in specs:
        if spec.namespace is None:
            written.append(_tool(spec))
            continue
        if spec.namespace not in spaces:
            spaces[spec.namespace] = []
            about = _own_fields(spec).get(ABOUT, f"Tools of {spec.namespace}.")
            head = {"type": "namespace", "name": spec.namespace, "description": about}
            written.append({**head, "tools": spaces[spec.namespace]})
        spaces[spec.namespace].append(_tool(spec))
    return tuple([msgspec.Raw(write_json(tool)) for tool in written])


_TOOLS: Memo[tuple[ToolSpec, ...], tuple[msgspec.Raw, ...]] = Memo(_tools)


def _tool(spec: ToolSpec) -> dict[str, Any]:
    own = {name: raw for name, raw in _own_fields(spec).items() if name != ABOUT}
    tool: dict[str, Any] = {**own, "type": spec.kind, "name": bare_name(spec)}
    if spec.description:
        tool["description"] = spec.description
    if spec.kind == "custom":
        if spec.format is not None:
            tool["format"] = spec.format
        return tool
    tool["parameters"] = spec.parameters
    if spec.strict is not None:
        tool["strict"] = spec.strict
    return tool


def _own_fields(spec: ToolSpec) -> dict[str, msgspec.Raw]:
    return spec.extra.fields if spec.extra is not None and spec.extra.protocol == PROTOCOL else {}


def _choice(choice: ToolChoice, specs: tuple[ToolSpec, ...]) -> Any:
    """Write the choice, or None where it is the default."""
    known = {spec.name: spec for spec in specs}
    if choice.mode == "named":
        return _reference(choice.name or "", known)
    if choice.allowed is None or choice.mode == "none":
        return None if choice.mode == "auto" else choice.mode
    allowed = [_reference(name, known) for name in choice.allowed if name in known]
    return {"type": "allowed_tools", "mode": choice.mode, "tools": allowed} if allowed else "none"


def _reference(name: str, known: dict[str, ToolSpec]) -> dict[str, str]:
    spec = known.get(name)
    if spec is None:
        return {"type": "function", "name": name}
    reference = {"type": spec.kind, "name": bare_name(spec)}
    return reference if spec.namespace is None else {**reference, "namespace": spec.namespace}


def _add_options(body: dict[str, Any], options: Options, extra: dict[str, msgspec.Raw], notes: Notes) -> None:
    if options.stop:
        notes.add("option_dropped", "dropped", "the Responses API has no 'stop'", "stop")
    if options.seed is not None:
        notes.add("option_dropped", "dropped", "the Responses API has no 'seed'", "seed")
    if options.max_output_tokens is not None:
        body["max_output_tokens"] = options.max_output_tokens
    if options.temperature is not None:
        body["temperature"] = options.temperature
    if options.top_p is not None:
        body["top_p"] = options.top_p
    if options.reasoning_effort is not None or "reasoning" in extra:
        _merge(body, "reasoning", extra, "effort", options.reasoning_effort)
    if options.output_schema is not None or "text" in extra:
        _merge(body, "text", extra, "format", options.output_schema)


def _merge(body: dict[str, Any], name: str, extra: dict[str, msgspec.Raw], inner: str, value: Any) -> None:
    """Write an object of which the client gave some fields and Treadle knows another; an empty one is left out."""
    raw = extra.pop(name, None)
    fields: dict[str, Any] = {} if raw is None else OBJECT.decode(raw)
    if value is not None:
        fields[inner] = value
    if fields:
        body[name] = fields


def _include(extra: dict[str, msgspec.Raw], model: str) -> list[str]:
    """Ask for sealed reasoning beside what the client wants included: without it reasoning cannot be continued."""
    others: list[str] = []
    if "include" in extra:
        try:
            others = [name for name in _words.decode(extra.pop("include")) if name != SEALED_REASONING]
        except msgspec.DecodeError:
            others = []
    return others if _THOUGHTLESS.match(model) else [*others, SEALED_REASONING]


def _extra_fields(options: Options, notes: Notes) -> dict[str, msgspec.Raw]:
    """Return the fields that Treadle does not act on and this API knows; the others are noted."""
    if options.extra_protocol == PROTOCOL:
        return {name: raw for name, raw in options.extra.items() if name not in _OURS}
    hosted = _borrowed(options, notes)
    names = _FROM_CHAT if options.extra_protocol == CHAT else {}
    given = unread(options)
    carried = {names[path]: raw for path, raw in given.items() if path in names}
    if HOSTED in hosted and CHOICE in given and kind_of(given[CHOICE]) in map(kind_of, LIST.decode(hosted[HOSTED])):
        carried[CHOICE] = given[CHOICE]
    searched = {SEARCH} if _asks_search(options) else set[str]()
    note_unread(options, {*names, *carried, *searched, HOSTED}, notes)
    extra = {name: raw for name, raw in carried.items() if "." not in name}
    if VERBOSITY in carried:
        extra["text"] = msgspec.Raw(write_json({"verbosity": carried[VERBOSITY]}))
    if LOGPROBS in carried:
        extra["include"] = msgspec.Raw(write_json([LOGPROBS.removeprefix("include.")]))
    return extra | hosted


def _borrowed(options: Options, notes: Notes) -> dict[str, msgspec.Raw]:
    """Return the tools of this API that a client of another one asked its upstream to run; the others are noted."""
    tools = LIST.decode(options.extra.get(HOSTED, b"[]"))
    ours = [tool for tool in tools if options.extra_protocol == CHAT and is_built_in(tool)]
    note_hosted([tool for tool in tools if tool not in ours], notes)
    if _asks_search(options):
        notes.add("web_search", "emulated", "a search that Chat always makes is a tool here", SEARCH)
        ours.append(_search(OBJECT.decode(options.extra[SEARCH])))
    return {HOSTED: msgspec.Raw(write_json(ours))} if ours else {}


def _asks_search(options: Options) -> bool:
    return options.extra_protocol == CHAT and starts_with(options.extra.get(SEARCH, NULL), "{")


def _search(options: dict[str, msgspec.Raw]) -> msgspec.Raw:
    """Return the search tool with Chat's options; the location of the user stands one level higher here."""
    place = options.pop("user_location", NULL)
    near = OBJECT.decode(place).get("approximate", NULL) if starts_with(place, "{") else NULL
    if starts_with(near, "{"):
        options["user_location"] = msgspec.Raw(write_json({"type": "approximate", **OBJECT.decode(near)}))
    return msgspec.Raw(write_json({"type": "web_search", **options}))
