"""Results of Treadle's tools as MCP clients read them."""

import mcp_types as types
import msgspec

from treadle.core.items import AnyPart, FilePart, ImagePart, OpaquePart, ResultItem, TextPart
from treadle.server.mcp.served_tools import write_result


def written(*parts: AnyPart, is_error: bool = False) -> types.CallToolResult:
    """Write a result of these parts."""
    return write_result(ResultItem(call_id="c", output=parts, is_error=is_error))


def test_parts_become_blocks_of_their_kind() -> None:
    """Text, images, sounds and files, in their order; an address is told as text."""
    result = written(
        TextPart(text="see"),
        ImagePart(url="data:image/png;base64,AA=="),
        ImagePart(url="https://example.org/a.png"),
        FilePart(url="data:audio/wav;base64,AA==", filename="a.wav"),
        FilePart(url="data:application/pdf;base64,AA==", filename="a.pdf"),
    )
    pdf = types.BlobResourceContents(uri="treadle://result/a.pdf", blob="AA==", mime_type="application/pdf")
    assert result.content == [
        types.TextContent(text="see"),
        types.ImageContent(data="AA==", mime_type="image/png"),
        types.TextContent(text="https://example.org/a.png"),
        types.AudioContent(data="AA==", mime_type="audio/wav"),
        types.EmbeddedResource(resource=pdf),
    ]


def test_an_object_is_given_as_structured_content_too() -> None:
    """One text that is a JSON object; lists, errors and words are only text."""
    assert written(TextPart(text='{"a":1}')).structured_content == {"a": 1}
    for parts, is_error in (
        ((TextPart(text="[1]"),), False),
        ((TextPart(text="{broken"),), False),
        ((TextPart(text='{"error":{}}'),), True),
        ((TextPart(text="{}"), TextPart(text="x")), False),
    ):
        result = written(*parts, is_error=is_error)
        assert (result.structured_content, result.is_error) == (None, is_error)


def test_what_mcp_cannot_carry_is_named() -> None:
    """Also a file that only its provider has; an empty result is an empty text."""
    opaque = OpaquePart(protocol="chat", raw=msgspec.Raw(b"{}"))
    assert written(opaque, FilePart(file_id="f")).content == [
        types.TextContent(text="[OpaquePart that MCP cannot carry]"),
        types.TextContent(text="[FilePart that MCP cannot carry]"),
    ]
    assert written().content == [types.TextContent(text="")]
