from treadle.core.items import (
    CallItem,
    ImagePart,
    MessageItem,
    RefusalPart,
    ResultItem,
    TextPart,
    text_message,
    text_of,
    text_result,
)


def test_the_text_of_parts_is_the_text_among_them():
    """One part, several, none; what is no text adds nothing, alone or between others."""
    image = ImagePart(url="https://example.org/a.png")
    assert text_of(()) == ""
    assert text_of((TextPart(text="a"),)) == "a"
    assert text_of((image,)) == ""
    assert text_of((RefusalPart(text="no"),)) == ""
    assert text_of((TextPart(text="a"), image, TextPart(text="b"))) == "ab"


def test_a_text_message_can_always_be_written():
    """Half of a surrogate pair, as a terminal may hand it over, is replaced."""
    assert text_message("user", "a\udc80b", "msg_1") == MessageItem(
        id="msg_1", role="user", content=(TextPart(text="a?b"),)
    )


def test_a_text_result_belongs_to_its_call():
    """It has the call's id, name and kind; it is a success unless said otherwise."""
    call = CallItem(call_id="call_1", name="shell", kind="custom")
    output = (TextPart(text="done"),)
    assert text_result(call, "done") == ResultItem(call_id="call_1", name="shell", kind="custom", output=output)
    assert text_result(call, "done", is_error=True, rc="failed") == ResultItem(
        call_id="call_1", name="shell", kind="custom", output=output, is_error=True, rc="failed"
    )
