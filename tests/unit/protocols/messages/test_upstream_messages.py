from typing import Any

import msgspec
import pytest

from treadle.core.items import (
    AnyItem,
    Blob,
    CallItem,
    Extra,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    ReferenceItem,
    ResultItem,
    TextPart,
    text_message,
    text_result,
)
from treadle.core.json import read_json, write_json
from treadle.protocols.messages.content_blocks import BLOCK
from treadle.protocols.messages.upstream_messages import Dialogue
from treadle.protocols.translation_notes import Notes
from unit.protocols.work import steps_run

USER = text_message("user", "hi")
A = CallItem(call_id="a", name="f", arguments='{"x":1}')
B = CallItem(call_id="b", name="g", arguments="{}")
MARK = Extra(protocol="messages", fields={"cache_control": msgspec.Raw(b'{"type":"ephemeral"}')})
SIGNED = ReasoningItem(text=("hm",), blobs=(Blob(provider="p", kind="signature", data="sig", model="m"),))


def _messages(*items: AnyItem, provider: str = "p", model: str = "m") -> tuple[list[Any], list[str]]:
    notes = Notes()
    messages = Dialogue(items, notes, provider, model).messages()
    return read_json(write_json(messages)), [note.code for note in notes.all()]


def _use(call: CallItem, **fields: Any) -> dict[str, Any]:
    given = read_json(call.arguments or "{}")
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": given, **fields}


def _result(call: CallItem, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.call_id, "content": content, **fields}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _says(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": content[0] if len(content) == 1 and isinstance(content[0], str) else list(content)}


def test_a_turn_is_one_message_and_its_results_begin_the_next() -> None:
    """Blocks in their order, results in call order before anything else, errors marked."""
    items = (
        USER,
        SIGNED,
        text_message("assistant", "look"),
        A,
        B,
        text_result(B, "rb", is_error=True),
        text_message("user", "and?"),
        text_result(A, "ra"),
        text_message("assistant", "done"),
        text_message("user", "thanks"),
    )
    assert _messages(*items) == (
        [
            _says("user", "hi"),
            _says(
                "assistant",
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                _text("look"),
                _use(A),
                _use(B),
            ),
            _says("user", _result(A, "ra"), _result(B, "rb", is_error=True), _text("and?")),
            _says("assistant", "done"),
            _says("user", "thanks"),
        ],
        [],
    )


def test_calls_answered_one_by_one_are_turns_of_their_own() -> None:
    """Call, result, call, result, as the Responses API lists them."""
    assert _messages(USER, A, text_result(A, "ra"), B, text_result(B, "rb"))[0] == [
        _says("user", "hi"),
        _says("assistant", _use(A)),
        _says("user", _result(A, "ra")),
        _says("assistant", _use(B)),
        _says("user", _result(B, "rb")),
    ]


def test_neighbours_of_one_role_are_merged() -> None:
    """The API wants users and assistants to take turns."""
    assert _messages(USER, USER, text_message("assistant", "a"), text_message("assistant", "b"), USER)[0] == [
        _says("user", _text("hi"), _text("hi")),
        _says("assistant", _text("a"), _text("b")),
        _says("user", "hi"),
    ]


def test_system_messages_lead_or_keep_their_place() -> None:
    """Those in front are the system prompt; later ones become marked text, with their marks and images."""
    later = MessageItem(
        role="developer",
        content=(
            TextPart(text="mind", extra=MARK),
            ImagePart(url="https://x/a"),
            OpaquePart(protocol="messages", raw=msgspec.Raw(b"{}")),
        ),
    )
    notes = Notes()
    dialogue = Dialogue(
        (text_message("system", "s"), text_message("developer", "d"), USER, A, text_result(A, "r"), later),
        notes,
        "",
        "",
    )
    messages = read_json(write_json(dialogue.messages()))
    assert dialogue.system == [text_message("system", "s"), text_message("developer", "d")]
    assert messages[2:] == [
        _says(
            "user",
            _result(A, "r"),
            {**_text("<system>\nmind\n</system>"), "cache_control": {"type": "ephemeral"}},
            {"type": "image", "source": {"type": "url", "url": "https://x/a"}},
        )
    ]
    assert [note.code for note in notes.all()] == ["part_dropped", "system_in_place"]


def test_what_a_text_retells_goes_back_instead_of_it_but_not_into_a_system_message() -> None:
    """A search result stays one in messages and results; a late system message is text as a whole."""
    found = {"type": "search_result", "source": "s", "title": "t", "content": [_text("x")]}
    extra = Extra(protocol="messages", fields={BLOCK: msgspec.Raw(write_json(found))})
    told = (TextPart(text="[t at s]\nx", extra=extra),)
    late, result = MessageItem(role="developer", content=told), ResultItem(call_id=A.call_id, name=A.name, output=told)
    items = (MessageItem(role="user", content=told), A, result, late)
    messages = read_json(write_json(Dialogue(items, Notes(), "", "").messages()))
    assert messages[0] == {"role": "user", "content": [found]}
    assert [block.get("content", block.get("text")) for block in messages[2]["content"]] == [
        [found],
        "<system>\n[t at s]\nx\n</system>",
    ]


@pytest.mark.parametrize(
    ("blob", "provider", "model", "block"),
    [
        (SIGNED.blobs[0], "p", "m", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        (SIGNED.blobs[0], "p", "", {"type": "thinking", "thinking": "hm", "signature": "sig"}),
        (Blob(provider="p", kind="redacted", data="x"), "p", "m", {"type": "redacted_thinking", "data": "x"}),
        (SIGNED.blobs[0], "p", "other", None),
        (SIGNED.blobs[0], "q", "m", None),
        (SIGNED.blobs[0], "", "m", None),
        (Blob(provider="p", kind="encrypted_content", data="x"), "p", "m", None),
    ],
)
def test_thoughts_go_back_only_to_who_signed_them(blob: Blob, provider: str, model: str, block: Any) -> None:
    """Provider and, where both are known, model; others are dropped and noted."""
    item = ReasoningItem(text=("hm",), blobs=(blob,))
    messages, codes = _messages(USER, item, text_message("assistant", "yes"), provider=provider, model=model)
    expected = _says("assistant", "yes") if block is None else _says("assistant", block, _text("yes"))
    assert messages[1] == expected
    assert codes == ([] if block else ["reasoning_dropped"])


def test_thoughts_that_nothing_followed_are_dropped() -> None:
    """A message may not end in them."""
    assert _messages(USER, SIGNED) == ([_says("user", "hi")], ["reasoning_dropped"])
    messages, _ = _messages(USER, text_message("assistant", "a"), SIGNED, USER)
    assert messages[1] == _says("assistant", "a")


def test_images_and_marks_of_results_stay_with_them() -> None:
    """The API takes both inside a result."""
    result = ResultItem(call_id="a", output=(TextPart(text="see"), ImagePart(url="https://x/a")), extra=MARK)
    messages, codes = _messages(USER, A, result)
    image = {"type": "image", "source": {"type": "url", "url": "https://x/a"}}
    assert messages[2] == _says("user", _result(A, [_text("see"), image], cache_control={"type": "ephemeral"}))
    assert codes == []


def test_a_result_of_nothing_is_an_empty_text() -> None:
    """Blank text is not allowed as a block."""
    messages, _ = _messages(USER, A, ResultItem(call_id="a", output=(TextPart(text=" "),)))
    assert messages[2] == _says("user", _result(A, ""))


def test_what_has_no_partner_is_repaired() -> None:
    """A call without a result, a result without a call, a second result."""
    messages, codes = _messages(
        USER,
        A,
        ResultItem(call_id="z", name="h", output=(TextPart(text="r"),)),
        B,
        text_result(B, "1"),
        text_result(B, "2"),
    )
    assert messages[2]["content"][0]["is_error"]
    assert "interrupted" in messages[2]["content"][0]["content"]
    assert messages[2]["content"][1] == _text("[result of h without its call] r")
    assert messages[4] == _says("user", _result(B, "1"))
    assert codes == ["orphan_result", "orphan_call", "extra_result"]


def test_ids_are_unique_and_of_the_alphabet() -> None:
    """Some models count their calls from zero in every reply."""
    odd = CallItem(call_id="functions.f:0", name="f", arguments="{}")
    messages, _ = _messages(USER, odd, text_result(odd, "1"), odd, text_result(odd, "2"))
    ids = [messages[place]["content"][0]["id"] for place in (1, 3)]
    assert [messages[place]["content"][0]["tool_use_id"] for place in (2, 4)] == ids
    assert [messages[place]["content"][0]["content"] for place in (2, 4)] == ["1", "2"]
    assert len(set(ids)) == 2
    assert all(call_id.replace("_", "").replace("-", "").isalnum() for call_id in ids)


@pytest.mark.parametrize(
    ("call", "given", "codes"),
    [
        (CallItem(call_id="a", name="f", arguments=""), {}, []),
        (CallItem(call_id="a", name="f", arguments="oops"), {"INVALID_JSON": "oops"}, ["arguments_wrapped"]),
        (CallItem(call_id="a", name="f", arguments="[1]"), {"INVALID_JSON": "[1]"}, ["arguments_wrapped"]),
        (CallItem(call_id="a", name="f", arguments="x = 1", kind="custom"), {"input": "x = 1"}, []),
    ],
)
def test_arguments_become_an_object(call: CallItem, given: Any, codes: list[str]) -> None:
    """The API takes nothing else."""
    messages, noted = _messages(USER, call, text_result(call, "r"))
    assert messages[1]["content"][0]["input"] == given
    assert noted == codes


@pytest.mark.parametrize("role", [{"a": 1}, 5, None, ["judge"]])
def test_a_block_that_has_a_strange_role_of_its_own_goes_back(role: object) -> None:
    """Only a message has a role in words; a block of an unknown kind may call anything so."""
    block = {"type": "badge", "role": role}
    opaque = OpaqueItem(protocol="messages", raw=msgspec.Raw(write_json(block)))
    messages, codes = _messages(USER, opaque)
    assert messages[-1] == {"role": "assistant", "content": [block]}
    assert codes == []


def test_opaque_items_go_back_in_place() -> None:
    """Those of this protocol; others, references and messages of odd roles are noted."""
    search = OpaqueItem(protocol="messages", raw=msgspec.Raw(b'{"type":"server_tool_use","id":"s"}'))
    other = OpaqueItem(protocol="responses", raw=msgspec.Raw(b'{"type":"shell_call"}'))
    odd = OpaqueItem(protocol="messages", raw=msgspec.Raw(b'{"role":"judge","content":"x"}'))
    messages, codes = _messages(USER, search, text_message("assistant", "a"), other, odd, ReferenceItem(id="x"))
    assert messages[1] == _says("assistant", {"type": "server_tool_use", "id": "s"}, _text("a"))
    assert codes == ["item_dropped", "reference_dropped"]


def test_a_conversation_begins_with_a_user_and_does_not_end_in_space() -> None:
    """The API refuses both; what is missing is said."""
    messages, codes = _messages(text_message("assistant", "The answer is (  "))
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert messages[1]["content"] == "The answer is ("
    assert codes == ["opening_added"]
    assert [message["role"] for message in _messages()[0]] == ["user"]


def test_names_and_foreign_state_are_noted() -> None:
    """The API has no place for them."""
    blob = Blob(provider="gemini", kind="thought_signature", data="x")
    named = MessageItem(role="user", content=(TextPart(text="hi"),), name="ann", blobs=(blob,))
    call = msgspec.structs.replace(A, blobs=(blob,))
    _, codes = _messages(named, call, text_result(call, "r"))
    assert codes == ["name_dropped", "blob_dropped"]


def test_many_calls_of_one_id_cost_in_proportion() -> None:
    """A new id goes on from the last number, and stays short."""

    def work(count: int) -> int:
        return steps_run(lambda: Dialogue([A] * count, Notes(), "p", "m").messages())

    assert work(400) < 3 * work(200)
    messages, _ = _messages(USER, A, CallItem(call_id="a_2", name="f"), A, A)
    assert [block["id"] for block in messages[1]["content"]] == ["a", "a_2", "a_3", "a_4"]


def test_an_error_is_never_without_words() -> None:
    """The API refuses an empty error; an empty result that is none stays empty."""
    for is_error, content in ((True, "(It failed without a word.)"), (False, "")):
        messages, _ = _messages(USER, A, ResultItem(call_id="a", is_error=is_error))
        (result,) = messages[-1]["content"]
        assert (result["content"], result.get("is_error", False)) == (content, is_error)


@pytest.mark.parametrize("part", [ImagePart(url="data:image/png;base64,AAAA"), FilePart(url="https://a.example/x.pdf")])
def test_what_an_assistant_showed_follows_in_a_users_message(part: ImagePart | FilePart) -> None:
    """Behind the results of its calls; the API takes neither from an assistant."""
    notes = Notes()
    call = CallItem(call_id="c", name="f", arguments="{}")
    said = MessageItem(role="assistant", content=(TextPart(text="Here."), part))
    items = (text_message("user", "draw"), said, call, text_result(call, "ok"), text_message("user", "thanks"))
    _, answer, user = Dialogue(items, notes, "", "m").messages()
    assert [block["type"] for block in answer["content"]] == ["text", "text", "tool_use"]
    kind = "image" if isinstance(part, ImagePart) else "document"
    assert [block["type"] for block in user["content"]] == ["tool_result", "text", kind, "text"]
    assert [(note.code, note.action) for note in notes.all()] == [("answer_attachment", "emulated")]
