"""Tools and the choice among them, as the Chat API spells them, in both directions.

Read: nested and flat definitions, legacy functions, every form of a choice. Written: always the nested form.
"""

from typing import Any

import msgspec

from treadle.canon.json import write_json
from treadle.canon.tools import AUTO, EMPTY_SCHEMA, ChoiceMode, ToolChoice, ToolSpec
from treadle.wire.fields import FLAG, LIST, TEXT, Fields, read_value, refusal
from treadle.wire.notes import Notes

_MODES: dict[str, ChoiceMode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_CHOICE: msgspec.json.Decoder[str | dict[str, msgspec.Raw]] = msgspec.json.Decoder(str | dict[str, msgspec.Raw])

_INPUT_SCHEMA = msgspec.Raw(
    b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}'
)


def read_tools(raws: list[msgspec.Raw], path: str, notes: Notes, *, legacy: bool = False) -> tuple[ToolSpec, ...]:
    """Read the client's tools; those that cannot be called here are dropped and noted.

    Raises: ProtocolError.
    """
    specs: dict[str, ToolSpec] = {}
    for position, raw in enumerate(raws):
        outer = Fields(raw, f"{path}[{position}]")
        kind = "function" if legacy else outer.get("type", TEXT) or "function"
        if kind not in ("function", "custom"):
            notes.add("tool_dropped", "dropped", f"tools of type {kind!r} cannot be called here", outer.path)
            continue
        fields = outer.object(kind) or outer
        spec = _read_custom(fields) if kind == "custom" else _read_function(fields)
        if specs.setdefault(spec.name, spec) is not spec:
            notes.add("duplicate_tool", "dropped", f"a second tool named {spec.name!r}", fields.path)
    return tuple(specs.values())


def read_choice(raw: msgspec.Raw, notes: Notes) -> ToolChoice:
    """Read `tool_choice` in any of its forms, S2's and the flat ones included.

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
        return _read_allowed(fields.object(kind) or fields)
    notes.add("tool_choice_dropped", "dropped", f"a choice of type {kind!r} cannot be made here", path)
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
    """Write one tool. A custom tool becomes a function that takes its free text as the string `input`."""
    description = spec.description
    parameters = spec.parameters
    if spec.kind == "custom":
        parameters = _INPUT_SCHEMA
        if spec.format is not None:
            description = f"{description}\n\nFormat of `input`: {bytes(spec.format).decode()}".lstrip()
    function: dict[str, Any] = {"name": spec.name}
    if description:
        function["description"] = description
    function["parameters"] = parameters
    if spec.strict is not None:
        function["strict"] = spec.strict
    return msgspec.Raw(write_json({"type": "function", "function": function}))


def write_choice(choice: ToolChoice) -> Any:
    """Write the choice, or None where the default says the same."""
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return None if choice.mode == "auto" else choice.mode


def _read_function(fields: Fields) -> ToolSpec:
    return ToolSpec(
        name=_name(fields),
        description=fields.get("description", TEXT) or "",
        parameters=fields.json_object("parameters") or EMPTY_SCHEMA,
        strict=fields.get("strict", FLAG),
    )


def _read_custom(fields: Fields) -> ToolSpec:
    return ToolSpec(
        name=_name(fields),
        description=fields.get("description", TEXT) or "",
        kind="custom",
        format=fields.json_object("format"),
    )


def _read_allowed(fields: Fields) -> ToolChoice:
    names: list[str] = []
    for position, raw in enumerate(fields.need("tools", LIST)):
        outer = Fields(raw, f"{fields.at('tools')}[{position}]")
        kind = outer.get("type", TEXT) or "function"
        if kind in ("function", "custom"):
            names.append(_name(outer.object(kind) or outer))
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
