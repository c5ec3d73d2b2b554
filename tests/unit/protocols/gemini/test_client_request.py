import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ProtocolError, RequestError
from treadle.core.items import text_message
from treadle.core.json import read_json
from treadle.core.request import Options, Request, Surface
from treadle.protocols.gemini import read_request

HI = [{"role": "user", "parts": [{"text": "hi"}]}]


def _read(body: dict[str, Any], **fields: Any) -> Request:
    return read_request(json.dumps({"contents": HI, **body}).encode(), **fields)


def _config(**fields: Any) -> Options:
    return _read({"generationConfig": fields}).options


def test_the_smallest_request() -> None:
    """The address says the model and whether to stream."""
    assert read_request(b'{"contents":[{"parts":[{"text":"hi"}]}]}', model="models/gemini-3", stream=True) == Request(
        protocol="gemini",
        model="gemini-3",
        items=(text_message("user", "hi"),),
        options=Options(extra_protocol="gemini"),
        surface=Surface(stream=True),
    )


def test_one_content_may_stand_without_a_list() -> None:
    """Old documents of Google's show it so."""
    assert _read({"contents": HI[0], "tools": {"functionDeclarations": []}}).items == (text_message("user", "hi"),)


def test_the_model_may_stand_in_the_body() -> None:
    """The address counts more."""
    assert _read({"model": "models/a"}).model == "a"
    assert _read({"model": "models/a"}, model="b").model == "b"


@pytest.mark.parametrize(
    ("stream", "is_array", "expected"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_an_array_is_only_streamed(stream: bool, is_array: bool, expected: bool) -> None:
    """A client that waits gets an object."""
    assert _read({}, stream=stream, is_array=is_array).surface == Surface(stream=stream, is_array=expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"parts": [{"text": "a"}, {"text": "b"}], "role": "user"}, "a\n\nb"),
        ({"parts": {"text": "a"}}, "a"),
        ("a", "a"),
        ({"parts": []}, None),
        (None, None),
    ],
    ids=["parts", "one", "text", "empty", "null"],
)
@pytest.mark.parametrize("name", ["systemInstruction", "system_instruction"])
def test_the_system_instruction_is_text(name: str, value: Any, expected: str | None) -> None:
    """In any of the forms that clients send."""
    assert _read({name: value}).instructions == expected


def test_an_instruction_that_is_not_text_is_dropped_and_noted() -> None:
    """No provider takes one."""
    request = _read({"systemInstruction": {"parts": [{"inlineData": {}}]}})
    assert [(note.code, note.field) for note in request.notes] == [
        ("instruction_dropped", "systemInstruction.parts[0]")
    ]


def test_the_options_have_their_places_and_the_rest_is_kept() -> None:
    """Both spellings; what only Gemini knows is kept by its documented name."""
    options = _config(maxOutputTokens=9, temperature=0.5, top_p=0.1, stop_sequences=["x"], seed=1, top_k=4, logprobs=2)
    assert options == Options(
        max_output_tokens=9,
        temperature=0.5,
        top_p=0.1,
        stop=("x",),
        seed=1,
        extra=options.extra,
        extra_protocol="gemini",
    )
    assert {name: read_json(bytes(raw)) for name, raw in options.extra.items()} == {
        "generationConfig": {"topK": 4, "logprobs": 2}
    }


def test_what_stands_beside_is_kept() -> None:
    """Safety settings, caches, hosted tools, what of the tool config is Gemini's own."""
    request = _read(
        {
            "safety_settings": [{"category": "X"}],
            "cachedContent": "cachedContents/1",
            "tools": [{"googleSearch": {}}],
            "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {"languageCode": "de"}},
            "store": False,
        }
    )
    assert {name: read_json(bytes(raw)) for name, raw in request.options.extra.items()} == {
        "safetySettings": [{"category": "X"}],
        "cachedContent": "cachedContents/1",
        "tools": [{"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {"languageCode": "de"}},
    }
    assert request.store is False


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({}, None),
        ({"responseMimeType": "application/json"}, {"type": "json_object"}),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "OBJECT"}},
            {"type": "json_schema", "name": "response", "schema": {"type": "object"}},
        ),
        (
            {"response_mime_type": "application/json", "response_schema": {"type": "STRING", "nullable": True}},
            {"type": "json_schema", "name": "response", "schema": {"type": ["string", "null"]}},
        ),
        ({"responseMimeType": "text/plain"}, None),
        ({"responseMimeType": "text/x.enum", "responseSchema": {"enum": ["A"]}}, None),
    ],
    ids=["none", "json", "router", "declared", "text", "enum"],
)
def test_structured_output_is_said_as_the_other_apis_say_it(config: dict[str, Any], form: Any) -> None:
    """gemini-cli asks its router so, with upper-case types; other types than JSON stay in the config."""
    options = _config(**config)
    assert (None if options.output_schema is None else read_json(bytes(options.output_schema))) == form
    kept = read_json(bytes(options.extra["generationConfig"])) if options.extra else {}
    assert kept == (config if form is None else {})


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        ({"thinkingLevel": "HIGH"}, "high"),
        ({"thinking_level": "minimal"}, "minimal"),
        ({"thinkingBudget": 0}, "none"),
        ({"thinkingBudget": 1024}, "low"),
        ({"thinking_budget": 8192}, "medium"),
        ({"thinkingBudget": 30000}, "high"),
        ({"thinkingBudget": -1}, None),
        ({"includeThoughts": True}, None),
    ],
    ids=lambda value: "",
)
def test_thinking_is_an_effort_and_stays_what_it_is(thinking: dict[str, Any], effort: str | None) -> None:
    """Other providers are told the effort, Gemini its own config."""
    options = _config(thinkingConfig=thinking)
    assert options.reasoning_effort == effort
    assert read_json(bytes(options.extra["generationConfig"])) == {"thinkingConfig": thinking}


@pytest.mark.parametrize(("given", "choices"), [({}, 1), ({"candidateCount": 1}, 1), ({"candidateCount": 3}, 3)])
def test_candidates_are_choices(given: dict[str, Any], choices: int) -> None:
    """Each is a run; the upstream is asked for one at a time."""
    request = _read({"generationConfig": given})
    assert (request.surface.choices, request.options.extra) == (choices, {})


@pytest.mark.parametrize("count", [-1, 9, "two"])
def test_a_number_of_candidates_that_cannot_be_is_refused(count: Any) -> None:
    """The field is named."""
    with pytest.raises(ProtocolError) as caught:
        _config(candidateCount=count)
    assert caught.value.param == "generationConfig.candidateCount"


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        (b"", None, "invalid_json"),
        (b"[]", None, "invalid_json"),
        (b"{", None, "invalid_json"),
        (b"\xff", None, "invalid_json"),
        (b"[" * 100, None, "invalid_json"),
        (b"{}", "contents", "missing_required_parameter"),
        (b'{"contents":[]}', "contents", "missing_required_parameter"),
        (b'{"contents":"hi"}', "contents", "invalid_type"),
        (b'{"contents":[{}],"tools":5}', "tools", "invalid_type"),
        (b'{"contents":[{}],"generationConfig":[]}', "generationConfig", "invalid_type"),
        (b'{"contents":[{}],"generation_config":{"top_p":"x"}}', "generationConfig.topP", "invalid_type"),
        (b'{"contents":[{}],"systemInstruction":5}', "systemInstruction", "invalid_type"),
        (b'{"contents":[{}],"toolConfig":"x"}', "toolConfig", "invalid_type"),
        (
            b'{"contents":[{}],"generationConfig":{"thinkingConfig":{"thinkingBudget":"x"}}}',
            "generationConfig.thinkingConfig.thinkingBudget",
            "invalid_type",
        ),
    ],
    ids=lambda value: "",
)
def test_what_is_not_the_protocol_is_refused_by_path(body: bytes, param: str | None, code: str) -> None:
    """The error names the field and says what is wrong."""
    with pytest.raises(ProtocolError) as caught:
        read_request(body)
    assert (caught.value.param, caught.value.info.code) == (param, code)


def test_halves_of_surrogates_are_mended_and_noted() -> None:
    """Clients cut texts inside an emoji."""
    request = read_request(b'{"contents":[{"parts":[{"text":"a\\ud83d"}]}]}')
    assert request.items == (text_message("user", "a\ufffd"),)
    assert [note.code for note in request.notes] == ["lone_surrogate"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("contents", "parts", "role", "text", "functionCall", "function_response", "name", "args"),
                    *("response", "inlineData", "fileData", "fileUri", "tools", "functionDeclarations", "parameters"),
                    *("type", "properties", "generationConfig", "toolConfig", "thoughtSignature", "thought", "id"),
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(JSON)
def test_no_body_raises_anything_but_a_request_error(value: Any) -> None:
    """Whatever stands where."""
    for body in (value, {"contents": value, "tools": value, "systemInstruction": value}):
        with suppress(RequestError):
            assert read_request(json.dumps(body).encode()).protocol == "gemini"
