"""Reading the tools of a request and which of them the model may or must call.

A tool that can be called back (function, custom, or a namespace of them) becomes a spec; one that only its
provider can run is kept for upstreams of this protocol. A namespace is flattened into the name, because no other
protocol has one.
"""

from collections.abc import Callable, Iterable

import msgspec

from treadle.core.errors import ProtocolError
from treadle.core.items import CallItem, Extra
from treadle.core.json import write_json
from treadle.core.request import Note
from treadle.core.tool_definitions import AUTO, EMPTY_SCHEMA, NONE, ToolChoice, ToolSpec
from treadle.protocols.field_reader import NULL, at, missing
from treadle.protocols.field_reader import read_value as read
from treadle.protocols.responses.content_parts import PROTOCOL, extra_of

PLAIN_NAMESPACE = "functions"
"""The namespace whose tools go by their bare name."""

ABOUT = "namespace.description"
"""The extra field of the first tool of a namespace that says what the namespace is for."""


def flat_name(name: str, namespace: str | None) -> str:
    """Return the name the model knows a tool of a namespace by."""
    return name if not namespace or namespace == PLAIN_NAMESPACE else f"{namespace}__{name}"


def bare_name(named: ToolSpec | CallItem) -> str:
    """Return the name that a tool has inside its namespace."""
    if named.namespace is None or named.namespace == PLAIN_NAMESPACE:
        return named.name
    return named.name.removeprefix(f"{named.namespace}__")


class _Function(msgspec.Struct, kw_only=True):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = NULL
    strict: bool | None = None
    format: msgspec.Raw = NULL


class _Nested(msgspec.Struct, kw_only=True):
    function: _Function


class _Head(msgspec.Struct, kw_only=True):
    type: str = "function"
    function: msgspec.Raw = NULL
    server_label: str | None = None


class _Namespace(msgspec.Struct, kw_only=True):
    name: str
    tools: list[msgspec.Raw]
    description: str | None = None


class _Named(msgspec.Struct, kw_only=True):
    name: str | None = None
    namespace: str | None = None


class _Choice(msgspec.Struct, kw_only=True):
    type: str
    name: str | None = None
    namespace: str | None = None
    function: _Named | None = None
    custom: _Named | None = None
    mode: str | None = None
    tools: list["_Choice"] | None = None
    allowed_tools: msgspec.Raw = NULL
    server_label: str | None = None


class _Allowed(msgspec.Struct, kw_only=True):
    mode: str | None = None
    tools: list[_Choice] | None = None


_head = msgspec.json.Decoder(_Head)
_function = msgspec.json.Decoder(_Function)
_nested = msgspec.json.Decoder(_Nested)
_namespace = msgspec.json.Decoder(_Namespace)
_choice: msgspec.json.Decoder[str | _Choice | None] = msgspec.json.Decoder(str | _Choice | None)
_allowed = msgspec.json.Decoder(_Allowed)


class ToolShelf:
    """Collects the specs of a request by their flat names, in the order they came, beside what was `given`."""

    def __init__(self, given: "ToolShelf | None" = None) -> None:
        self.specs: tuple[ToolSpec, ...] = () if given is None else given.specs
        self.notes: list[Note] = [] if given is None else [*given.notes]
        self.hosted: list[msgspec.Raw] = [] if given is None else [*given.hosted]
        self._specs: dict[str, ToolSpec] = {} if given is None else {**given._specs}
        self._spaces: set[str] = set() if given is None else {*given._spaces}

    def add(self, raws: Iterable[msgspec.Raw], path: str) -> None:
        """Read a list of tools that stands at `path`.

        Raises: ProtocolError, naming the field.
        """
        self._add(raws, path)
        self.specs = tuple(self._specs.values())

    def _add(self, raws: Iterable[msgspec.Raw], path: str, space: _Namespace | None = None) -> None:
        """Read a list of tools, perhaps inside a namespace."""
        for index, raw in enumerate(raws):
            place = f"{path}[{index}]"
            head = read(_head, raw, place)
            match head.type:
                case "function":
                    self._keep(_read_function(raw, head, place), space, place)
                case "custom":
                    self._keep(_read_custom(raw, place), space, place)
                case "namespace":
                    inner = read(_namespace, raw, place)
                    self._add(inner.tools, at(place, "tools"), inner)
                case hosted:
                    self._host(raw, hosted, place)

    def find(self, name: str, namespace: str | None) -> str:
        """Return the flat name of a tool that a client may name with or without its namespace."""
        flat = flat_name(name, namespace)
        if flat in self._specs:
            return flat
        matches = [spec.name for spec in self._specs.values() if bare_name(spec) == name]
        return matches[0] if len(matches) == 1 else flat

    def hosts(self, choice: _Choice) -> bool:
        """Return whether a choice names a tool that the upstream shall run."""
        return any(_is_meant(choice, read(_head, raw, "tools")) for raw in self.hosted)

    def narrow(self, choices: list[_Choice]) -> None:
        """Leave only those of the tools that the upstream shall run which are named."""
        heads = [(raw, read(_head, raw, "tools")) for raw in self.hosted]
        self.hosted = [raw for raw, head in heads if any(_is_meant(choice, head) for choice in choices)]

    def _keep(self, spec: ToolSpec, space: _Namespace | None, path: str) -> None:
        if space is not None:
            spec = msgspec.structs.replace(
                spec, name=flat_name(spec.name, space.name), namespace=space.name, extra=self._about(spec, space)
            )
        earlier = self._specs.get(spec.name)
        if earlier is not None and earlier != spec:
            self._drop("duplicate_tool", f"an earlier definition of the tool '{spec.name}' is replaced", path)
        self._specs[spec.name] = spec

    def _about(self, spec: ToolSpec, space: _Namespace) -> Extra | None:
        """Return a tool's extra fields; the first one of a namespace says what that is for."""
        if not space.description or space.name in self._spaces:
            return spec.extra
        self._spaces.add(space.name)
        fields = {} if spec.extra is None else spec.extra.fields
        return Extra(protocol=PROTOCOL, fields={**fields, ABOUT: msgspec.Raw(write_json(space.description))})

    def _host(self, raw: msgspec.Raw, kind: str, path: str) -> None:
        self.hosted.append(raw.copy())
        message = f"the hosted tool '{kind}' is only offered to upstreams of the Responses API"
        self.notes.append(Note(code="hosted_tool", action="kept", message=message, field=path))

    def _drop(self, code: str, message: str, path: str) -> None:
        self.notes.append(Note(code=code, action="dropped", message=message, field=path))


def mcp_servers(raws: Iterable[msgspec.Raw]) -> frozenset[str]:
    """Return the labels of the MCP servers that the upstream shall call.

    Raises: ProtocolError.
    """
    heads = (read(_head, raw, f"tools[{index}]") for index, raw in enumerate(raws))
    return frozenset(head.server_label for head in heads if head.type == "mcp" and head.server_label is not None)


def read_choice(raw: msgspec.Raw, shelf: ToolShelf) -> ToolChoice | None:
    """Read `tool_choice` in any of its forms; None where it names a tool that the upstream shall run.

    A hosted tool that is not offered cannot be forced and is noted.

    Raises: ProtocolError.
    """
    choice = read(_choice, raw, "tool_choice")
    if choice is None:
        return AUTO
    if isinstance(choice, str):
        return _mode(choice, "tool_choice", _MODES)
    return _FORMS.get(choice.type, _hosted)(choice, shelf)


_MODES = {"auto": AUTO, "none": NONE, "required": ToolChoice(mode="required")}
_ALLOWED_MODES = {"auto": AUTO, "required": ToolChoice(mode="required")}


def _mode(word: str, path: str, modes: dict[str, ToolChoice]) -> ToolChoice:
    if word not in modes:
        raise ProtocolError(f"'{path}': '{word}' is none of {', '.join(modes)}", param=path)
    return modes[word]


def _named(choice: _Choice, shelf: ToolShelf) -> ToolChoice:
    name = _name_of(choice, shelf)
    if name is None:
        raise missing("tool_choice.name")
    return ToolChoice(mode="named", name=name)


def _server(choice: _Choice, shelf: ToolShelf) -> ToolChoice | None:
    if choice.name is None or shelf.hosts(choice):
        return _hosted(choice, shelf)
    return ToolChoice(mode="named", name=choice.name)


def _narrowed(choice: _Choice, shelf: ToolShelf) -> ToolChoice:
    nested = choice.allowed_tools != NULL
    path = "tool_choice.allowed_tools" if nested else "tool_choice"
    allowed = read(_allowed, choice.allowed_tools, path) if nested else _Allowed(mode=choice.mode, tools=choice.tools)
    if allowed.tools is None:
        raise missing(at(path, "tools"))
    mode = _mode(allowed.mode or "auto", at(path, "mode"), _ALLOWED_MODES)
    names = [_allowed_name(entry, shelf) for entry in allowed.tools]
    shelf.narrow(allowed.tools)
    return msgspec.structs.replace(mode, allowed=tuple(name for name in names if name is not None))


def _allowed_name(entry: _Choice, shelf: ToolShelf) -> str | None:
    name = None if shelf.hosts(entry) else _name_of(entry, shelf)
    if name is None:
        _hosted(entry, shelf)
    return name


def _hosted(choice: _Choice, shelf: ToolShelf) -> ToolChoice | None:
    """Leave a choice to the upstream that shall run the tool; one that nobody offers cannot be made."""
    if shelf.hosts(choice):
        return None
    message = f"the hosted tool '{choice.type}' is not offered and cannot be chosen"
    shelf.notes.append(Note(code="tool_choice_dropped", action="dropped", message=message, field="tool_choice"))
    return AUTO


def _is_meant(choice: _Choice, tool: _Head) -> bool:
    """Return whether a choice names this tool; dated and preview kinds go by the shorter name too."""
    if choice.type == "mcp":
        return tool.type == "mcp" and choice.server_label in (None, tool.server_label)
    kinds = sorted((choice.type, tool.type), key=len)
    return bool(kinds[0]) and choice.type not in ("function", "custom") and kinds[1].startswith(kinds[0])


def _name_of(choice: _Choice, shelf: ToolShelf) -> str | None:
    inner = choice.function or choice.custom
    name = choice.name or (inner.name if inner else None)
    return None if name is None else shelf.find(name, choice.namespace or (inner.namespace if inner else None))


_FORMS: dict[str, Callable[[_Choice, ToolShelf], ToolChoice | None]] = {
    "function": _named,
    "custom": _named,
    "mcp": _server,
    "allowed_tools": _narrowed,
}


def _read_function(raw: msgspec.Raw, head: _Head, path: str) -> ToolSpec:
    # The nested form is that of Chat Completions; S2's clients send it here too.
    is_flat = head.function == NULL
    tool = read(_function, raw, path) if is_flat else read(_nested, raw, path).function
    return ToolSpec(
        name=tool.name,
        description=tool.description or "",
        parameters=EMPTY_SCHEMA if tool.parameters == NULL else tool.parameters,
        strict=tool.strict,
        extra=extra_of(raw if is_flat else head.function, "name", "description", "parameters", "strict"),
    )


def _read_custom(raw: msgspec.Raw, path: str) -> ToolSpec:
    tool = read(_function, raw, path)
    return ToolSpec(
        name=tool.name,
        description=tool.description or "",
        kind="custom",
        format=None if tool.format == NULL else tool.format,
        extra=extra_of(raw, "name", "description", "format"),
    )
