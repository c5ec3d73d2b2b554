"""Options that only the client's protocol has, in the terms of the upstream's, by tables.

An option that means something in both protocols is spelled anew; one that asks for nothing special is left out
quietly; every other is left out with a note that names its field. Chat Completions and Responses spell most of theirs
alike, and their codecs carry those between them.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.core.json import read_json, write_json
from treadle.core.request import Options
from treadle.protocols.field_reader import OBJECT, starts_with
from treadle.protocols.protocol_registry import MESSAGES, OPENAI_PROTOCOLS, PROTOCOLS, OptionWords, Paths
from treadle.protocols.translation_notes import Notes, note_unread, unread

DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "service_tier": ("auto",),
    "serviceTier": ("unspecified",),
    "generationConfig.audioTimestamp": (False,),
    "generationConfig.frequencyPenalty": (0,),
    "generationConfig.presencePenalty": (0,),
    "generationConfig.responseMimeType": ("text/plain",),
    "generationConfig.responseModalities": (["TEXT"], []),
}
"""Values by which an option asks for what every upstream does anyway."""

COERCED: Paths = {
    "reasoning.summary": "thoughts are shown as the upstream shows them",
    "reasoning.generate_summary": "thoughts are shown as the upstream shows them",
}
"""Options that are heeded about as well as the upstream can."""


_SETTLED_BETAS = ("claude-code-", "message-threads-")
"""How names of features begin that ask nothing of an upstream: they name the client, or Treadle itself has them."""


def carry_options(options: Options, protocol: str, notes: Notes) -> Options:
    """Return the options with those that only the client's protocol has spelled for an upstream of this one."""
    source = options.extra_protocol
    if options.betas and protocol != MESSAGES:
        _note_betas(options, notes)
    if not options.extra:
        return options
    is_shared = source == protocol or {source, protocol} <= OPENAI_PROTOCOLS
    if is_shared or source not in PROTOCOLS:
        return options
    given = unread(options)
    spelled, heeded = _spelled(given, PROTOCOLS[source].options, PROTOCOLS[protocol].options)
    for path in given.keys() & COERCED.keys():
        notes.add("option_coerced", "coerced", f"{path}: {COERCED[path]}", path)
    if "thinking" in options.extra and options.reasoning_effort is None:
        notes.add("option_coerced", "coerced", "thinking: whether to think is left to the upstream", "thinking")
    unmarked = {path for path, raw in given.items() if path in DEFAULTS and _value(raw) in DEFAULTS[path]}
    note_unread(options, heeded | unmarked | COERCED.keys(), notes)
    return msgspec.structs.replace(options, extra=_nested(spelled), extra_protocol=protocol)


def _note_betas(options: Options, notes: Notes) -> None:
    lost = [name for name in options.betas if not name.startswith(_SETTLED_BETAS)]
    if lost:
        message = f"only messages has the features {', '.join(lost)}"
        notes.add("beta_dropped", "dropped", message, "anthropic-beta", len(lost))


def _spelled(
    given: Mapping[str, msgspec.Raw], source: OptionWords, target: OptionWords
) -> tuple[dict[str, msgspec.Raw], set[str]]:
    """Return the options as the target spells them by their paths there, and the paths of those that they say."""
    spelled: dict[str, msgspec.Raw] = {}
    heeded: set[str] = set()
    for path, meaning in source.meanings.items():
        place, raw = target.fields.get(meaning), given.get(path)
        if place is None or raw is None:
            continue
        value = _tier(raw, source, target) if meaning == "tier" else _user(raw) if path == "metadata" else raw
        if value is not None and spelled.setdefault(place, value) == value:
            heeded.add(path)
    return spelled, heeded


def _user(raw: msgspec.Raw) -> msgspec.Raw | None:
    """Return the user that the metadata of a Messages request name, which is all that they may hold."""
    return OBJECT.decode(raw).get("user_id") if starts_with(raw, "{") else None


def _tier(raw: msgspec.Raw, source: OptionWords, target: OptionWords) -> msgspec.Raw | None:
    word = source.tiers.get(_value(raw)) if starts_with(raw, '"') else None
    found = next((own for own, common in target.tiers.items() if common == word), None)
    return None if found is None else msgspec.Raw(write_json(found))


def _nested(spelled: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return options by their paths as objects in objects."""
    tree: dict[str, Any] = {}
    for place, raw in spelled.items():
        outer, dot, inner = place.rpartition(".")
        if dot:
            tree.setdefault(outer, {})[inner] = raw
        else:
            tree[inner] = raw
    return {name: msgspec.Raw(write_json(value)) for name, value in tree.items()}


def _value(raw: msgspec.Raw) -> Any:
    return read_json(bytes(raw))
