"""The `Tool` class and the `@tool` decorator, which turns a function into a tool.

A `Tool` joins a declaration (the specification shown to the model and the policy) with the code behind it. Timeouts,
output limits and error handling belong to the runner.
"""

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypedDict, Unpack, get_args, get_origin, overload

import msgspec

from treadle.core.errors import ConfigError
from treadle.core.json import write_json
from treadle.core.tool_definitions import Approval, Effect, ServerTool, ToolPolicy, ToolSpec
from treadle.tools.argument_validation import Converter
from treadle.tools.json_schema import BadSchema, Validator
from treadle.tools.signature_schema import label_of, read_signature, write_schema
from treadle.tools.tool_context import ToolContext

NAME_CHARS_MAX = 128

Style = Literal["plain", "s3"]
"""How results are rendered for the model: `data` alone, or the JSON format of the S3 local tools."""
Handler = Callable[[dict[str, Any], ToolContext], Awaitable[object]]
Bound = Callable[[], Any]
Refuses = Callable[[Mapping[str, Any]], str]
"""Returns why a call with these arguments would fail even if it were approved; "" when it may succeed."""
Sandbox = str | Callable[[], str]
"""Where a tool runs, one of SANDBOXES: a fixed value, or a function to call once it has run."""
DECLARED, DEFAULT = "declared", "default"


class PolicyOptions(TypedDict, total=False):
    """The policy options of `@tool`; see ToolPolicy."""

    effect: Effect
    approval: Approval
    timeout_s: float
    retries: int
    output_bytes_max: int
    parallel: bool
    resources: tuple[str, ...]
    exec: bool
    egress: bool
    untrusted: bool
    rate_per_min: int


class Tool:
    """A declared tool with its code. Calling it calls the function itself, unchecked, as in ordinary Python.

    `why` maps each policy field to the source of its value. A tool whose `is_on` is false cannot be offered or called.
    With `takes_context` false, the context passed to `bind` is ignored.
    """

    def __init__(
        self,
        declared: ServerTool,
        bind: Callable[[dict[str, Any], ToolContext], Bound],
        *,
        origin: str,
        is_async: bool = True,
        style: Style = "plain",
        function: Callable[..., Any] | None = None,
    ) -> None:
        check_name(declared.name, origin)
        self.declared = declared
        self.origin = origin
        self.is_async = is_async
        self.takes_context = True
        self.style: Style = style
        self.is_on = True
        self.refuses: Refuses | None = None
        self.why = why_declared(declared.policy)
        self._sandbox: Sandbox = "none"
        self.bind = bind
        try:
            self.validator = Validator(declared.spec.parameters)
        except BadSchema as error:
            raise ConfigError(f'{origin}: the schema of "{declared.name}" cannot be used: {error}') from None
        self._function = function
        if function is not None:
            functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function behind the tool."""
        if self._function is None:
            raise TypeError(f'"{self.name}" can only be called by a model')
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name} from {self.origin}>"

    @property
    def name(self) -> str:
        """Return the name that the model calls the tool by."""
        return self.declared.name

    @property
    def spec(self) -> ToolSpec:
        """Return the specification shown to the model."""
        return self.declared.spec

    @property
    def policy(self) -> ToolPolicy:
        """Return the policy the tool runs under."""
        return self.declared.policy

    @property
    def sandbox(self) -> str:
        """Return the sandbox the tool runs in."""
        return self._sandbox if isinstance(self._sandbox, str) else self._sandbox()

    def placed(self, sandbox: Sandbox, why: Mapping[str, str] | None = None) -> "Tool":
        """Set the sandbox and, in `why`, the sources of policy fields; return the tool."""
        self._sandbox = sandbox
        self.why |= why or {}
        return self

    def under(self, policy: ToolPolicy, why: Mapping[str, str] | None = None, *, is_on: bool = True) -> "Tool":
        """Return a copy of the tool under another policy; without `why`, every value counts as declared."""
        other = copy.copy(self)
        other.declared = msgspec.structs.replace(self.declared, policy=policy)
        other.why = why_declared(policy) if why is None else dict(why)
        other.is_on = is_on
        return other


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str | None = None, **options: Unpack[PolicyOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Unpack[PolicyOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a sync or async function: annotations become its schema, the docstring its description.

    Raises: ConfigError, naming the function and the parameter or option that is wrong.
    """

    def decorate(decorated: Callable[..., Any]) -> Tool:
        made = function_tool(decorated, name=name, policy=_policy(decorated, options))
        return made.placed("none", dict.fromkeys(options, DECLARED))

    return decorate if function is None else decorate(function)


def function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    policy: ToolPolicy | None = None,
    source: str = "python",
    style: Style = "plain",
) -> Tool:
    """Make a tool of a function, with the options that `@tool` does not offer.

    Raises: ConfigError.
    """
    if not callable(function):
        raise ConfigError(f"@tool needs a function, not {type(function).__name__}")
    origin = label_of(function)
    if inspect.isclass(function):
        raise ConfigError(f"{origin} is a class; make a tool of a function, or of a method of an instance")
    if not name and getattr(function, "__name__", "") in ("", "<lambda>"):
        raise ConfigError(f"{origin} has no name of its own", hint='give it one: tool(name="…")(…)')
    signature = read_signature(function)
    spec = ToolSpec(
        name=name or getattr(function, "__name__", ""),
        description=signature.description,
        parameters=msgspec.Raw(write_json(write_schema(signature, origin))),
    )
    converter = Converter(spec.name, signature.parameters)

    def bind(arguments: dict[str, Any], context: ToolContext) -> Bound:
        values = converter.convert(arguments)
        for name in signature.context_names:
            values[name] = context
        return functools.partial(function, **values)

    made = Tool(
        ServerTool(spec=spec, policy=policy or ToolPolicy(), source=source),
        bind,
        origin=origin,
        is_async=inspect.iscoroutinefunction(inspect.unwrap(function)),
        style=style,
        function=function,
    )
    made.takes_context = bool(signature.context_names)
    return made


def foreign_tool(declared: ServerTool, handler: Handler) -> Tool:
    """Make a tool from an existing schema, used unchanged; the handler gets plain JSON values.

    Raises: ConfigError, when the schema is invalid or expands too far.
    """

    def bind(arguments: dict[str, Any], context: ToolContext) -> Bound:
        return functools.partial(handler, arguments, context)

    return Tool(declared, bind, origin=declared.source)


def why_declared(policy: ToolPolicy) -> dict[str, str]:
    """Return for each field whether it was declared; a declared value equal to the default counts as default."""
    return {
        field.name: DEFAULT if getattr(policy, field.name) == field.default else DECLARED
        for field in msgspec.structs.fields(ToolPolicy)
    }


def check_name(name: str, origin: str) -> None:
    """Accept any printable name; providers with a narrower character set get a mapped one.

    Raises: ConfigError.
    """
    if not name or len(name) > NAME_CHARS_MAX:
        raise ConfigError(f"{origin}: a tool's name has 1 to {NAME_CHARS_MAX} characters, not {len(name)}")
    if not name.isprintable() or name != name.strip():
        raise ConfigError(f"{origin}: the tool name {name!r} has characters that cannot be printed, or outer spaces")


def _policy(function: Callable[..., Any], options: PolicyOptions) -> ToolPolicy:
    unknown = set(options) - set(ToolPolicy.__struct_fields__)
    if unknown:
        known = f"there are name, {', '.join(ToolPolicy.__struct_fields__)}"
        raise ConfigError(f"{label_of(function)}: @tool has no option {', '.join(sorted(unknown))}", hint=known)
    for field in msgspec.structs.fields(ToolPolicy):
        value, choices = options.get(field.name, field.default), get_args(field.type)
        if get_origin(field.type) is Literal and value not in choices:
            raise ConfigError(f"{label_of(function)}: {field.name} {value!r} is not one of {', '.join(choices)}")
    try:
        policy = msgspec.convert({**options}, ToolPolicy, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{label_of(function)}: wrong option of @tool: {error}") from None
    for field, least in (("timeout_s", 0.001), ("retries", 0), ("output_bytes_max", 256), ("rate_per_min", 0)):
        if getattr(policy, field) < least:
            raise ConfigError(f"{label_of(function)}: {field} must be at least {least:g}")
    return policy
