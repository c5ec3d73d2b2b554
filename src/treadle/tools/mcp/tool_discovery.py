"""Turns a server's listing into tools, within limits on pages, tools, text and schemas.

Everything in a listing is untrusted. Invisible characters are removed, a tool whose schema expands too far is left out,
and every tool left out has a reason.
"""

import logging
import unicodedata
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Any, cast

import mcp_types as types
import msgspec

from treadle.core.errors import ConfigError
from treadle.core.json import cut_text, fingerprint, write_json
from treadle.core.tool_definitions import ServerTool, ToolSpec
from treadle.tools.function_tools import NAME_CHARS_MAX, Tool, foreign_tool
from treadle.tools.json_schema import BadSchema, Schema, Validator, every
from treadle.tools.mcp.annotation_policy import Hints, policy_of
from treadle.tools.mcp.server_options import ServerOptions
from treadle.tools.mcp.tool_names import join_name
from treadle.tools.mcp.tool_pins import ToolAppearance

log = logging.getLogger("treadle.mcp")

PAGES_MAX = 100
LISTED_MAX = 10_000
DESCRIPTION_BYTES_MAX = 8_192
SCHEMA_BYTES_MAX = 65_536

ListPage = Callable[[str | None], Awaitable[types.ListToolsResult]]
Call = Callable[[str, dict[str, Any], Any, Validator | None], Awaitable[object]]


class FoundTools(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a listing: tools and their appearances by the server's names, and why others were left out.

    `others` are the digests of tools that the configuration excludes.
    """

    tools: dict[str, Tool]
    looks: dict[str, ToolAppearance]
    others: dict[str, str]
    left_out: dict[str, str]


async def read_listing(list_page: ListPage) -> list[types.Tool]:
    """Read all pages, up to the limits.

    Raises: ValueError, when there are too many pages.
    """
    listed: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await list_page(cursor)
        listed += page.tools
        cursor = page.next_cursor
        if not cursor or len(listed) >= LISTED_MAX:
            return listed[:LISTED_MAX]
    raise ValueError(f"its listing of tools has more than {PAGES_MAX} pages")


def choose(listed: list[types.Tool], options: ServerOptions, call: Call) -> FoundTools:
    """Make tools of those that the allow-list includes and whose schemas are usable."""
    tools: dict[str, Tool] = {}
    looks: dict[str, ToolAppearance] = {}
    others: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for each in listed:
        name = each.name
        if not any(fnmatchcase(name, pattern) for pattern in options.tools):
            others[name] = digest_of(each)
            continue
        if name in tools or name in left_out:
            left_out[cut_text(name, NAME_CHARS_MAX)] = "the server lists two tools of this name"
            tools.pop(name, None)
            continue
        if len(tools) >= options.tools_max:
            left_out[cut_text(name, NAME_CHARS_MAX)] = f"there are more than {options.tools_max} tools"
            continue
        try:
            tools[name] = _tool(each, options, call)
            looks[name] = look_of(each)
        except (BadSchema, ConfigError, ValueError) as error:
            left_out[cut_text(name, NAME_CHARS_MAX)] = cut_text(str(error), 300)
    return FoundTools(tools=tools, looks={name: looks[name] for name in tools}, others=others, left_out=left_out)


def digest_of(tool: types.Tool) -> str:
    """Hash everything the server declares of a tool, so that any change of its text changes the digest."""
    return fingerprint(tool.model_dump(mode="json", by_alias=True, exclude_none=True))


def look_of(tool: types.Tool) -> ToolAppearance:
    """Return a tool's declaration as text for review: description, schemas and annotations on separate lines."""
    declared_fields = tool.model_dump(mode="json", by_alias=True, exclude_none=True)
    words = "\n".join(str(declared_fields.pop(key)) for key in ("title", "description") if declared_fields.get(key))
    declared_fields.pop("name", None)
    rest = msgspec.json.format(write_json(declared_fields), indent=2).decode()
    return ToolAppearance(digest=digest_of(tool), text=visible(f"{words}\n{rest}" if words else rest))


def visible(text: str) -> str:
    """Remove invisible characters: control characters, and those that hide, reorder or smuggle text."""
    shown = (char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co"))
    return "".join(shown)


def _tool(listed: types.Tool, options: ServerOptions, call: Call) -> Tool:
    schema = _schema(listed.input_schema)
    output = _output(listed, options.name)
    policy, why = policy_of(_hints(listed.annotations), options)
    declared = ServerTool(
        spec=ToolSpec(
            name=join_name(options.name, listed.name),
            description=cut_text(visible(listed.description or listed.title or ""), DESCRIPTION_BYTES_MAX),
            parameters=msgspec.Raw(write_json(schema)),
        ),
        policy=policy,
        source=options.source,
    )
    name = listed.name

    async def handle(arguments: dict[str, Any], context: Any) -> object:
        return await call(name, arguments, context, output)

    return foreign_tool(declared, handle).placed("remote" if options.url else "process", why)


def _hints(annotations: types.ToolAnnotations | None) -> Hints:
    if annotations is None:
        return Hints()
    return Hints(
        read_only=annotations.read_only_hint,
        destructive=annotations.destructive_hint,
        idempotent=annotations.idempotent_hint,
        open_world=annotations.open_world_hint,
    )


def _output(listed: types.Tool, server: str) -> Validator | None:
    """Return the validator of structured results; None for an unusable schema, since the model never sees it."""
    if listed.output_schema is None:
        return None
    try:
        return Validator(_bounded(listed.output_schema))
    except BadSchema as error:
        log.warning("MCP server %s: the output schema of %r is not used: %s", server, listed.name, error)
        return None


def _schema(given: dict[str, Any]) -> Schema:
    """Return a schema of bounded size without invisible characters.

    Raises: BadSchema.
    """
    schema = cast("Schema", msgspec.json.decode(_bounded(given)))
    if schema.get("type", "object") != "object":
        raise BadSchema("its schema is not that of an object")
    schema.setdefault("type", "object")
    for node in every(schema):
        for key in ("description", "title"):
            if isinstance(node.get(key), str):
                node[key] = visible(cast("str", node[key]))
    return schema


def _bounded(given: dict[str, Any]) -> msgspec.Raw:
    try:
        raw = write_json(given)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(f"the schema cannot be read: {error}") from None
    if len(raw) > SCHEMA_BYTES_MAX:
        raise BadSchema(f"its schema has {len(raw)} bytes; {SCHEMA_BYTES_MAX} are taken")
    return msgspec.Raw(raw)
