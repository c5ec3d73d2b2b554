"""The rows: each has an id of its own, markers, and a form that is read back as itself."""

import pytest

from dialects.own import TOOLS
from treadle.cli.dialect_rendering import render
from treadle.protocols.text_calls import parse, read_tools
from treadle.protocols.text_calls.dialect_grammar import Dialect, Elements, Tagged, Whole
from treadle.protocols.text_calls.dialect_table import BY_ID, DIALECTS
from treadle.protocols.text_calls.scanner import FoundCalls, TextScanner


def test_ids_are_unique_and_dialects_without_a_marker_say_so() -> None:
    """A dialect without a marker is never on by default."""
    assert len(BY_ID) == len(DIALECTS) >= 54
    for dialect in DIALECTS:
        assert dialect.grammar.markers or dialect.is_markerless
    assert {dialect.id for dialect in DIALECTS if isinstance(dialect.grammar, Whole)} <= {
        dialect.id for dialect in DIALECTS if dialect.is_markerless
    }


@pytest.mark.parametrize("dialect", DIALECTS, ids=[dialect.id for dialect in DIALECTS])
def test_a_find_names_its_dialect(dialect: Dialect) -> None:
    """What a row writes is read by that row, alone and among all."""
    text = render(dialect, [("plan_trip", {"to": "A"})])
    for chosen in ((dialect,), DIALECTS):
        scanner = TextScanner(read_tools(TOOLS), chosen)
        found = [piece for piece in [*scanner.feed(text), *scanner.finish()] if isinstance(piece, FoundCalls)]
        assert [piece.dialect for piece in found] == [dialect.id]


def test_a_dialect_that_only_renames_tags_is_a_row() -> None:
    """A new row works without a line of code."""
    row = Dialect(id="new", grammar=Tagged(head="<x:", foot="</x:", call="do", param="p", name_attr="n", key_attr="k"))
    text = 'Go. <x:do n="plan_trip"><x:p k="to">A</x:p></x:do>'
    scanner = TextScanner(read_tools(TOOLS), (row,))
    found = [piece for piece in [*scanner.feed(text), *scanner.finish()] if isinstance(piece, FoundCalls)]
    assert [(call.name, call.arguments) for piece in found for call in piece.calls] == [("plan_trip", '{"to":"A"}')]


def test_tiers_follow_the_model() -> None:
    """Native is what the model's name says; markerless stays markerless."""
    assert BY_ID["qwen3_coder"].tier("Qwen/Qwen3-Coder-30B") == "native"
    assert BY_ID["qwen3_coder"].tier("gpt-5") == "marked"
    assert BY_ID["bare_json"].tier("anything") == "markerless"
    assert isinstance(BY_ID["cline_xml"].grammar, Elements)


SPECIAL = {
    "JsonBody.needs_closer": "apertus cohere_action dots_json hermes_json inkling internlm lfm2_json longcat "
    "minimax_m1 nemotron_v2 tool_calls_list",
    "NamedJson.needs_closer": "deepseek_v3 deepseek_v31 function_glued function_json kimi_k2 solar",
    "JsonBody.is_fenced": "command_r",
    "JsonBody.is_keyed": "apertus",
    "JsonBody.is_echoed": "lfm2_json",
    "Tagged.trims": "qwen3_coder qwen3_coder_bare seed_oss",
    "Tagged.has_cdata": "minicpm5",
    "Tagged.has_json": "anthropic_invoke anthropic_ns dots dsml_v32 dsml_v32_bars dsml_v32_double dsml_v4 "
    "dsml_v4_bars dsml_v4_double minimax_m2 muse_atem",
    "NamedJson.may_be_code": "react",
    "Tagged.has_entities": "kimi_k3",
    "NamedJson.is_fenced": "deepseek_v3",
    "Pythonic.is_echoed": "lfm2",
    "Pythonic.is_list": "lfm2 llama4_pythonic",
}
"""What only some dialects of a grammar allow, each for a reason that its row tells."""


def test_what_is_special_is_so_only_where_a_row_says_it() -> None:
    """A dialect that says nothing keeps line feeds, entities and braces in its values as they are."""
    for flag, ids in SPECIAL.items():
        grammar, name = flag.split(".")
        rows = [row for row in DIALECTS if type(row.grammar).__name__ == grammar]
        assert sorted(row.id for row in rows if getattr(row.grammar, name)) == ids.split(), flag
    lined = "command_r functionary_v32 functools gemini_call gemini_tool_code gigachat harmony_stripped react"
    assert sorted(row.id for row in DIALECTS if row.at_line) == lined.split()
    row = Dialect(id="new", grammar=Tagged(name_attr="n", key_attr="k"))
    text = '<function n="plan_trip"><parameter k="to">\nA &amp; <![CDATA[B]]>\n</parameter></function>'
    scanner = TextScanner(read_tools(TOOLS), (row,))
    found = [piece for piece in [*scanner.feed(text), *scanner.finish()] if isinstance(piece, FoundCalls)]
    assert [call.arguments for piece in found for call in piece.calls] == ['{"to":"\\nA &amp; <![CDATA[B]]>\\n"}']


def test_a_request_without_tools_is_left_alone() -> None:
    """Also the text of frames."""
    text = "<|channel|>final<|message|>Hi.<|return|>"
    assert parse(text, [])["content"] == text
