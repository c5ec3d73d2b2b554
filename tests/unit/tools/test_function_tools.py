import asyncio
import functools
import inspect
import subprocess
import sys

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.core.json import read_json
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.tools import Tool, ToolContext, tool
from treadle.tools.function_tools import foreign_tool

CONTEXT = ToolContext(run_id="run_1")


def test_the_bare_decorator_makes_a_tool() -> None:
    """Name, description and schema come from the function, the policy from the defaults."""

    @tool
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    assert double.declared == ServerTool(
        spec=ToolSpec(
            name="double",
            description="Double a number.",
            parameters=msgspec.Raw(
                b'{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
            ),
        ),
        policy=ToolPolicy(),
        source="python",
    )
    assert double.is_async is False


def test_options_become_the_policy() -> None:
    """Every option of the decorator ends in the policy, the name in the spec."""

    @tool(
        name="facts.read",
        effect="read",
        approval="never",
        timeout_s=5,
        retries=2,
        output_bytes_max=1000,
        parallel=True,
        resources=("db",),
        exec=True,
        egress=True,
    )
    async def read() -> str:
        return "x"

    assert read.name == "facts.read"
    assert read.is_async is True
    assert read.policy == ToolPolicy(
        effect="read",
        approval="never",
        timeout_s=5,
        retries=2,
        output_bytes_max=1000,
        parallel=True,
        resources=("db",),
        exec=True,
        egress=True,
    )


def test_a_tool_is_still_the_function() -> None:
    """Calling a tool calls the function, and it keeps its name and docstring."""

    @tool
    def double(n: int) -> int:
        """Double a number."""
        return 2 * n

    assert double(4) == 8
    assert list(inspect.signature(double).parameters) == ["n"]
    assert (double.__name__, double.__doc__) == ("double", "Double a number.")  # type: ignore[attr-defined]


async def test_an_async_tool_is_still_the_coroutine_function() -> None:
    """Calling an async tool gives a coroutine."""

    @tool
    async def double(n: int) -> int:
        return 2 * n

    assert await double(4) == 8


def test_binding_converts_and_injects_the_context() -> None:
    """The bound call has typed values and the context under the name the function gave it."""

    @tool
    def show(n: float, ctx: ToolContext) -> tuple[float, str]:
        return n, ctx.run_id

    assert show.bind({"n": 1}, CONTEXT)() == (1.0, "run_1")
    assert list(read_json(bytes(show.spec.parameters))["properties"]) == ["n"]


def test_what_has_no_name_or_is_no_function_is_refused() -> None:
    """A lambda and a class are told apart from functions, by where they stand."""
    with pytest.raises(ConfigError, match="has no name of its own") as caught:
        tool(lambda: 1)
    assert caught.value.hint is not None
    assert tool(name="one")(lambda: 1)() == 1
    with pytest.raises(ConfigError, match=r"ToolContext.* is a class"):
        tool(ToolContext)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effect": "reads"}, "effect 'reads' is not one of read, idempotent, write, destructive"),
        ({"approval": 1}, "approval 1 is not one of never, always, by_effect"),
        ({"timeout_s": "long"}, "timeout_s"),
        ({"timeout_s": 0}, "timeout_s must be at least"),
        ({"retries": -1}, "retries must be at least 0"),
        ({"output_bytes_max": 1}, "output_bytes_max must be at least 256"),
        ({"colour": "red"}, "no option colour"),
        ({"name": "bad\nname"}, "cannot be printed"),
        ({"name": "x" * 129}, "1 to 128 characters"),
        ({"name": " x"}, "outer spaces"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], words: str) -> None:
    """The error names the function and the option."""

    def function() -> None: ...

    with pytest.raises(ConfigError, match=words) as caught:
        tool(**options)(function)  # type: ignore[call-overload]
    assert "test_function" in caught.value.message


@pytest.mark.parametrize("name", ["a.b", "weather-now", "天気", "🌦", "a b", "x" * 128])
def test_any_printable_name_is_taken(name: str) -> None:
    """Narrower charsets of providers are the wire's business."""

    @tool(name=name)
    def function() -> None: ...

    assert function.name == name


def test_what_is_not_a_function_is_refused() -> None:
    """The decorator says what it was given."""
    with pytest.raises(ConfigError, match="needs a function, not int"):
        tool(3)  # type: ignore[call-overload]


def test_a_wrapped_coroutine_function_is_seen_as_async() -> None:
    """A well-behaved decorator below @tool does not hide that the function is async."""

    def logged(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @tool
    @logged
    async def function(n: int) -> int:
        await asyncio.sleep(0)
        return n

    assert function.is_async is True
    assert function.spec.name == "function"


async def test_a_foreign_tool_takes_its_schema_as_written() -> None:
    """Unknown fields pass when the schema allows them; the handler gets plain values."""

    async def handler(arguments: dict[str, object], context: ToolContext) -> object:
        return [arguments, context.run_id]

    declared = ServerTool(spec=ToolSpec(name="x", parameters=msgspec.Raw(b'{"type":"object"}')), source="mcp:demo")
    made = foreign_tool(declared, handler)
    assert isinstance(made, Tool)
    assert made.validator.is_valid({"anything": 1})
    assert await made.bind({"anything": 1}, CONTEXT)() == [{"anything": 1}, "run_1"]
    with pytest.raises(TypeError, match="only be called by a model"):
        made()


def test_a_foreign_tool_with_a_dangerous_schema_is_refused() -> None:
    """The error names the source and the tool."""

    async def handler(arguments: dict[str, object], context: ToolContext) -> object:
        return None

    declared = ServerTool(
        spec=ToolSpec(name="x", parameters=msgspec.Raw(b'{"$ref":"http://127.0.0.1:9/a"}')), source="mcp:demo"
    )
    with pytest.raises(ConfigError, match='mcp:demo: the schema of "x" cannot be used'):
        foreign_tool(declared, handler)


def test_pydantic_is_not_imported_without_need() -> None:
    """Importing the room and decorating plain functions leaves pydantic alone, so that it stays optional."""
    code = (
        "import sys; from treadle.tools import tool\n"
        "@tool\ndef f(a: list[int] | None = None) -> int: return 1\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
