import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.items import (
    AnyItem,
    CallItem,
    Extra,
    FilePart,
    ImagePart,
    MessageItem,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.core.json import read_json
from treadle.core.plan import Plan
from treadle.core.request import Options
from treadle.core.tool_definitions import NONE, ToolChoice, ToolSpec
from treadle.protocols.gemini import read_request, write_request

RAW = msgspec.Raw
USER = text_message("user", "hi")
TOOLS = (ToolSpec(name="f"), ToolSpec(name="g"))
CONTENTS = [{"role": "user", "parts": [{"text": "hi"}]}]


def _written(*items: AnyItem, model: str = "gemini-2.5-pro", **fields: Any) -> tuple[dict[str, Any], list[str]]:
    written = write_request(Plan(items=items or (USER,), model=model, **fields))
    return read_json(written.body), [note.code for note in written.notes]


def _kept(**fields: Any) -> Options:
    extra = {name: RAW(json.dumps(value).encode()) for name, value in fields.items()}
    return Options(extra=extra, extra_protocol="gemini")


def test_the_smallest_body_says_nothing_that_was_not_asked_for() -> None:
    """The address names the model and says that it streams."""
    assert _written(tool_choice=NONE) == ({"contents": CONTENTS}, [])


@pytest.mark.parametrize(
    ("items", "rest"),
    [
        ((text_message("system", "Tell a joke."),), []),
        ((text_message("assistant", "Hello!"), USER), [{"role": "model", "parts": [{"text": "Hello!"}]}, *CONTENTS]),
        (
            (
                CallItem(call_id="c", name="f", arguments="{}"),
                ResultItem(call_id="c", name="f", output=(TextPart(text="r"),)),
            ),
            [
                {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"output": "r"}}}],
                },
            ],
        ),
    ],
    ids=["system", "greeting", "call"],
)
def test_a_conversation_begins_with_a_user(items: tuple[AnyItem, ...], rest: list[Any]) -> None:
    """Gemini refuses a request without contents, and a call that no user's turn stands before."""
    body, codes = _written(*items)
    assert body["contents"] == [{"role": "user", "parts": [{"text": "(The conversation begins here.)"}]}, *rest]
    assert codes == ["opening_added"]


def test_instructions_tools_and_options_have_their_places() -> None:
    """All of them at once."""
    form = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
    options = Options(
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.1,
        stop=("x",),
        seed=1,
        output_schema=RAW(json.dumps(form).encode()),
    )
    body, codes = _written(
        text_message("system", "Be brief."), USER, tools=TOOLS, tool_choice=ToolChoice(mode="required"), options=options
    )
    assert body == {
        "contents": CONTENTS,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "maxOutputTokens": 9,
            "temperature": 0.5,
            "topP": 0.1,
            "stopSequences": ["x"],
            "seed": 1,
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
        },
    }
    assert codes == []


@pytest.mark.parametrize(
    ("form", "config"),
    [
        ({"type": "json_object"}, {"responseMimeType": "application/json"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string"}}},
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "string"}},
        ),
        ({"type": "text"}, None),
    ],
    ids=["object", "nested", "text"],
)
def test_output_schemas_are_understood_flat_and_nested(form: Any, config: Any) -> None:
    """Chat nests what Responses writes flat."""
    body, _ = _written(options=Options(output_schema=RAW(json.dumps(form).encode())))
    assert body.get("generationConfig") == config


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(), None),
        (NONE, {"mode": "NONE"}),
        (ToolChoice(mode="required"), {"mode": "ANY"}),
        (ToolChoice(mode="named", name="f"), {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        (ToolChoice(mode="required", allowed=("f",)), {"mode": "ANY", "allowedFunctionNames": ["f"]}),
        (ToolChoice(allowed=("f",)), {"mode": "VALIDATED", "allowedFunctionNames": ["f"]}),
    ],
    ids=lambda value: "",
)
@pytest.mark.parametrize("parallel", [None, True, False])
def test_every_choice_and_parallel_flag(choice: ToolChoice, config: Any, parallel: bool | None) -> None:
    """The tools stay, whatever the choice; Gemini cannot be kept from parallel calls."""
    body, codes = _written(tools=TOOLS, tool_choice=choice, options=Options(parallel_tool_calls=parallel))
    assert body.get("toolConfig") == (None if config is None else {"functionCallingConfig": config})
    assert len(body["tools"][0]["functionDeclarations"]) == 2
    assert codes == (["parallel_dropped"] if parallel is False else [])


@pytest.mark.parametrize(
    ("model", "effort", "thinking", "codes"),
    [
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024, "includeThoughts": True}, ["effort_as_thinking"]),
        ("models/gemini-2.5-pro", "none", {"thinkingBudget": 128, "includeThoughts": False}, ["effort_as_thinking"]),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0, "includeThoughts": False}, ["effort_as_thinking"]),
        ("gemini-2.5-flash", "max", {"thinkingBudget": 24_576, "includeThoughts": True}, ["effort_as_thinking"]),
        ("gemini-3-pro", "high", {"thinkingLevel": "HIGH", "includeThoughts": True}, ["effort_as_thinking"]),
        (
            "gemini-flash-latest",
            "minimal",
            {"thinkingLevel": "MINIMAL", "includeThoughts": True},
            ["effort_as_thinking"],
        ),
        ("gemini-2.0-flash", "high", None, ["effort_dropped"]),
        ("gemma-3-27b", "high", None, ["effort_dropped"]),
        ("gemini-3-pro", "ludicrous", None, ["effort_dropped"]),
    ],
)
def test_the_effort_is_said_in_the_words_of_the_models_generation(
    model: str, effort: str, thinking: Any, codes: list[str]
) -> None:
    """A budget, a level, or nothing where the model would refuse."""
    body, noted = _written(model=model, options=Options(reasoning_effort=effort))
    assert body.get("generationConfig", {}).get("thinkingConfig") == thinking
    assert noted == codes


def test_the_clients_own_fields_go_back_as_they_were() -> None:
    """Its thinking counts more than an effort made of it; what Treadle acts on counts more than a copy."""
    options = msgspec.structs.replace(
        _kept(
            safetySettings=[{"category": "X"}],
            generationConfig={"topK": 3, "thinkingConfig": {"thinkingBudget": 5}},
            toolConfig={"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {}},
        ),
        temperature=1.0,
        reasoning_effort="low",
    )
    body, codes = _written(tools=TOOLS, options=options)
    assert body["safetySettings"] == [{"category": "X"}]
    assert body["generationConfig"] == {"topK": 3, "thinkingConfig": {"thinkingBudget": 5}, "temperature": 1.0}
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {}}
    assert codes == []
    body, _ = _written(tools=TOOLS, options=options, tool_choice=NONE)
    assert body["toolConfig"]["functionCallingConfig"] == {"mode": "NONE"}


def test_hosted_tools_are_offered_where_gemini_takes_them() -> None:
    """Alone, or beside functions if the client asked for both."""
    search = [{"googleSearch": {}}]
    assert _written(options=_kept(tools=search)) == ({"contents": CONTENTS, "tools": search}, [])
    body, codes = _written(tools=TOOLS, options=_kept(tools=search))
    assert (len(body["tools"]), codes) == (1, ["hosted_tool"])
    both = _kept(tools=search, toolConfig={"includeServerSideToolInvocations": True})
    body, codes = _written(tools=TOOLS, options=both)
    assert (body["tools"][1:], codes) == (search, [])


def test_what_other_protocols_kept_is_dropped_and_noted() -> None:
    """Options, and fields of items."""
    options = Options(extra={"logit_bias": RAW(b"{}")}, extra_protocol="chat")
    kept = Extra(protocol="messages", fields={"cache_control": RAW(b"{}")})
    body, codes = _written(msgspec.structs.replace(USER, extra=kept), options=options)
    assert (body, codes) == ({"contents": CONTENTS}, ["option_dropped", "field_dropped"])


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
PARTS = st.lists(
    TEXT.map(lambda text: TextPart(text=text))
    | st.just(ImagePart(url="data:image/png;base64,AAAA"))
    | st.just(FilePart(url="data:application/pdf;base64,AAAA")),
    min_size=1,
    max_size=3,
).map(tuple)
ARGUMENTS = st.dictionaries(TEXT, st.integers(-5, 5) | TEXT, max_size=2).map(lambda value: _compact(value))
OBJECTS = st.fixed_dictionaries({"a": st.integers(-5, 5), "error": TEXT}).map(lambda value: _compact(value))


def _compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@st.composite
def conversations(draw: st.DrawFn) -> list[AnyItem]:
    """Return whole turns: a question, then rounds of thoughts, text and calls with their results."""
    items: list[AnyItem] = []
    count = 0
    for _ in range(draw(st.integers(1, 3))):
        items.append(MessageItem(role="user", content=draw(PARTS)))
        for _ in range(draw(st.integers(0, 2))):
            if draw(st.booleans()):
                items.append(ReasoningItem(text=(draw(TEXT),)))
            if draw(st.booleans()):
                items.append(text_message("assistant", draw(TEXT)))
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                count += 1
                calls.append(CallItem(call_id=f"c{count}", name=draw(st.sampled_from("fg")), arguments=draw(ARGUMENTS)))
            items += calls
            items += [_result(draw, call) for call in calls]
        items.append(text_message("assistant", draw(TEXT)))
    return items


def _result(draw: st.DrawFn, call: CallItem) -> ResultItem:
    is_error = draw(st.booleans())
    output: tuple[Any, ...] = (TextPart(text=draw(TEXT if is_error else TEXT | OBJECTS)),)
    if draw(st.booleans()) and not is_error:
        output += (ImagePart(url="data:image/png;base64,AAAA"),)
    return ResultItem(
        call_id=call.call_id, name=call.name, output=output, is_error=is_error, rc="failed" if is_error else "ok"
    )


def _plain(item: AnyItem) -> AnyItem:
    """Return the item without the mark that calls of nobody's model bear."""
    return msgspec.structs.replace(item, blobs=()) if isinstance(item, CallItem) else item


@given(conversations(), st.none() | TEXT, st.sampled_from([ToolChoice(), NONE, ToolChoice(mode="named", name="f")]))
def test_a_plan_written_and_read_again_is_the_same(
    items: list[AnyItem], system: str | None, choice: ToolChoice
) -> None:
    """Ids, order, arguments, results, errors and files survive."""
    tools = (ToolSpec(name="f", description="F", parameters=RAW(b'{"type":"object","properties":{"a":{}}}')),)
    options = Options(max_output_tokens=5, temperature=0.5, stop=("x",), extra_protocol="gemini")
    history = [text_message("system", system), *items] if system else items
    plan = Plan(items=tuple(history), model="gemini-3", tools=tools, tool_choice=choice, options=options)
    request = read_request(write_request(plan).body, model="gemini-3")
    assert [_plain(item) for item in request.items] == items
    assert (request.instructions, request.tools, request.tool_choice, request.options) == (
        system,
        tools,
        choice,
        options,
    )
