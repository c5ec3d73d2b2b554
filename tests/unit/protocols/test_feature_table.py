"""The table of support: complete, derived from the traits where they know, and no claim without a requirement."""

import pytest

from rules.test_requirements import requirements
from treadle.protocols.feature_table import FEATURES, Feature, Support
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.upstream_features import Traits

PROOFS: dict[str, tuple[str, ...]] = {
    "Text, streamed and whole": ("pairs.replies",),
    "Function calls, parallel ones too": ("pairs.replies", "bugs.b06", "bugs.b16"),
    "Arguments as they are written": ("bugs.b13", "Gemini.streamed_arguments"),
    "Arguments that are no JSON": ("pairs.replies", "M.partial_json", "Gemini.malformed_calls"),
    "Custom tools (free text)": ("bugs.b30", "B30.custom_tools"),
    "Namespaces of tools": ("bugs.b30", "CLIENTS12.2.namespaces"),
    "Names of tools": ("bugs.b40", "WIRE9.8.names_injective"),
    "Ids of calls": ("bugs.b17", "M.call_ids"),
    "Schemas of tools": ("bugs.b28", "B28.schema_forms"),
    "`strict`": ("bugs.b29",),
    "Choice of tools: auto, none, required, named": ("bugs.b24",),
    "One call at a time": ("bugs.b24", "bugs.b25"),
    "Server tools": ("bugs.b01", "M.server_calls", "Gemini.server_calls_silent"),
    "Images and files in results": ("bugs.b26",),
    "Results that are errors": ("bugs.b27",),
    "System and developer messages anywhere": ("CLIENTS12.9.roles", "M.claude_code"),
    "Images and files in messages": ("M.parts", "Gemini.media"),
    "Images in answers": ("I3.chat_unknown_answer_fields", "Gemini.media"),
    "Reasoning, readable": ("pairs.replies",),
    "Reasoning, sealed by its provider": ("bugs.b19",),
    "Refusals": ("pairs.replies",),
    "Stop sequences": ("M.options", "RU.request"),
    "Answers by a JSON Schema": ("CLIENTS12.10.answer_schema",),
    "Effort of reasoning": ("Gemini.thinking", "M.options"),
    "Usage, cached and reasoning tokens": ("bugs.b23",),
    "Logprobs and annotations": ("I3.chat_logprobs", "RU.logprobs_annotations"),
    "Several choices (`n`)": ("bugs.b15",),
    "Going on by an id": ("bugs.b04", "M.threads"),
    "Hosted tools, unknown items, parts and fields": ("M.unknown_kept", "RU.server_items"),
}
"""The requirements, and so the tests, behind each row."""

CLAIMS = ("native", "emulated", "kept")


def _cells(feature: Feature) -> list[Support]:
    return [*feature.clients.values(), *feature.upstreams.values()]


def test_every_claim_names_a_requirement() -> None:
    """What is said to work is proven, and no proof is of a row that is gone."""
    known = {each["id"] for each in requirements()}
    claimed = {feature.name for feature in FEATURES if any(cell.level in CLAIMS for cell in _cells(feature))}
    assert set(PROOFS) == claimed
    assert sorted({name for names in PROOFS.values() for name in names} - known) == []


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_every_feature_says_something_for_every_side(feature: Feature) -> None:
    """Each protocol on each side; what is not native or kept says how or why, in few words."""
    assert (set(feature.clients), set(feature.upstreams)) == (set(PROTOCOLS), set(PROTOCOLS))
    for cell in _cells(feature):
        assert bool(cell.how) == (cell.level in ("emulated", "impossible"))
        assert len(cell.how) <= 80


FLAGS = {
    "has_custom_tools": "Custom tools (free text)",
    "has_namespaces": "Namespaces of tools",
    "has_strict": "`strict`",
    "has_parallel_flag": "One call at a time",
}


@pytest.mark.parametrize("flag", FLAGS)
def test_what_traits_know_is_taken_from_them(flag: str) -> None:
    """A trait that changes changes the table."""
    (feature,) = [each for each in FEATURES if each.name == FLAGS[flag]]
    native = {name for name, cell in feature.upstreams.items() if cell.level == "native"}
    assert native == {name for name, row in PROTOCOLS.items() if getattr(row.features, flag)}
    assert flag in Traits.__struct_fields__
