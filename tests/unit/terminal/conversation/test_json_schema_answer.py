"""Answers that follow a schema."""

from pathlib import Path

import msgspec
import pytest

from treadle.core.errors import ConfigError
from treadle.terminal.conversation.json_schema_answer import fault_of, read_schema

SCHEMA = msgspec.Raw(b'{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"n":1}', None),
        (' {"n":1}\n', None),
        ("one", "the answer is not JSON"),
        ('{"n":"1"}', "does not follow the schema at /n: "),
        ("{}", "does not follow the schema at /: "),
    ],
)
def test_an_answer_is_held_against_the_schema(text: str, words: str | None) -> None:
    """What is wrong is said, and where."""
    fault = fault_of(text, SCHEMA)
    assert (fault is None) == (words is None)
    if fault is not None:
        assert words in fault.message
        assert fault.code == "schema_mismatch"


def test_a_schema_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Byte for byte."""
    (tmp_path / "s.json").write_bytes(bytes(SCHEMA))
    assert bytes(read_schema(str(tmp_path / "s.json"))) == bytes(SCHEMA)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "can not be read"), ("{", "is not JSON"), ("[]", "is an object"), ('{"type":"none"}', "is no JSON Schema")],
)
def test_what_is_no_schema_is_a_usage_error(tmp_path: Path, content: str | None, words: str) -> None:
    """The file is named."""
    if content is not None:
        (tmp_path / "s.json").write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=words) as caught:
        read_schema(str(tmp_path / "s.json"))
    assert "s.json" in caught.value.message
