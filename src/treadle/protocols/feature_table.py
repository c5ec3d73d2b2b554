"""What each protocol supports, as data: for clients that speak it here, and for upstreams that Treadle speaks it to.

What `Traits` know of an upstream is derived from them. The documents show this table; nothing at run time reads it.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.upstream_features import ALL_CHOICES, FeatureRule, Traits

Level = Literal["native", "emulated", "kept", "impossible"]
"""The protocol has it; Treadle makes it of something else; only the same protocol on the other side; it cannot be."""


class Support(msgspec.Struct, frozen=True, kw_only=True):
    """How far one side has a feature, and how it is made, or why it cannot be."""

    level: Level
    how: str = ""


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """One feature, by the protocol of the client and by the protocol of the upstream."""

    name: str
    clients: dict[str, Support]
    upstreams: dict[str, Support]


Row = dict[str, Support]
NATIVE = Support(level="native")
KEPT = Support(level="kept")


def _emulated(how: str) -> Support:
    return Support(level="emulated", how=how)


def _impossible(why: str) -> Support:
    return Support(level="impossible", how=why)


def _all(support: Support) -> Row:
    return dict.fromkeys(PROTOCOLS, support)


def _but(support: Support, **others: Support) -> Row:
    """Return the same for every protocol but those named."""
    return {name: others.get(name, support) for name in PROTOCOLS}


def _by_trait(has: Callable[[Traits], bool], otherwise: Support) -> Row:
    """Return native where the traits of an upstream say so."""
    return {name: NATIVE if has(row.features) else otherwise for name, row in PROTOCOLS.items()}


def _by_rule(rule_of: Callable[[Traits], FeatureRule]) -> Row:
    """Return what a rule about words makes of all others."""
    return {name: _emulated(_mapped(rule_of(row.features))) for name, row in PROTOCOLS.items()}


def _mapped(rule: FeatureRule) -> str:
    chars = rule.chars.replace("\\", "")
    first = f" (first `[{rule.first}]`)" if rule.first else ""
    return f"beyond {rule.chars_max} of `[{chars}]`{first}: mapped, and mapped back"


def _roles(traits: Traits) -> Support:
    if not traits.has_late_system:
        return _emulated("later ones are a user's, marked")
    return NATIVE if traits.has_developer else _emulated("a developer speaks as the system")


_FUNCTION = _emulated("a function of one string, `input`")
_NO_FLAG = _impossible("the API has no such flag")
_NO_PLACE = _impossible("no place in the API")
_NOTED = _impossible("dropped with a note")
_REFUSED = _emulated("text that ends in the reason of a refusal")
_STATELESS = _impossible("the API has no ids to go on from")
_RESENT = _emulated("the whole conversation is sent")

FEATURES: tuple[Feature, ...] = (
    Feature(name="Text, streamed and whole", clients=_all(NATIVE), upstreams=_all(NATIVE)),
    Feature(name="Function calls, parallel ones too", clients=_all(NATIVE), upstreams=_all(NATIVE)),
    Feature(
        name="Arguments as they are written",
        clients=_but(NATIVE, gemini=_emulated("a call is shown when it is whole")),
        upstreams=_all(NATIVE),
    ),
    Feature(
        name="Arguments that are no JSON",
        clients=_but(
            NATIVE,
            messages=_emulated("as far as they are valid, else as `INVALID_JSON`"),
            gemini=_emulated("as `__raw`"),
        ),
        upstreams=_but(NATIVE, messages=_emulated("as `INVALID_JSON`"), gemini=_emulated("as `__raw`")),
    ),
    Feature(
        name="Custom tools (free text)",
        clients=_but(NATIVE, messages=_FUNCTION, gemini=_FUNCTION),
        upstreams=_by_trait(lambda traits: traits.has_custom_tools, _FUNCTION),
    ),
    Feature(
        name="Namespaces of tools",
        clients=_but(_impossible("the API has none"), responses=NATIVE),
        upstreams=_by_trait(lambda traits: traits.has_namespaces, _emulated("a part of the name")),
    ),
    Feature(name="Names of tools", clients=_all(NATIVE), upstreams=_by_rule(lambda traits: traits.names)),
    Feature(
        name="Ids of calls",
        clients=_but(NATIVE, messages=_emulated("mapped and mapped back outside the API's alphabet")),
        upstreams=_by_rule(lambda traits: traits.call_ids),
    ),
    Feature(
        name="Schemas of tools",
        clients=_all(NATIVE),
        upstreams=_by_trait(
            lambda traits: traits.schemas == "json_schema", _emulated("converted down, what is lost is noted")
        ),
    ),
    Feature(
        name="`strict`",
        clients=_but(NATIVE, gemini=_NO_FLAG),
        upstreams=_by_trait(lambda traits: traits.has_strict, _NO_FLAG),
    ),
    Feature(
        name="Choice of tools: auto, none, required, named",
        clients=_all(NATIVE),
        upstreams=_by_trait(lambda traits: traits.choices == ALL_CHOICES, _emulated("the nearest there is")),
    ),
    Feature(
        name="One call at a time",
        clients=_but(NATIVE, gemini=_NO_FLAG),
        upstreams=_by_trait(lambda traits: traits.has_parallel_flag, _NO_FLAG),
    ),
    Feature(
        name="Server tools",
        clients=_but(_emulated("silent, or announced as text"), responses=NATIVE, messages=NATIVE),
        upstreams=_all(NATIVE),
    ),
    Feature(
        name="Images and files in results",
        clients=_but(NATIVE, chat=_impossible("the API takes text")),
        # Chat's codec moves them itself, so its traits do not show it.
        upstreams=_but(NATIVE, chat=_emulated("a user message behind the results")),
    ),
    Feature(
        name="Results that are errors",
        clients=_but(NATIVE, chat=_impossible("the API has no flag"), responses=_emulated("a status of `incomplete`")),
        upstreams=_but(
            NATIVE, chat=_emulated("`[error]` before the text"), responses=_emulated("a status of `incomplete`")
        ),
    ),
    Feature(
        name="System and developer messages anywhere",
        clients=_but(NATIVE, gemini=_impossible("the API has one instruction")),
        upstreams={name: _roles(row.features) for name, row in PROTOCOLS.items()},
    ),
    Feature(
        name="Images and files in messages",
        clients=_all(NATIVE),
        upstreams=_but(NATIVE, chat=_emulated("a file by URL is named in words")),
    ),
    Feature(
        name="Images in answers",
        clients=_but(
            NATIVE,
            responses=_emulated("an `image_generation_call`, or a link"),
            messages=_emulated("named in words"),
        ),
        upstreams=_but(NATIVE, messages=_impossible("the API gives none")),
    ),
    Feature(name="Reasoning, readable", clients=_all(NATIVE), upstreams=_all(NATIVE)),
    Feature(
        name="Reasoning, sealed by its provider",
        clients=_but(NATIVE, chat=_emulated("kept here until the results arrive")),
        upstreams=_all(NATIVE),
    ),
    Feature(
        name="Refusals",
        clients=_but(NATIVE, messages=_REFUSED, gemini=_REFUSED),
        upstreams=_but(NATIVE, messages=_REFUSED, gemini=_REFUSED),
    ),
    Feature(
        name="Stop sequences",
        clients=_but(NATIVE, responses=_impossible("the API has none")),
        upstreams=_but(NATIVE, responses=_NOTED),
    ),
    Feature(name="Answers by a JSON Schema", clients=_all(NATIVE), upstreams=_all(NATIVE)),
    Feature(
        name="Effort of reasoning",
        clients=_but(
            NATIVE, messages=_emulated("read from `thinking`"), gemini=_emulated("read from `thinkingConfig`")
        ),
        upstreams=_but(
            NATIVE, messages=_emulated("the nearest effort there is"), gemini=_emulated("told as `thinkingConfig`")
        ),
    ),
    Feature(name="Usage, cached and reasoning tokens", clients=_all(NATIVE), upstreams=_all(NATIVE)),
    Feature(
        name="Logprobs and annotations",
        clients=_but(NATIVE, messages=_NO_PLACE, gemini=_NO_PLACE),
        upstreams=_but(
            NATIVE,
            messages=_emulated("citations by address are annotations"),
            gemini=_emulated("grounding is annotations"),
        ),
    ),
    Feature(
        name="Several choices (`n`)",
        clients=_but(_impossible("the API has none"), chat=NATIVE, gemini=NATIVE),
        upstreams=_all(_emulated("a run for each")),
    ),
    Feature(
        name="Going on by an id",
        clients=_but(NATIVE, chat=_STATELESS, gemini=_STATELESS),
        upstreams=_all(_RESENT),
    ),
    Feature(name="Hosted tools, unknown items, parts and fields", clients=_all(KEPT), upstreams=_all(KEPT)),
)
