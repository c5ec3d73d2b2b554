import pytest

from treadle.canon.errors import ProtocolError
from treadle.wire.fields import TEXT
from treadle.wire.gemini.spelling import CamelFields, camel, pick, snake

NAMES = [
    ("functionCall", "function_call"),
    ("parametersJsonSchema", "parameters_json_schema"),
    ("topP", "top_p"),
    ("text", "text"),
]


@pytest.mark.parametrize(("documented", "other"), NAMES)
def test_both_spellings_of_a_name_are_the_same(documented: str, other: str) -> None:
    """Each spelling turns into the other."""
    assert (camel(other), camel(documented)) == (documented, documented)
    assert snake(documented) == other
    assert pick({documented: 1}, documented) == pick({other: 1}, documented) == 1


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
