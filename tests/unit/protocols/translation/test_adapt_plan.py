"""The whole stage: a plan out, a plan back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.events import ItemDone
from treadle.core.items import CallItem, ImagePart, ResultItem, TextPart, text_message, text_result
from treadle.core.json import read_json
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import ToolChoice, ToolSpec
from treadle.protocols.protocol_registry import PROTOCOL_NAMES, PROTOCOLS
from treadle.protocols.translation.adapt_plan import adapt
from treadle.protocols.translation.name_mapping import fits
from treadle.protocols.translation.upstream_features import ALL_CHOICES, FeatureRule, Traits

EXEC = ToolSpec(name="exec", kind="custom", namespace="functions", strict=None)
PLAN = Plan(
    items=(
        text_message("user", "hi"),
        CallItem(call_id="call|1", name="facts.propose", arguments='{"$ref":"#/x"}'),
        CallItem(call_id="call_2", name="exec", arguments='say "é"\n', kind="custom", namespace="functions"),
        ResultItem(call_id="call|1", name="facts.propose", output=(TextPart(text='{"$ref":"#/$defs/x"}'),)),
        ResultItem(call_id="call_2", name="exec", kind="custom", output=(TextPart(text="done"),), is_error=True),
    ),
    model="m",
    tools=(ToolSpec(name="facts.propose"), EXEC),
    tool_choice=ToolChoice(mode="named", name="facts.propose"),
)


def naming(protocol: str) -> Traits:
    """Return the traits of an upstream of this protocol that obeys a choice by name."""
    return msgspec.structs.replace(PROTOCOLS[protocol].features, choices=ALL_CHOICES)


def calls(plan: Plan) -> list[CallItem]:
    """Return the calls of the history."""
    return [item for item in plan.items if isinstance(item, CallItem)]


def results(plan: Plan) -> list[ResultItem]:
    """Return the results of the history."""
    return [item for item in plan.items if isinstance(item, ResultItem)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_name_is_mapped_in_every_position(protocol):
    """Definition, choice, call and result all say the same name."""
    plan = adapt(PLAN, naming(protocol)).plan
    name = "facts_propose"
    assert (plan.tools[0].name, plan.tool_choice.name) == (name, name)
    assert (calls(plan)[0].name, results(plan)[0].name) == (name, name)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pairs_stay_pairs(protocol):
    """A call and its result have the same id, one that the upstream takes, and different calls different ones."""
    plan = adapt(PLAN, PROTOCOLS[protocol].features).plan
    ids = [call.call_id for call in calls(plan)]
    assert ids == [result.call_id for result in results(plan)]
    assert len(set(ids)) == 2
    assert all(fits(PROTOCOLS[protocol].features.call_ids, each) for each in ids)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_results_are_never_read(protocol):
    """What looks like a reference in a result or in arguments is data (B28)."""
    plan = adapt(PLAN, PROTOCOLS[protocol].features).plan
    assert results(plan)[0].output == (TextPart(text='{"$ref":"#/$defs/x"}'),)
    assert calls(plan)[0].arguments == '{"$ref":"#/x"}'
    assert [result.is_error for result in results(plan)] == [False, True]


@pytest.mark.parametrize("protocol", ["chat", "messages", "gemini"])
def test_custom_tools_become_functions_in_history_too(protocol):
    """Definition, call and result; the free text is the string `input`."""
    adapted = adapt(PLAN, naming(protocol))
    assert [tool.kind for tool in adapted.plan.tools] == ["function", "function"]
    call = calls(adapted.plan)[1]
    assert (call.kind, read_json(call.arguments), call.namespace) == ("function", {"input": 'say "é"\n'}, None)
    assert results(adapted.plan)[1].kind == "function"
    assert {note.code: note.action for note in adapted.notes} == {
        "name_mapped": "emulated",
        "custom_tool": "emulated",
    }


def test_an_upstream_with_custom_tools_and_namespaces_gets_them():
    """Responses takes both as they are."""
    adapted = adapt(PLAN, naming("responses"))
    assert adapted.plan.tools[1] == EXEC
    assert calls(adapted.plan)[1] == PLAN.items[2]
    assert results(adapted.plan)[1] == PLAN.items[4]


def test_a_mapped_name_leaves_its_namespace():
    """A name that had to change is sent flat, so that it comes back under exactly that name."""
    spec = ToolSpec(name="ns__" + "x" * 80, namespace="ns")
    plan = adapt(Plan(items=(), model="m", tools=(spec,)), PROTOCOLS["responses"].features).plan
    assert (len(plan.tools[0].name), plan.tools[0].namespace) == (64, None)


@pytest.mark.parametrize(
    ("traits", "strict", "sent", "said"),
    [
        (Traits(), None, None, False),
        (Traits(), True, True, False),
        (Traits(has_strict=False), True, None, True),
        (Traits(has_strict=False), False, None, False),
        (PROTOCOLS["responses"].features, None, False, False),
        (PROTOCOLS["responses"].features, True, True, False),
    ],
)
def test_strict_is_never_promoted(traits, strict, sent, said):
    """Unset stays unset, or off where unset would be on; only a strictness that is lost is said (B29)."""
    adapted = adapt(Plan(items=(), model="m", tools=(ToolSpec(name="f", strict=strict),)), traits)
    assert adapted.plan.tools[0].strict is sent
    assert [note.field for note in adapted.notes] == (["tools[0].strict"] if said else [])


def test_the_schema_of_the_answer_is_converted_too():
    """gemini-cli asks for JSON with upper-case types; the rest of the format is kept."""
    form = msgspec.Raw(b'{"type":"json_schema","name":"n","schema":{"type":"OBJECT","properties":{}},"strict":true}')
    adapted = adapt(Plan(items=(), model="m", options=Options(output_schema=form)), PROTOCOLS["chat"].features)
    assert adapted.plan.options.output_schema is not None
    assert read_json(bytes(adapted.plan.options.output_schema)) == {
        "type": "json_schema",
        "name": "n",
        "schema": {"type": "object", "properties": {}},
        "strict": True,
    }


@pytest.mark.parametrize("form", [b'{"type":"json_object"}', b'{"type":"json_schema","schema":{"type":"object"}}'])
def test_an_answer_s_format_that_is_fine_stays_the_same_bytes(form):
    """Nothing is spelled anew without need."""
    plan = Plan(items=(), model="m", options=Options(output_schema=msgspec.Raw(form)))
    assert adapt(plan, PROTOCOLS["chat"].features).plan.options.output_schema == msgspec.Raw(form)


def test_a_plan_that_fits_passes_unchanged():
    """Nothing to adapt, nothing to say, and the same items."""
    call = CallItem(call_id="call_1", name="f", arguments="{}")
    plan = Plan(
        items=(text_message("system", "s"), text_message("user", "u"), call, text_result(call, "r")),
        model="m",
        tools=(ToolSpec(name="f"),),
        tool_choice=ToolChoice(mode="required"),
    )
    adapted = adapt(plan, PROTOCOLS["chat"].features)
    assert adapted.plan == plan
    assert adapted.notes == ()
    assert all(sent is own for sent, own in zip(adapted.plan.items, plan.items, strict=True))


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=8, unique=True), st.sampled_from(PROTOCOL_NAMES))
def test_every_tool_comes_back_under_its_own_name(names, protocol):
    """Whatever tools are called, a call of each is restored to it."""
    adapted = adapt(
        Plan(items=(), model="m", tools=tuple(ToolSpec(name=name) for name in names)), PROTOCOLS[protocol].features
    )
    for name, spec in zip(names, adapted.plan.tools, strict=True):
        event = ItemDone(index=0, item=CallItem(call_id="c", name=spec.name, arguments="{}"))
        (restored,) = adapted.restorer.feed(event)
        assert restored == ItemDone(index=0, item=CallItem(call_id="c", name=name, arguments="{}"))


def test_files_of_results_are_moved_only_where_that_is_needed():
    """The trait decides; the text stays in the result."""
    result = ResultItem(call_id="c", name="f", output=(TextPart(text="t"), ImagePart(url="data:,")))
    plan = Plan(items=(CallItem(call_id="c", name="f", arguments="{}"), result), model="m")
    assert adapt(plan, Traits()).plan == plan
    moved = adapt(plan, Traits(has_result_files=False)).plan
    assert [type(item).__name__ for item in moved.items] == ["CallItem", "ResultItem", "MessageItem"]


def test_ids_of_exact_length_pair_up():
    """Mistral's ids: nine letters and digits, in calls and results alike."""
    traits = Traits(call_ids=FeatureRule(chars="a-zA-Z0-9", filler="", chars_max=9, exact=True))
    plan = adapt(PLAN, traits).plan
    assert [len(call.call_id) for call in calls(plan)] == [9, 9]
    assert [call.call_id for call in calls(plan)] == [result.call_id for result in results(plan)]


@pytest.mark.parametrize("protocol", ["chat", "messages"])
def test_a_plan_that_fits_is_the_same_object(protocol):
    """Nothing is copied for an upstream that takes everything as it is, calls and results included."""
    call, result = (
        CallItem(call_id="c", name="f", arguments="{}"),
        ResultItem(call_id="c", name="f", output=(TextPart(text="done"),)),
    )
    plan = Plan(items=(text_message("user", "hi"), call, result), model="m", tools=(ToolSpec(name="f"),))
    assert adapt(plan, PROTOCOLS[protocol].features).plan is plan


def test_tools_are_kept_as_they_were_written_for_each_upstream():
    """The same tools give the same objects and the same notes again; other traits have their own."""
    spec = ToolSpec(name="f", strict=True)
    plan = Plan(items=(text_message("user", "hi"),), model="m", tools=(spec,))
    first, second = adapt(plan, PROTOCOLS["gemini"].features), adapt(plan, PROTOCOLS["gemini"].features)
    assert first.plan.tools is second.plan.tools
    assert [note.code for note in second.notes] == [note.code for note in first.notes] == ["strict_dropped"]
    assert adapt(plan, PROTOCOLS["chat"].features).plan.tools == (spec,)
