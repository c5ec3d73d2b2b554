"""Tools and the choice among them, as the Messages API spells them, in both directions.

A tool with a schema, and one of the API's own kinds that the client runs, can be called through any upstream. A tool
that the provider runs is kept as it was written, for upstreams of this protocol.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from treadle.core.items import Extra
from treadle.core.json import write_json
from treadle.core.memoized import Memo
from treadle.core.plan import Plan
from treadle.core.request import Note
from treadle.core.tool_definitions import AUTO, EMPTY_SCHEMA, NONE, ToolChoice, ToolSpec
from treadle.protocols.field_reader import FLAG, OBJECT, TEXT, Fields, refusal, starts_with
from treadle.protocols.messages.content_blocks import extra_of, own_fields
from treadle.protocols.messages.provider_state import PROTOCOL
from treadle.protocols.translation_notes import Notes

_PLAIN_TYPES = (None, "custom", "function")
_INPUT_SCHEMA = msgspec.Raw(b'{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}')


class _Known(msgspec.Struct, frozen=True):
    """A kind of tool whose schema the API leaves out because its models know it."""

    prefix: str
    description: str
    properties: dict[str, str]
    required: tuple[str, ...]


_FILE_FIELDS = {
    "command": "string",
    "path": "string",
    "file_text": "string",
    "old_str": "string",
    "new_str": "string",
    "insert_line": "integer",
    "insert_text": "string",
    "view_range": "array",
}
_KNOWN = (
    _Known(
        "bash_",
        "Run a command in a bash shell that lives on between calls; `restart` starts it anew.",
        {"command": "string", "restart": "boolean"},
        (),
    ),
    _Known(
        "text_editor_",
        "View and edit text files. `command` is one of view, create, str_replace, insert, undo_edit.",
        _FILE_FIELDS,
        ("command", "path"),
    ),
    _Known(
        "memory_",
        "Keep notes in files. `command` is one of view, create, str_replace, insert, delete, rename.",
        {**_FILE_FIELDS, "old_path": "string", "new_path": "string"},
        ("command",),
    ),
    _Known(
        "computer_2",
        "Use a screen, a mouse and a keyboard. `action` names what to do, such as screenshot, left_click, type, key.",
        {
            "action": "string",
            "coordinate": "array",
            "start_coordinate": "array",
            "text": "string",
            "duration": "number",
            "scroll_direction": "string",
            "scroll_amount": "integer",
        },
        ("action",),
    ),
)


class ToolShelf:
    """The tools of a request: those that can be called anywhere, and those that only the provider can run."""

    def __init__(self) -> None:
        self.specs: tuple[ToolSpec, ...] = ()
        self.hosted: list[msgspec.Raw] = []
        self._specs: dict[str, ToolSpec] = {}
        self._hosted_names: set[str] = set()

    def add(self, tools: Iterable[tuple[str, msgspec.Raw]], notes: Notes) -> None:
        """Read tools, each with its path.

        Raises: ProtocolError.
        """
        for path, raw in tools:
            self._add(raw, path, notes)
        self.specs = tuple(self._specs.values())

    def _add(self, raw: msgspec.Raw, path: str, notes: Notes) -> None:
        fields = Fields(raw, path)
        kind = fields.get("type", TEXT)
        spec = _read_plain(fields) if kind in _PLAIN_TYPES else _read_known(fields, kind or "")
        if spec is None:
            self._hosted_names.add(fields.get("name", TEXT) or kind or "")
            self.hosted.append(raw.copy())
        elif self._specs.setdefault(spec.name, spec) is not spec:
            notes.add("duplicate_tool", "dropped", f"a second tool named {spec.name!r}", path)

    def can_choose(self, choice: ToolChoice) -> bool:
        """Return whether a choice can be made here; the provider's own tools can only be chosen by the provider."""
        if choice.mode == "required":
            return not self.hosted or bool(self._specs)
        return choice.mode != "named" or choice.name not in self._hosted_names


def read_choice(raw: msgspec.Raw, notes: Notes) -> tuple[ToolChoice, bool | None]:
    """Read `tool_choice`, and whether several calls at once are allowed.

    Raises: ProtocolError.
    """
    path = "tool_choice"
    if starts_with(raw, '"'):
        raw = msgspec.Raw(b'{"type":' + bytes(raw) + b"}")
    fields = Fields(raw, path)
    single = fields.get("disable_parallel_tool_use", FLAG)
    parallel = None if single is None else not single
    kind = fields.need("type", TEXT)
    if kind == "tool":
        return ToolChoice(mode="named", name=_name(fields)), parallel
    if kind not in _MODES:
        notes.add("tool_choice_dropped", "dropped", f"a choice of type {kind!r} cannot be made here", path)
    return _MODES.get(kind, AUTO), parallel


_MODES = {"auto": AUTO, "any": ToolChoice(mode="required"), "required": ToolChoice(mode="required"), "none": NONE}


def write_tools(plan: Plan, hosted: list[msgspec.Raw], notes: Notes) -> dict[str, Any]:
    """Write the tools and the choice among them; nothing where there are no tools."""
    allowed = plan.tool_choice.allowed
    # Narrowing the list itself says the same as a list of allowed names, for which the API has no form.
    specs = plan.tools if allowed is None else tuple([spec for spec in plan.tools if spec.name in allowed])
    if not specs and not hosted:
        return {}
    written = _TOOLS.of(specs) if allowed is None else _written(specs)
    notes.repeat(written.notes)
    fields: dict[str, Any] = {"tools": [*written.tools, *hosted]}
    choice = _write_choice(plan.tool_choice, plan.options.parallel_tool_calls)
    return {**fields, "tool_choice": choice} if choice else fields


class _Written(NamedTuple):
    """Tools as they are written, and what had to be noted."""

    tools: tuple[msgspec.Raw, ...]
    notes: tuple[Note, ...]


def _written(specs: tuple[ToolSpec, ...]) -> _Written:
    notes = Notes()
    return _Written(tuple([msgspec.Raw(write_json(_write_tool(spec, notes))) for spec in specs]), notes.all())


_TOOLS: Memo[tuple[ToolSpec, ...], _Written] = Memo(_written)


def _write_choice(choice: ToolChoice, parallel: bool | None) -> dict[str, Any] | None:
    """Write the choice; `auto` is written only to carry the flag, and `none` never carries it."""
    written: dict[str, Any] = {"type": {"required": "any", "named": "tool"}.get(choice.mode, choice.mode)}
    if choice.mode == "named":
        written["name"] = choice.name
    if parallel is False and choice.mode != "none":
        written["disable_parallel_tool_use"] = True
    return None if written == {"type": "auto"} else written


def _write_tool(spec: ToolSpec, notes: Notes) -> dict[str, Any]:
    extra = own_fields(spec.extra, notes)
    if "type" in extra:
        return {"type": extra.pop("type"), "name": spec.name, **extra}
    written: dict[str, Any] = {"name": spec.name}
    if spec.description:
        written["description"] = spec.description
    written["input_schema"] = _INPUT_SCHEMA if spec.kind == "custom" else _object_schema(spec, notes)
    if spec.kind == "custom":
        notes.add("custom_tool", "emulated", "custom tools are offered as tools of one string")
    if spec.strict is not None:
        written["strict"] = spec.strict
    return {**written, **extra}


def _object_schema(spec: ToolSpec, notes: Notes) -> msgspec.Raw | dict[str, Any]:
    """Return the schema with the type that the API insists on."""
    schema = OBJECT.decode(spec.parameters)
    if "type" in schema and bytes(schema["type"]) == b'"object"':
        return spec.parameters
    if schema:
        notes.add("schema_type", "coerced", f"the schema of {spec.name!r} is not of type object and became one")
    return {**schema, "type": "object"}


def _read_plain(fields: Fields) -> ToolSpec:
    return ToolSpec(
        name=_name(fields),
        description=fields.get("description", TEXT) or "",
        parameters=fields.json_object("input_schema") or EMPTY_SCHEMA,
        strict=fields.get("strict", FLAG),
        extra=extra_of(fields),
    )


def _read_known(fields: Fields, kind: str) -> ToolSpec | None:
    """Read a tool of the API's own that the client runs; None for one that the provider runs."""
    known = next((known for known in _KNOWN if kind.startswith(known.prefix)), None)
    if known is None:
        return None
    schema = {
        "type": "object",
        "properties": {name: {"type": word} for name, word in known.properties.items()},
        "required": list(known.required),
    }
    name = _name(fields)
    rest = {"type": msgspec.Raw(msgspec.json.encode(kind)), **fields.rest()}
    return ToolSpec(
        name=name,
        description=known.description,
        parameters=msgspec.Raw(msgspec.json.encode(schema)),
        extra=Extra(protocol=PROTOCOL, fields=rest),
    )


def _name(fields: Fields) -> str:
    name = fields.need("name", TEXT)
    if not name:
        raise refusal(fields.at("name"), "a name must not be empty")
    return name
