"""A generateContent request as a canonical one.

The model and whether to stream stand in the address, not in the body, so the caller gives them. What Treadle acts on
is typed and checked; what it does not know travels on, as it was written, to upstreams of Gemini.
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import msgspec

from treadle.core.json import write_json
from treadle.core.request import Options, Request, Surface
from treadle.protocols.field_reader import (
    FLAG,
    INTEGER,
    LIST,
    NUMBER,
    TEXT,
    members_in,
    open_request,
    read_value,
    refusal,
    starts_with,
)
from treadle.protocols.gemini.client_contents import SHAPES, ContentReader, read_parts
from treadle.protocols.gemini.field_spelling import PROTOCOL, CamelFields
from treadle.protocols.gemini.tools import Toolset, json_schema, read_choice, read_tools
from treadle.protocols.translation_notes import Notes, Recent

JSON_TYPE = "application/json"
SCHEMA_NAME = "response"
MODELS = "models/"
STREAM_VERB = "streamGenerateContent"
CANDIDATES_MAX = 8
"""Each candidate is a run of its own, with model calls and tools of its own."""

_STOP: msgspec.json.Decoder[list[str]] = msgspec.json.Decoder(list[str])
_EFFORT_OF_LEVEL = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_EFFORT_OF_BUDGET = ((0, "none"), (2_048, "low"), (12_288, "medium"))
"""Up to that many tokens of thought; more is high, and a negative budget leaves it to the model."""


def read_request(body: bytes, *, model: str = "", stream: bool = False, is_array: bool = False) -> Request:
    """Read a client's request; `is_array` where it streams without `alt=sse`.

    Raises: ProtocolError, with `param` naming the field.
    """
    notes = Notes()
    fields, contents = _open(body, notes)
    named = fields.get("model", TEXT) or ""
    if contents:
        fields.raw("contents")
        items = ContentReader(notes).read_decoded(contents, "contents")
    else:
        items = ContentReader(notes).read(_contents(fields), "contents")
    instructions = _read_instructions(fields, notes)
    tools = fields.raw("tools")
    toolset = Toolset() if tools is None else _TOOLS.of(tools, notes)
    choice, extra = read_choice(fields.object("toolConfig"))
    store = fields.get("store", FLAG)
    config = fields.object("generationConfig") or CamelFields(b"{}", "generationConfig")
    surface = Surface(stream=stream, is_array=stream and is_array, choices=_read_count(config))
    return Request(
        protocol=PROTOCOL,
        model=(model or named).removeprefix(MODELS),
        items=items,
        instructions=instructions,
        tools=toolset.functions,
        tool_choice=choice,
        options=_read_options(fields, config, toolset, extra),
        surface=surface,
        store=store is not False,
        notes=notes.all(),
    )


def read_posted(path: str, body: bytes) -> Request:
    """Read a request with the path that it was posted to, which ends in the model and a verb.

    Raises: ProtocolError, with `param` naming the field.
    """
    model, _, verb = path.partition("?")[0].rpartition("/models/")[2].rpartition(":")
    return read_request(body, model=unquote(model), stream=verb == STREAM_VERB)


def _open(body: bytes, notes: Notes) -> tuple[CamelFields, Sequence[Any] | None]:
    opened = open_request(body, "contents", SHAPES)
    if opened.mended:
        notes.add("lone_surrogate", "coerced", "halves of surrogate pairs became U+FFFD", count=opened.mended)
    return CamelFields(opened.data, "", members_in(opened)), opened.known


def _contents(fields: CamelFields) -> list[msgspec.Raw]:
    raw = fields.raw("contents")
    found = [] if raw is None else _list(raw, "contents")
    if not found:
        raise refusal("contents", "at least one is needed", "missing_required_parameter")
    return found


def _list(raw: msgspec.Raw, name: str) -> list[msgspec.Raw]:
    """Read a list; one object alone stands for a list of one."""
    return [raw] if starts_with(raw, "{") else read_value(LIST, raw, name)


def _read_tools(raw: msgspec.Raw, notes: Notes) -> Toolset:
    return read_tools(_list(raw, "tools"), "tools", notes)


_TOOLS = Recent(_read_tools)


def _read_instructions(fields: CamelFields, notes: Notes) -> str | None:
    raw = fields.raw("systemInstruction")
    if raw is None:
        return None
    if starts_with(raw, '"'):
        return read_value(TEXT, raw, "systemInstruction")
    texts: list[str] = []
    for part in read_parts(CamelFields(raw, "systemInstruction")):
        text = part.get("text", TEXT)
        if text is None:
            notes.add("instruction_dropped", "dropped", "an instruction that is not text", part.path)
        elif text:
            texts.append(text)
    return "\n\n".join(texts) or None


def _read_options(
    fields: CamelFields, config: CamelFields, toolset: Toolset, tool_config: dict[str, msgspec.Raw]
) -> Options:
    tokens_max = config.get("maxOutputTokens", INTEGER)
    options = Options(
        max_output_tokens=tokens_max if tokens_max and tokens_max > 0 else None,
        temperature=config.get("temperature", NUMBER),
        top_p=config.get("topP", NUMBER),
        stop=tuple(config.get("stopSequences", _STOP) or ()),
        seed=config.get("seed", INTEGER),
        output_schema=_read_schema(config),
    )
    effort = _read_effort(config)
    extra = _nonempty(
        {
            **fields.rest(),
            "generationConfig": config.rest(),
            "toolConfig": tool_config,
            "tools": list(toolset.hosted),
        }
    )
    return msgspec.structs.replace(options, reasoning_effort=effort, extra=extra, extra_protocol=PROTOCOL)


def _nonempty(values: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(write_json(value)) for name, value in values.items() if value}


def _read_count(config: CamelFields) -> int:
    """Take how many candidates are wanted.

    Raises: ProtocolError.
    """
    count = config.get("candidateCount", INTEGER)
    if count is not None and not 0 <= count <= CANDIDATES_MAX:
        raise refusal(config.at("candidateCount"), f"Expected `int` from 1 to {CANDIDATES_MAX}")
    return count or 1


def _read_schema(config: CamelFields) -> msgspec.Raw | None:
    """Take what the answer shall look like, as the Responses API says it; other types than JSON stay where they are."""
    given = config.peek("responseMimeType")
    kind = None if given is None else read_value(TEXT, given, config.at("responseMimeType"))
    if kind not in (None, JSON_TYPE):
        return None
    config.raw("responseMimeType")
    described, declared = config.json_object("responseJsonSchema"), config.json_object("responseSchema")
    schema = described or declared
    if schema is None:
        return msgspec.Raw(b'{"type":"json_object"}') if kind else None
    form = {"type": "json_schema", "name": SCHEMA_NAME, "schema": json_schema(schema)}
    return msgspec.Raw(write_json(form))


def _read_effort(config: CamelFields) -> str | None:
    """Read how hard to think, as other providers say it; for Gemini's own upstreams the config itself is kept."""
    raw = config.peek("thinkingConfig")
    if raw is None:
        return None
    thinking = CamelFields(raw, config.at("thinkingConfig"))
    level, budget = thinking.get("thinkingLevel", TEXT), thinking.get("thinkingBudget", INTEGER)
    effort = _EFFORT_OF_LEVEL.get((level or "").upper())
    if effort is None and budget is not None and budget >= 0:
        effort = next((word for tokens_max, word in _EFFORT_OF_BUDGET if budget <= tokens_max), "high")
    return effort
