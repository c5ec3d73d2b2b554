"""Derives a tool's schema from a Python function: JSON Schema from its types, descriptions from its docstring.

msgspec describes the types, or pydantic for parameters that use it; pydantic is imported only if the function's own
module did so. Functions and parameters that cannot be described are refused by name.
"""

import contextlib
import importlib
import inspect
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any, cast

import msgspec

from treadle.core.errors import ConfigError
from treadle.tools.json_schema import Schema, every
from treadle.tools.tool_context import ToolContext

_SECTION = re.compile(r"^(args|arguments|parameters):$", re.IGNORECASE)
_ENTRY = re.compile(r"^\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)$")
_REFUSED_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; the model names its arguments",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of values; use a list parameter",
    inspect.Parameter.VAR_KEYWORD: "takes any names; use a dict parameter",
}


class FunctionParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a tool; `pydantic` is its TypeAdapter if it uses pydantic types."""

    name: str
    annotation: Any
    description: str = ""
    default: Any = inspect.Parameter.empty
    pydantic: Any = None

    @property
    def is_required(self) -> bool:
        """Return whether the model must supply it."""
        return self.default is inspect.Parameter.empty


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """A function's parameters: those the model fills, and the names of those that receive the context."""

    parameters: tuple[FunctionParameter, ...]
    description: str
    context_names: tuple[str, ...] = ()


def read_signature(function: Callable[..., Any]) -> Signature:
    """Read a function's parameters and docstring.

    Raises: ConfigError, naming the function and the unsupported parameter.
    """
    label = label_of(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{label} is a generator; a tool returns one value")
    hints = _hints(function, label)
    description, documented = read_docstring(inspect.getdoc(function) or "")
    parameters: list[FunctionParameter] = []
    context_names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _REFUSED_KINDS:
            raise ConfigError(f'{label}: parameter "{parameter.name}" {_REFUSED_KINDS[parameter.kind]}')
        if parameter.name not in hints:
            raise ConfigError(f'{label}: parameter "{parameter.name}" has no type annotation')
        if _wants_context(hints[parameter.name]):
            context_names.append(parameter.name)
            continue
        parameters.append(_parameter(parameter, hints[parameter.name], documented.get(parameter.name, ""), label))
    return Signature(parameters=tuple(parameters), description=description, context_names=tuple(context_names))


def write_schema(signature: Signature, label: str) -> Schema:
    """Describe the parameters as one JSON Schema that refuses unknown fields at every level.

    Raises: ConfigError, naming the parameter whose type has no JSON form.
    """
    plain = [parameter for parameter in signature.parameters if parameter.pydantic is None]
    schemas, definitions = _msgspec_schemas(plain, label)
    for index, parameter in enumerate(signature.parameters):
        if parameter.pydantic is not None:
            schemas[parameter.name] = _pydantic_schema(parameter, f"p{index}_", definitions, label)
    properties = {parameter.name: _property(parameter, schemas[parameter.name]) for parameter in signature.parameters}
    root: Schema = {"type": "object", "properties": properties}
    required = [parameter.name for parameter in signature.parameters if parameter.is_required]
    if required:
        root["required"] = required
    if definitions:
        root["$defs"] = definitions
    for node in every(root):
        node.pop("title", None)
        if "properties" in node:
            node.setdefault("additionalProperties", False)
    return root


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into its first paragraph and the descriptions of a Google-style `Args:` section."""
    lines = inspect.cleandoc(text).splitlines()
    first: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.match(line.strip()):
            break
        first.append(line.strip())
    start = next((index for index, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return " ".join(first), _entries(lines[start + 1 :])


def label_of(function: Callable[..., Any]) -> str:
    """Return a function's name for messages: `module.function (file.py:12)`."""
    name = f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', type(function).__name__)}"
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{name} ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})" if code else name


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    name, indent = "", 0
    for line in lines:
        if line and not line[0].isspace():
            break
        depth = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line.strip()) if not found or depth <= indent else None
        if entry:
            name, indent = entry[1], depth
            found[name] = entry[2]
        elif name and line.strip():
            found[name] = f"{found[name]} {line.strip()}".strip()
    return found


def _hints(function: Callable[..., Any], label: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise ConfigError(f"{label}: an annotation cannot be resolved: {error}") from None


def _wants_context(annotation: Any) -> bool:
    return annotation is ToolContext or ToolContext in typing.get_args(annotation)


def _parameter(parameter: inspect.Parameter, annotation: Any, documented: str, label: str) -> FunctionParameter:
    return FunctionParameter(
        name=parameter.name,
        annotation=Any if annotation is object else annotation,
        description=_annotated_description(annotation) or documented,
        default=parameter.default,
        pydantic=_adapter(annotation, f'{label}: parameter "{parameter.name}"') if _is_pydantic(annotation) else None,
    )


def _annotated_description(annotation: Any) -> str:
    """Return the text of `Annotated[int, "text"]`, or the description of a metadata object."""
    if typing.get_origin(annotation) is not Annotated:
        return ""
    for extra in annotation.__metadata__:
        text = extra if isinstance(extra, str) else getattr(extra, "description", getattr(extra, "documentation", None))
        if isinstance(text, str) and text:
            return text
    return ""


def _is_pydantic(annotation: Any) -> bool:
    if hasattr(annotation, "model_json_schema") or hasattr(annotation, "__pydantic_validator__"):
        return True
    extras = getattr(annotation, "__metadata__", ())
    if any(type(extra).__module__.partition(".")[0] == "pydantic" for extra in extras):
        return True
    return any(_is_pydantic(inner) for inner in typing.get_args(annotation))


def _adapter(annotation: Any, label: str) -> Any:
    pydantic = importlib.import_module("pydantic")
    try:
        return pydantic.TypeAdapter(annotation)
    except pydantic.errors.PydanticUserError as error:
        raise ConfigError(f"{label}: pydantic cannot describe its type: {_first_line(error)}") from None


def _msgspec_schemas(parameters: list[FunctionParameter], label: str) -> tuple[dict[str, Schema], dict[str, Schema]]:
    for parameter in parameters:
        try:
            msgspec.json.schema(parameter.annotation)
        except TypeError as error:
            reason = _first_line(error) if "custom types" not in str(error) else "it has no JSON form"
            raise ConfigError(
                f'{label}: parameter "{parameter.name}" has a type that cannot be described: {reason}',
                hint="use plain types, dataclasses, TypedDict, msgspec or pydantic models",
            ) from None
    described, definitions = msgspec.json.schema_components(
        [parameter.annotation for parameter in parameters], ref_template="#/$defs/{name}"
    )
    schemas = {parameter.name: schema for parameter, schema in zip(parameters, described, strict=True)}
    return schemas, definitions


def _pydantic_schema(parameter: FunctionParameter, prefix: str, definitions: dict[str, Schema], label: str) -> Schema:
    """Describe the parameter by pydantic; the prefix keeps its definitions from colliding with other parameters'."""
    pydantic = importlib.import_module("pydantic")
    try:
        schema: Schema = parameter.pydantic.json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    except pydantic.errors.PydanticUserError as error:
        raise ConfigError(f'{label}: parameter "{parameter.name}": {_first_line(error)}') from None
    own = cast("dict[str, Schema]", schema.pop("$defs", {}))
    definitions.update({f"{prefix}{name}": value for name, value in own.items()})
    return schema


def _property(parameter: FunctionParameter, schema: Schema) -> Schema:
    extra: Schema = {}
    if parameter.description and "description" not in schema:
        extra["description"] = parameter.description
    if not parameter.is_required and parameter.default is not None and "default" not in schema:
        # A default that JSON cannot express still applies; it is only absent from the schema.
        with contextlib.suppress(TypeError, ValueError):
            extra["default"] = msgspec.json.decode(msgspec.json.encode(parameter.default))
    return {**schema, **extra}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
