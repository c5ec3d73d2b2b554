"""Options of one protocol in the terms of another: the single rules behind the table of all pairs."""

from typing import Any

import msgspec
import pytest

from treadle.core.json import read_json, write_json
from treadle.core.request import Options
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.protocols.translation.request_options import carry_options
from treadle.protocols.translation_notes import Notes


def carried(client: str, upstream: str, **extra: Any) -> tuple[dict[str, Any], list[tuple[str, str | None]]]:
    """Return what an upstream is told, and what is noted."""
    notes = Notes()
    raws = {name: msgspec.Raw(write_json(value)) for name, value in extra.items()}
    options = carry_options(Options(extra=raws, extra_protocol=client), upstream, notes)
    assert options.extra_protocol == (upstream if extra else client)
    told = {name: read_json(bytes(raw)) for name, raw in options.extra.items()}
    return told, [(note.action, note.field) for note in notes.all()]


def test_options_of_the_same_protocol_are_not_touched() -> None:
    """Nor are those that the codecs of Chat and Responses carry between each other."""
    notes = Notes()
    for client, upstream in (("chat", "chat"), ("chat", "responses"), ("responses", "chat"), ("gemini", "gemini")):
        options = Options(extra={"x": msgspec.Raw(b"1")}, extra_protocol=client)
        assert carry_options(options, upstream, notes) is options
    bare = Options(extra_protocol="chat")
    assert carry_options(bare, "messages", notes) is bare
    assert notes.all() == ()


def test_of_two_users_the_one_that_openai_prefers_counts() -> None:
    """The same user twice is no loss, another one is."""
    told, noted = carried("chat", "messages", user="a", safety_identifier="b")
    assert (told, noted) == ({"metadata": {"user_id": "b"}}, [("dropped", "user")])
    assert carried("chat", "messages", user="a", safety_identifier="a") == ({"metadata": {"user_id": "a"}}, [])


@pytest.mark.parametrize("metadata", [5, "u", {}, {"user_id": None}, {"other": 1}])
def test_metadata_that_name_nobody_are_noted(metadata: Any) -> None:
    """They are not read as anything else."""
    told, noted = carried("messages", "chat", metadata=metadata)
    assert (told, noted) in (({}, [("dropped", "metadata")]), ({"user": None}, []))


@pytest.mark.parametrize(
    ("client", "upstream", "tier", "told"),
    [
        ("chat", "messages", "default", "standard_only"),
        ("chat", "messages", "priority", None),
        ("responses", "gemini", "priority", "priority"),
        ("messages", "chat", "standard_only", "default"),
        ("gemini", "messages", "flex", None),
        ("gemini", "chat", "flex", "flex"),
        ("chat", "gemini", 5, None),
    ],
)
def test_a_tier_has_another_name_or_none(client: str, upstream: str, tier: Any, told: str | None) -> None:
    """A tier that the upstream's provider does not sell is noted."""
    name, place = (("serviceTier" if each == "gemini" else "service_tier") for each in (client, upstream))
    expected = ({place: told}, []) if told else ({}, [("dropped", name)])
    assert carried(client, upstream, **{name: tier}) == expected


def test_what_asks_for_nothing_is_left_out_quietly() -> None:
    """Clients that send every field with its default are not told of losses."""
    assert carried("chat", "messages", frequency_penalty=0, presence_penalty=0.0, logit_bias={}, logprobs=False) == (
        {},
        [],
    )
    config = {"responseModalities": ["TEXT"], "responseMimeType": "text/plain", "topK": 4}
    assert carried("gemini", "messages", generationConfig=config) == ({"top_k": 4}, [])


def test_tools_that_only_their_provider_runs_are_counted() -> None:
    """One note for all of them."""
    notes = Notes()
    tools = msgspec.Raw(b'[{"type":"web_search_20250305"},{"type":"code_execution_20250825"}]')
    carry_options(Options(extra={"tools": tools}, extra_protocol="messages"), "gemini", notes)
    (note,) = notes.all()
    assert (note.code, note.field, note.count) == ("hosted_tool", "tools", 2)


def test_thinking_without_a_budget_is_left_to_the_upstream() -> None:
    """That is said, but loses nothing that could be carried."""
    assert carried("messages", "chat", thinking={"type": "adaptive"}) == ({}, [("coerced", "thinking")])


def test_the_tables_know_the_same_words() -> None:
    """A meaning that no upstream spells, or no client has, would be dead."""
    tables = [row.options for row in PROTOCOLS.values()]
    meant = {meaning for table in tables for meaning in table.meanings.values()}
    assert meant == {meaning for table in tables for meaning in table.fields}
    assert all(table.tiers for table in tables)


@pytest.mark.parametrize(
    ("betas", "upstream", "noted"),
    [
        (("context-1m-2025-08-07", "x-1"), "chat", [("beta_dropped", "dropped", "anthropic-beta", 2)]),
        (("x-1",), "gemini", [("beta_dropped", "dropped", "anthropic-beta", 1)]),
        (("x-1",), "messages", []),
        (("claude-code-20250219", "message-threads-2026-08-12"), "responses", []),
        ((), "chat", []),
    ],
)
def test_features_that_only_one_protocol_has_are_noted(betas: Any, upstream: str, noted: Any) -> None:
    """By name; not those that only say who asks, or that Treadle itself has."""
    notes = Notes()
    carry_options(Options(betas=betas, extra_protocol="messages"), upstream, notes)
    assert [(note.code, note.action, note.field, note.count) for note in notes.all()] == noted
    assert all(name in note.message for note in notes.all() for name in betas)
