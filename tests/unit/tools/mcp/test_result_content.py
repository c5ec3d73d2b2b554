"""Results of MCP tools become what a model reads: text, images, sounds, files, data."""

import asyncio
import json
from typing import Any

import mcp_types as types
import msgspec
import pytest

from treadle.core.errors import ToolFailed
from treadle.core.items import FilePart, ImagePart, TextPart
from treadle.core.json import write_json
from treadle.tools.json_schema import Validator
from treadle.tools.mcp.result_content import BLOCKS_MAX, read_result
from treadle.tools.result_rendering import ToolAnswer, write_text


def read(*content: types.ContentBlock, **more: Any) -> ToolAnswer:
    """Read a result of these blocks."""
    return asyncio.run(read_result(types.CallToolResult(content=list(content), **more)))


def text(words: str) -> types.TextContent:
    """Return a block of text."""
    return types.TextContent(text=words)


def test_texts_are_joined_line_by_line() -> None:
    """Several blocks of text are one text."""
    assert write_text(read(text("one"), text("two"))) == "one\ntwo"


def test_nothing_is_an_empty_text() -> None:
    """A tool that says nothing has still answered."""
    assert write_text(read()) == ""


def test_structured_data_is_read_where_there_are_no_words() -> None:
    """As compact JSON."""
    assert write_text(read(structured_content={"a": [1, 2]})) == '{"a":[1,2]}'


def test_words_are_read_and_structured_data_is_kept() -> None:
    """The model reads the text, the journal has both."""
    answer = read(text("It is 3."), structured_content={"result": 3})
    assert write_text(answer) == "It is 3."
    assert json.loads(bytes(answer.envelope.data)) == {"result": 3}


def test_blocks_of_every_kind_become_parts() -> None:
    """In their order."""
    blob = types.BlobResourceContents(uri="file:///tmp/a%20b.pdf", blob="JVBERg==", mime_type="application/pdf")
    drawn = types.BlobResourceContents(uri="x://y", blob="iVBORw==", mime_type="image/png")
    answer = read(
        text("see"),
        types.ImageContent(data="iVBORw==", mime_type="image/PNG"),
        types.AudioContent(data="UklGRg==", mime_type="audio/wav"),
        types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="inside")),
        types.EmbeddedResource(resource=blob),
        types.EmbeddedResource(resource=drawn),
        types.ResourceLink(name="more", uri="file:///etc/passwd"),
    )
    assert answer.parts == (
        TextPart(text="see"),
        ImagePart(url="data:image/png;base64,iVBORw=="),
        FilePart(url="data:audio/wav;base64,UklGRg==", filename="audio.wav"),
        TextPart(text="\ninside"),
        FilePart(url="data:application/pdf;base64,JVBERg==", filename="a%20b.pdf"),
        ImagePart(url="data:image/png;base64,iVBORw=="),
        TextPart(text="\n[resource more at file:///etc/passwd]"),
    )


def test_an_odd_type_cannot_break_out_of_its_url() -> None:
    """A type that is none is no part of a data URL."""
    answer = read(types.AudioContent(data="UklGRg==", mime_type="audio/x;,evil"))
    assert answer.parts == (FilePart(url="data:application/octet-stream;base64,UklGRg==", filename="audio"),)


def test_an_error_is_told_in_its_own_bounded_words() -> None:
    """And one without words says that."""
    with pytest.raises(ToolFailed, match="out of paper"):
        read(text("out of paper"), is_error=True)
    with pytest.raises(ToolFailed, match="did not say why"):
        read(is_error=True)
    with pytest.raises(ToolFailed) as raised:
        read(text("x" * 100_000), is_error=True)
    assert len(raised.value.message) <= 4_000


def test_data_that_is_not_base64_is_a_failure() -> None:
    """Nothing unreadable is handed on."""
    with pytest.raises(ToolFailed, match="not base64"):
        read(types.ImageContent(data="***", mime_type="image/png"))


def test_too_many_blocks_are_cut_with_a_notice() -> None:
    """The model reads that there was more."""
    answer = read(*(text("x") for _ in range(BLOCKS_MAX + 5)))
    assert write_text(answer).endswith("[5 more pieces of content left out]")


def test_data_that_breaks_the_declared_schema_is_a_failure() -> None:
    """A server keeps its own promise, or its result does not count."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    output = Validator(msgspec.Raw(write_json(schema)))
    good = types.CallToolResult(content=[], structured_content={"n": 1})
    assert write_text(asyncio.run(read_result(good, output))) == '{"n":1}'
    for bad in ({"n": "x"}, None):
        with pytest.raises(ToolFailed, match="does not fit the schema"):
            asyncio.run(read_result(types.CallToolResult(content=[], structured_content=bad), output))


def test_lone_surrogates_are_replaced() -> None:
    """JSON escapes can carry what UTF-8 cannot."""
    assert write_text(read(text("a\ud800b"))) == "a?b"
