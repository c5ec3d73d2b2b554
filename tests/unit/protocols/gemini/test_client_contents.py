import json
from typing import Any

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ResultItem,
    TextPart,
    text_message,
)
from treadle.protocols.gemini.client_contents import ContentReader
from treadle.protocols.gemini.content_parts import named_call, seal
from treadle.protocols.translation_notes import Notes
from unit.protocols.work import steps_run

SIGNED = Blob(provider="gemini", kind="thought_signature", data="c2ln")


def _read(*contents: Any) -> tuple[list[AnyItem], list[str]]:
    notes = Notes()
    items = ContentReader(notes).read([msgspec.Raw(json.dumps(each).encode()) for each in contents], "contents")
    return list(items), [note.code for note in notes.all()]


def _user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def _model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def _call(name: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **fields}}


def _response(name: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": text}, **fields}}


def _result(call_id: str, name: str, text: str) -> ResultItem:
    return ResultItem(call_id=call_id, name=name, output=(TextPart(text=text),))


@pytest.mark.parametrize("content", [{"role": "user", "parts": [{"text": "hi"}]}, {"parts": {"text": "hi"}}])
def test_a_content_without_a_role_is_the_users(content: Any) -> None:
    """A single part may stand there without a list."""
    assert _read(content) == ([text_message("user", "hi")], [])


def test_every_chunk_of_a_replayed_stream_is_one_turn() -> None:
    """Consecutive contents of the model, the empty last ones too, are joined without a break."""
    items, codes = _read(
        _user({"text": "hi"}),
        _model({"text": "Hm", "thought": True}),
        _model({"text": ".", "thought": True}),
        _model({"text": "Hel"}),
        _model({"text": "lo"}),
        _model(_call("f", id="a")),
        _model({"text": ""}),
        {"role": "model"},
        _user({"text": "bye"}),
    )
    assert items == [
        text_message("user", "hi"),
        ReasoningItem(text=("Hm.",)),
        text_message("assistant", "Hello"),
        CallItem(call_id="a", name="f", arguments="{}"),
        text_message("user", "bye"),
    ]
    assert codes == []


def test_results_without_ids_belong_to_the_open_calls_by_name_and_order() -> None:
    """Two calls of one tool are answered in order, whatever stands between."""
    items, codes = _read(
        _model(_call("f", args={"n": 1}), _call("g"), _call("f", args={"n": 2})),
        _user(_response("g", "G"), _response("f", "1"), _response("f", "2"), {"text": "go on"}),
    )
    assert items[3:] == [
        _result("call_0_1", "g", "G"),
        _result("call_0_0", "f", "1"),
        _result("call_0_2", "f", "2"),
        text_message("user", "go on"),
    ]
    assert [item.call_id for item in items[:3] if isinstance(item, CallItem)] == ["call_0_0", "call_0_1", "call_0_2"]
    assert codes == []


def test_a_result_with_an_id_is_the_result_of_that_call() -> None:
    """Order does not matter then; an id that nobody knows is kept."""
    items, _ = _read(
        _model(_call("f", id="a"), _call("f", id="b")),
        {"role": "function", "parts": [_response("f", "B", id="b"), _response("f", "A", id="a")]},
        {"role": "tool", "parts": [_response("h", "?", id="zz")]},
    )
    assert items[2:] == [_result("b", "f", "B"), _result("a", "f", "A"), _result("zz", "h", "?")]


def test_a_result_of_another_name_answers_the_oldest_open_call() -> None:
    """Some clients rename a call they could not run; with nothing open it stands alone."""
    items, _ = _read(
        _model(_call("f", id="a")), _user(_response("invalid", "no such tool")), _user(_response("x", "late"))
    )
    assert items[1:] == [_result("a", "f", "no such tool"), _result("call_2_0_unmatched", "x", "late")]


def test_an_old_unanswered_call_takes_no_result_of_a_later_one() -> None:
    """Only the last turn is open."""
    items, _ = _read(
        _model(_call("f", id="old")), _user({"text": "stop"}), _model(_call("f", id="new")), _user(_response("f", "x"))
    )
    assert items[-1] == _result("new", "f", "x")


def test_a_late_result_finds_its_call_by_id() -> None:
    """Even when other turns came between."""
    items, _ = _read(
        _model(_call("f", id="old")),
        _user({"text": "stop"}),
        _model({"text": "ok"}),
        _user(_response("x", "y", id="old")),
    )
    assert items[-1] == _result("old", "f", "y")


def test_a_second_call_of_the_same_id_gets_its_own() -> None:
    """Both results find their call."""
    items, _ = _read(
        _model(_call("f", id="a"), _call("g", id="a")), _user(_response("f", "F", id="a"), _response("g", "G", id="a"))
    )
    assert items == [
        CallItem(call_id="a", name="f", arguments="{}"),
        CallItem(call_id="call_0_1", name="g", arguments="{}", upstream_id="a"),
        _result("a", "f", "F"),
        _result("call_0_1", "g", "G"),
    ]


def test_signatures_stay_on_what_they_sign() -> None:
    """Thoughts, texts and calls each keep their own; parts after a signed thought begin another one."""
    items, _ = _read(
        _model(
            {"text": "a", "thought": True, "thoughtSignature": "c2ln"},
            {"text": "b", "thought": True},
            {"text": "Hi"},
            {"text": "", "thought_signature": "c2ln"},
            {**_call("f", id="x"), "thoughtSignature": "c2ln"},
        )
    )
    assert items == [
        ReasoningItem(text=("a",), blobs=(SIGNED,)),
        ReasoningItem(text=("b",)),
        MessageItem(role="assistant", content=(TextPart(text="Hi"),), blobs=(SIGNED,)),
        CallItem(call_id="x", name="f", arguments="{}", blobs=(SIGNED,)),
    ]


def test_files_of_a_result_are_kept() -> None:
    """Nested parts of a function response follow its text; fields of no use to us are kept."""
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    items, _ = _read(
        _model(_call("f", id="a"), _call("g", id="b")),
        _user(
            _response("f", "see", parts=[image], scheduling="SILENT"),
            {"functionResponse": {"name": "g", "parts": [image]}},
        ),
    )
    shown = ImagePart(url="data:image/png;base64,AAAA")
    kept = Extra(protocol="gemini", fields={"scheduling": msgspec.Raw(b'"SILENT"')})
    assert items[2:] == [
        ResultItem(call_id="a", name="f", output=(TextPart(text="see"), shown), extra=kept),
        ResultItem(call_id="b", name="g", output=(shown,)),
    ]


def test_an_error_is_an_error() -> None:
    """The SDK reports one as the only key of the response."""
    items, _ = _read(
        _model(_call("f", id="a")), _user({"functionResponse": {"name": "f", "response": {"error": "boom"}}})
    )
    assert items[1] == ResultItem(call_id="a", name="f", output=(TextPart(text="boom"),), is_error=True, rc="failed")


def test_unknown_parts_and_roles_are_kept() -> None:
    """Nothing that a client sends is refused for being unknown."""
    items, codes = _read(
        _model({"text": "see"}, {"executableCode": {"code": "1"}}, {"text": "so"}),
        {"role": "narrator", "parts": [{"text": "meanwhile"}]},
        {"role": "system", "parts": [{"text": "be brief"}]},
        _model({"functionCall": {"partialArgs": []}}),
    )
    code = OpaquePart(protocol="gemini", raw=msgspec.Raw(b'{"executableCode":{"code": "1"}}'))
    assert items[0] == MessageItem(role="assistant", content=(TextPart(text="see"), code, TextPart(text="so")))
    assert isinstance(items[1], OpaqueItem)
    assert json.loads(bytes(items[1].raw))["role"] == "narrator"
    assert items[2:] == [text_message("system", "be brief")]
    assert codes == ["unknown_role", "call_without_name"]


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (5, "contents[0]"),
        ({"parts": "hi"}, "contents[0].parts"),
        ({"parts": ["hi"]}, "contents[0].parts[0]"),
        ({"role": 5}, "contents[0].role"),
        (_model({"functionCall": {"name": "f", "args": "x"}}), "contents[0].parts[0].functionCall.args"),
        (_model({"text": "x", "thought": "y"}), "contents[0].parts[0].thought"),
        (_user({"functionResponse": {"response": []}}), "contents[0].parts[0].functionResponse.response"),
    ],
    ids=lambda value: "",
)
def test_a_wrong_type_is_refused_by_path(content: Any, param: str) -> None:
    """The error names the field."""
    with pytest.raises(ProtocolError) as caught:
        _read(content)
    assert caught.value.param == param


@pytest.mark.parametrize("has_ids", [True, False])
def test_many_results_cost_in_proportion(has_ids: bool) -> None:
    """Thousands of results do not each look through all open calls."""

    def work(count: int) -> int:
        ids = [{"id": f"c{number}"} if has_ids else {} for number in range(count)]
        calls = [{"functionCall": {"name": "f", "args": {}, **each}} for each in ids]
        results = [{"functionResponse": {"name": "f", "response": {}, **each}} for each in reversed(ids)]
        contents = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
        raws = [msgspec.Raw(json.dumps(content).encode()) for content in contents]
        return steps_run(lambda: ContentReader(Notes()).read(raws, "contents"))

    assert work(400) < 2.1 * work(200)


def test_a_call_is_known_by_the_id_that_was_sealed_with_it() -> None:
    """Where a client dropped the field: the other state stays, and a field that is there counts more."""
    blob = Blob(provider="p", kind="signature", data="x", model="m")
    signature = seal((blob, named_call("call_7")))
    call = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": signature}
    named = {**call, "functionCall": {"id": "given", "name": "f", "args": {}}}
    items = ContentReader(Notes()).read(
        [msgspec.Raw(json.dumps({"role": "model", "parts": [call, named, call]}).encode())], "contents"
    )
    calls = [item for item in items if isinstance(item, CallItem)]
    assert [call.call_id for call in calls] == ["call_7", "given", "call_0_2"]
    assert [call.blobs for call in calls] == [(blob,)] * 3
