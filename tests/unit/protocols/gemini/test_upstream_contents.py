import json
from typing import Any

import msgspec

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    ImagePart,
    MessageItem,
    OpaqueItem,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.protocols.gemini.upstream_contents import ContentsReader, write_contents
from treadle.protocols.translation_notes import Notes
from unit.protocols.work import Counted

USER = text_message("user", "hi")
A = CallItem(call_id="a", name="f", arguments='{"x":1}')
B = CallItem(call_id="b", name="g", arguments="{}")
OWN = Blob(provider="google", kind="thought_signature", data="c2ln", model="gemini-2.5-pro")
OLD = ContentsReader(provider="google", model="gemini-2.5-pro", is_old=True)
NEW = ContentsReader(provider="google", model="gemini-3-pro")


def _written(*items: AnyItem, reader: ContentsReader = OLD) -> tuple[list[Any], list[str]]:
    notes = Notes()
    history = write_contents(items, reader, notes)
    return json.loads(msgspec.json.encode(history.contents)), [note.code for note in notes.all()]


def _call(call: CallItem, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"id": call.call_id, "name": call.name, "args": json.loads(call.arguments)}, **fields}


def _response(call: CallItem, text: str) -> dict[str, Any]:
    return {"functionResponse": {"id": call.call_id, "name": call.name, "response": {"output": text}}}


def _user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def _model(*parts: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def test_user_and_model_alternate_strictly() -> None:
    """Neighbours of one side are one content; two messages of the model stay two paragraphs."""
    contents, codes = _written(
        USER,
        text_message("user", "there"),
        text_message("assistant", "one"),
        text_message("assistant", "two"),
        USER,
    )
    assert contents == [
        _user({"text": "hi"}, {"text": "there"}),
        _model({"text": "one"}, {"text": "\n\ntwo"}),
        _user({"text": "hi"}),
    ]
    assert codes == []


def test_all_results_of_a_turn_follow_it_in_call_order() -> None:
    """However they were given; what the user says next is in the same content, behind them."""
    contents, codes = _written(
        USER, A, B, text_result(B, "two"), USER, text_result(A, "one"), text_message("assistant", "ok")
    )
    assert contents == [
        _user({"text": "hi"}),
        _model(_call(A), _call(B)),
        _user(_response(A, "one"), _response(B, "two"), {"text": "hi"}),
        _model({"text": "ok"}),
    ]
    assert codes == []


def test_rounds_of_calls_are_turns_of_their_own() -> None:
    """Text behind a call is of the call's turn, a call behind its result of the next."""
    contents, _ = _written(A, text_message("assistant", "wait"), text_result(A, "1"), B, text_result(B, "2"))
    assert contents == [
        _model(_call(A), {"text": "wait"}),
        _user(_response(A, "1")),
        _model(_call(B)),
        _user(_response(B, "2")),
    ]


def test_an_open_call_is_closed_as_interrupted() -> None:
    """Gemini refuses a turn of which one call has no result."""
    contents, codes = _written(A, B, text_result(B, "2"), USER)
    assert contents[1]["parts"][0]["functionResponse"]["response"]["error"]["code"] == "interrupted"
    assert contents[1]["parts"][1:] == [_response(B, "2"), {"text": "hi"}]
    assert codes == ["orphan_call"]


def test_a_result_without_its_call_becomes_text() -> None:
    """Nothing is lost, and it is noted."""
    contents, codes = _written(text_result(A, "lost"), text_message("assistant", "ok"))
    assert contents == [_user({"text": "[result of f without its call] lost"}), _model({"text": "ok"})]
    assert codes == ["orphan_result"]


def test_a_second_result_and_a_reference_are_left_out() -> None:
    """A call has one result; a reference to nothing stands for nothing."""
    contents, codes = _written(A, text_result(A, "1"), text_result(A, "2"), ReferenceItem(id="x"))
    assert contents == [_model(_call(A)), _user(_response(A, "1"))]
    assert codes == ["reference_dropped", "extra_result"]


def test_a_signature_goes_back_on_the_part_it_signs() -> None:
    """Thought, text and call; to the provider and model that made it only."""
    items = (
        ReasoningItem(text=("Hm",), blobs=(OWN,)),
        MessageItem(role="assistant", content=(TextPart(text="a"), TextPart(text="b")), blobs=(OWN,)),
        msgspec.structs.replace(A, blobs=(OWN,)),
        text_result(A, "1"),
    )
    contents, codes = _written(*items)
    assert contents[0] == _model(
        {"text": "Hm", "thought": True, "thoughtSignature": "c2ln"},
        {"text": "a"},
        {"text": "b", "thoughtSignature": "c2ln"},
        _call(A, thoughtSignature="c2ln"),
    )
    assert codes == []
    strangers = [
        ContentsReader(is_old=True),
        ContentsReader(provider="other", model="gemini-2.5-pro", is_old=True),
        ContentsReader(provider="google", model="gemini-2.5-flash", is_old=True),
    ]
    for reader in strangers:
        contents, codes = _written(*items, reader=reader)
        assert contents[0] == _model({"text": "Hm", "thought": True}, {"text": "a"}, {"text": "b"}, _call(A))
        assert codes == ["blob_dropped"]


def test_a_blob_of_another_kind_is_no_signature() -> None:
    """Even the same provider did not make it as one."""
    blob = Blob(provider="google", kind="extra_content", data="{}")
    contents, codes = _written(msgspec.structs.replace(A, blobs=(blob,)), text_result(A, "1"))
    assert contents[0] == _model(_call(A))
    assert codes == ["blob_dropped"]


def test_the_first_call_of_a_turn_is_marked_where_no_signature_can_be_given() -> None:
    """Gemini 3 refuses the request otherwise; older models want nothing of it."""
    contents, codes = _written(A, B, text_result(A, "1"), text_result(B, "2"), reader=NEW)
    assert contents[0] == _model(_call(A, thoughtSignature="skip_thought_signature_validator"), _call(B))
    assert codes == ["unsigned_call"]


def test_the_providers_own_id_goes_back() -> None:
    """Unless it was given twice: then ours tells the calls apart."""
    first = msgspec.structs.replace(A, upstream_id="up")
    second = msgspec.structs.replace(B, upstream_id="up")
    contents, _ = _written(first, second, text_result(A, "1"), text_result(B, "2"))
    assert [part["functionCall"]["id"] for part in contents[0]["parts"]] == ["up", "b"]
    assert [part["functionResponse"]["id"] for part in contents[1]["parts"]] == ["up", "b"]


def test_files_of_results_are_never_lost() -> None:
    """Inside the response where the model takes them there, else behind all responses."""
    image = ImagePart(url="data:image/png;base64,AAAA")
    result = ResultItem(call_id="a", name="f", output=(TextPart(text="see"), image))
    shown = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    contents, codes = _written(A, B, result, text_result(B, "2"))
    assert contents[1] == _user(
        _response(A, "see"), _response(B, "2"), {"text": "[attached to the result of f]"}, shown
    )
    assert codes == ["result_attachment"]
    contents, codes = _written(A, result, reader=NEW)
    response = _response(A, "see")
    response["functionResponse"]["parts"] = [shown]
    assert contents[1] == _user(response)
    assert codes == ["unsigned_call"]


def test_malformed_arguments_are_passed_on() -> None:
    """Never mended, never a broken body."""
    broken = msgspec.structs.replace(A, arguments='{"x":')
    custom = CallItem(call_id="c", name="h", arguments="free text", kind="custom")
    contents, _ = _written(broken, custom, text_result(broken, "bad", is_error=True), text_result(custom, "ok"))
    assert [part["functionCall"]["args"] for part in contents[0]["parts"]] == [
        {"__raw": '{"x":'},
        {"input": "free text"},
    ]
    assert contents[1]["parts"][0]["functionResponse"]["response"] == {"error": "bad"}


def test_reasoning_that_nothing_followed_is_dropped_and_noted() -> None:
    """A content of thoughts alone says nothing."""
    contents, codes = _written(USER, ReasoningItem(summary=("a",), text=("b",)), USER)
    assert contents == [_user({"text": "hi"}, {"text": "hi"})]
    assert codes == ["reasoning_dropped"]


def test_kept_contents_go_back_to_gemini_only() -> None:
    """A content of a role that Treadle does not know stands where it stood."""
    raw = msgspec.Raw(b'{"role":"narrator","parts":[]}')
    contents, codes = _written(USER, OpaqueItem(protocol="gemini", raw=raw), USER, OpaqueItem(protocol="chat", raw=raw))
    assert contents == [_user({"text": "hi"}), {"role": "narrator", "parts": []}, _user({"text": "hi"})]
    assert codes == ["item_dropped"]


def test_system_messages_are_the_instruction() -> None:
    """They are no contents; the name of a speaker cannot be said."""
    notes = Notes()
    items = (
        text_message("system", "a"),
        text_message("developer", "b"),
        MessageItem(role="user", content=(TextPart(text="hi"),), name="Ann"),
    )
    history = write_contents(items, OLD, notes)
    assert history.system == [{"text": "a"}, {"text": "b"}]
    assert json.loads(msgspec.json.encode(history.contents)) == [_user({"text": "hi"})]
    assert [note.code for note in notes.all()] == ["name_dropped"]


def test_ids_of_many_calls_are_not_compared_with_each_other() -> None:
    """Whether the provider gave an id twice is looked up, not searched."""
    calls = [CallItem(call_id=f"c{n}", name="f", arguments="{}", upstream_id=Counted(f"u{n}")) for n in range(300)]
    Counted.compared = 0
    write_contents(calls, OLD, Notes())
    assert Counted.compared < 5 * len(calls)
