"""Tools and the choice among them, as the Chat API spells them, in both directions.

Read: nested and flat definitions, legacy functions, every form of a choice. Written: always the nested form.
A custom tool's grammar is nested here and flat in the canonical spec, as in the Responses API.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.items import Extra
from treadle.core.json import write_json
from treadle.core.tool_definitions import AUTO, EMPTY_SCHEMA, ChoiceMode, ToolChoice, ToolSpec
from treadle.protocols.chat.content_parts import PROTOCOL
from treadle.protocols.field_reader import FLAG, LIST, OBJECT, TEXT, Fields, read_value, refusal, starts_with
from treadle.protocols.translation_notes import Notes, kind_of

_MODES: dict[str, ChoiceMode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_CHOICE: msgspec.json.Decoder[str | dict[str, msgspec.Raw]] = msgspec.json.Decoder(str | dict[str, msgspec.Raw])

BUILT_IN = frozenset(
    {
        "apply_patch",
        "code_interpreter",
        "computer",
        "computer_use_preview",
        "file_search",
        "image_generation",
        "local_shell",
        "mcp",
        "programmatic_tool_calling",
        "shell",
        "tool_search",
        "web_search",
        "web_search_preview",
    }
)
"""Tools of the Responses API, which a Chat upstream cannot have."""


class ReadTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a request: those that can be called back, and those that only the upstream itself can run."""

    specs: tuple[ToolSpec, ...] = ()
    others: tuple[msgspec.Raw, ...] = ()


def is_built_in(tool: msgspec.Raw) -> bool:
    """Return whether a tool is one of the Responses API; a nested one of the same name is a Chat provider's."""
    kind = kind_of(tool)
    return kind in BUILT_IN and kind not in OBJECT.decode(tool)


def read_tools(raws: list[msgspec.Raw], path: str, notes: Notes, *, legacy: bool = False) -> ReadTools:
    """Read the client's tools; those of types that cannot be called back are kept.

    Raises: ProtocolError.
    """
    specs: dict[str, ToolSpec] = {}
    others: list[msgspec.Raw] = []
    for position, raw in enumerate(raws):
        outer = Fields(raw, f"{path}[{position}]")
        kind = "function" if legacy else outer.get("type", TEXT) or "function"
        if kind not in ("function", "custom"):
            notes.add("tool_kept", "kept", f"a tool of type {kind!r} is left to the upstream", outer.path)
            others.append(raw.copy())
        else:
            spec = _read_tool(outer, kind)
            if specs.setdefault(spec.name, spec) is not spec:
                notes.add("duplicate_tool", "dropped", f"a second tool named {spec.name!r}", outer.path)
    return ReadTools(specs=tuple(specs.values()), others=tuple(others))


def read_choice(raw: msgspec.Raw, others: Sequence[msgspec.Raw], notes: Notes) -> ToolChoice | None:
    """Read `tool_choice` in any of its forms, S2's and the flat ones included; None where it names one of the others.

    Raises: ProtocolError.
    """
    path = "tool_choice"
    choice = read_value(_CHOICE, raw, path)
    if isinstance(choice, str):
        return ToolChoice(mode=_mode(choice, path))
    fields = Fields(raw, path)
    kind = fields.get("type", TEXT) or "function"
    if kind in ("function", "custom"):
        return ToolChoice(mode="named", name=_name(fields.object(kind) or fields))
    if kind == "allowed_tools":
        return _read_allowed(fields.object(kind) or fields, notes)
    if any(kind_of(tool) == kind for tool in others):
        return None
    notes.add("tool_choice_dropped", "dropped", f"no tool of type {kind!r} is offered", path)
    return AUTO


def read_legacy_choice(raw: msgspec.Raw) -> ToolChoice:
    """Read the legacy `function_call` of a request.

    Raises: ProtocolError.
    """
    path = "function_call"
    choice = read_value(_CHOICE, raw, path)
    if isinstance(choice, str):
        return ToolChoice(mode=_mode(choice, path))
    return ToolChoice(mode="named", name=_name(Fields(raw, path)))


def write_tool(spec: ToolSpec) -> msgspec.Raw:
    """Write one tool."""
    body: dict[str, Any] = {"name": spec.name}
    if spec.description:
        body["description"] = spec.description
    if spec.kind == "custom":
        body |= {} if spec.format is None else {"format": _nested_format(spec.format)}
    else:
        body["parameters"] = spec.parameters
        body |= {} if spec.strict is None else {"strict": spec.strict}
    extra = spec.extra.fields if spec.extra is not None and spec.extra.protocol == PROTOCOL else {}
    inner = OBJECT.decode(extra[spec.kind]) if spec.kind in extra else {}
    return msgspec.Raw(write_json({**extra, "type": spec.kind, spec.kind: {**inner, **body}}))


def write_choice(choice: ToolChoice, specs: Sequence[ToolSpec]) -> Any:
    """Write the choice among these tools, or None where the default says the same."""
    if choice.mode == "named":
        kind = next((spec.kind for spec in specs if spec.name == choice.name), "function")
        return {"type": kind, kind: {"name": choice.name}}
    return None if choice.mode == "auto" else choice.mode


def _read_tool(outer: Fields, kind: str) -> ToolSpec:
    nested = outer.object(kind)
    fields = nested or outer
    name, description = _name(fields), fields.get("description", TEXT) or ""
    if kind == "custom":
        form = fields.json_object("format")
        spec = ToolSpec(
            name=name, description=description, kind="custom", format=None if form is None else _flat_format(form)
        )
    else:
        parameters = fields.json_object("parameters") or EMPTY_SCHEMA
        strict = fields.get("strict", FLAG)
        spec = ToolSpec(name=name, description=description, parameters=parameters, strict=strict)
    inner = nested.rest() if nested is not None else {}
    rest = {**outer.rest(), **({kind: msgspec.Raw(write_json(inner))} if inner else {})}
    return msgspec.structs.replace(spec, extra=Extra(protocol=PROTOCOL, fields=rest)) if rest else spec


def _flat_format(raw: msgspec.Raw) -> msgspec.Raw:
    fields = OBJECT.decode(raw)
    grammar = fields.pop("grammar", None)
    if grammar is None or not starts_with(grammar, "{"):
        return raw
    return msgspec.Raw(write_json({**fields, **OBJECT.decode(grammar)}))


def _nested_format(raw: msgspec.Raw) -> msgspec.Raw:
    fields = OBJECT.decode(raw)
    if "definition" not in fields:
        return raw
    kind = fields.pop("type", msgspec.Raw(b'"grammar"'))
    return msgspec.Raw(write_json({"type": kind, "grammar": fields}))


def _read_allowed(fields: Fields, notes: Notes) -> ToolChoice:
    names: list[str] = []
    for position, raw in enumerate(fields.need("tools", LIST)):
        outer = Fields(raw, f"{fields.at('tools')}[{position}]")
        kind = outer.get("type", TEXT) or "function"
        if kind in ("function", "custom"):
            names.append(_name(outer.object(kind) or outer))
        else:
            notes.add("tool_choice_dropped", "dropped", "only tools that are called can be allowed", outer.path)
    mode = _mode(fields.get("mode", TEXT) or "auto", fields.at("mode"))
    return ToolChoice(mode=mode, allowed=tuple(names))


def _name(fields: Fields) -> str:
    name = fields.need("name", TEXT)
    if not name:
        raise refusal(fields.at("name"), "a name must not be empty")
    return name


def _mode(word: str, path: str) -> ChoiceMode:
    if word not in _MODES:
        raise refusal(path, f"{word!r} is not one of 'auto', 'none', 'required' or a named tool")
    return _MODES[word]
