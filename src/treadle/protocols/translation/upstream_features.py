"""What an upstream can take: each protocol has one such set of features, of which quirks replace single fields.

Limits are the strictest of the providers that speak the protocol, because renaming is free and a refusal is not.
"""

from typing import Literal

import msgspec

from treadle.core.tool_definitions import ChoiceMode

SchemaForm = Literal["json_schema", "gemini", "openapi"]
"""All of JSON Schema, the part of it that Gemini takes, or the older subset of OpenAPI 3.0."""

ALL_CHOICES: frozenset[ChoiceMode] = frozenset({"auto", "none", "required", "named"})

SPOKEN_CHOICES: frozenset[ChoiceMode] = ALL_CHOICES - {"named"}
"""Those that every server understands. Many that serve models of one's own take a word and no object: llama.cpp reads
a named tool as `auto` (seen 2026-11-18). A named tool is offered alone there, and `required`."""


class FeatureRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which words are taken as names or ids.

    `chars` and `first` are characters as in the brackets of a regular expression; `filler` stands for all others.
    """

    chars: str = r"a-zA-Z0-9_\-"
    first: str = ""
    filler: str = "_"
    chars_max: int = 64
    exact: bool = False


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of upstream. `unset_strict` is what a tool's strictness becomes where nobody set it.

    `has_hosted_items` reads the items of calls that some upstream of the Responses API ran by itself.
    """

    names: FeatureRule = FeatureRule()
    call_ids: FeatureRule = FeatureRule(chars="!-~", chars_max=64)
    schemas: SchemaForm = "json_schema"
    choices: frozenset[ChoiceMode] = ALL_CHOICES
    tools_max: int | None = None
    unset_strict: bool | None = None
    has_strict: bool = True
    has_custom_tools: bool = False
    has_namespaces: bool = False
    has_parallel_flag: bool = True
    has_developer: bool = False
    has_late_system: bool = True
    has_result_files: bool = True
    has_hosted_items: bool = False
    mends_names: bool = False
