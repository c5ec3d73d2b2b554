import pytest

from treadle.core.errors import ProtocolError
from treadle.protocols.field_reader import TEXT
from treadle.protocols.gemini.field_spelling import CamelFields, camel, documented, pick, snake

NAMES = [
    ("functionCall", "function_call"),
    ("parametersJsonSchema", "parameters_json_schema"),
    ("topP", "top_p"),
    ("text", "text"),
]


@pytest.mark.parametrize(("name", "other"), NAMES)
def test_both_spellings_of_a_name_are_the_same(name: str, other: str) -> None:
    """Each spelling turns into the other."""
    assert (camel(other), camel(name)) == (name, name)
    assert snake(name) == other
    assert pick({name: 1}, name) == pick({other: 1}, name) == 1


def test_a_name_that_is_nobodys_stays_as_it_is() -> None:
    """Leading, trailing and double underscores are no words of Gemini's."""
    assert [camel(name) for name in ("__raw", "_x", "a__b", "x_")] == ["__raw", "_x", "a__b", "x_"]


def test_fields_are_read_in_either_spelling() -> None:
    """The documented spelling counts where both are given; nested objects are read so too."""
    fields = CamelFields(b'{"mime_type":"a","fileUri":"b","file_uri":"c","inline_data":{"display_name":"d"}}', "p")
    assert fields.get("mimeType", TEXT) == "a"
    assert fields.get("fileUri", TEXT) == "b"
    inline = fields.object("inlineData")
    assert inline is not None
    assert (inline.get("displayName", TEXT), inline.path) == ("d", "p.inlineData")
    assert fields.rest() == {}


def test_a_wrong_type_is_refused_by_its_documented_name() -> None:
    """The error names the path."""
    with pytest.raises(ProtocolError) as caught:
        CamelFields(b'{"mime_type":5}', "parts[0]").get("mimeType", TEXT)
    assert (caught.value.param, caught.value.info.code) == ("parts[0].mimeType", "invalid_type")


def test_an_object_is_read_in_the_documented_spelling() -> None:
    """The documented one counts unless it is null; an object without any other is the same one."""
    plain = {"finishReason": "STOP", "text": 1}
    assert documented(plain) is plain
    found = documented({"finish_reason": "a", "blockReason": "b", "block_reason": "c", "topP": None, "top_p": 1})
    assert (found["finishReason"], found["blockReason"], found["topP"]) == ("a", "b", 1)
