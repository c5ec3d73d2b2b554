"""The `output_read` tool: reads the rest of an output that was too long to show, by its handle."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any

import msgspec

from treadle.core.errors import NotFound, ToolError, TreadleError
from treadle.core.json import write_json
from treadle.tools.local.result_limits import DEFAULT_CAPS, LocalCaps, answer
from treadle.tools.result_rendering import ToolAnswer
from treadle.tools.tool_context import ToolContext

PAGE_BYTES = 16_384
ENVELOPE_BYTES = 160
"""The most bytes of JSON around the text."""

Put = Callable[[bytes, str], Awaitable[str]]
Piece = tuple[str, int, int]
Get = Callable[[Piece, str], Awaitable[bytes]]


class OutputStore:
    """Stores whole outputs: `put` takes bytes and a run's id; `get` a handle, an offset, a length and a run's id.

    A run cannot read outputs that another conversation or key stored.
    """

    def __init__(self, put: Put | None = None, get: Get | None = None) -> None:
        self._put = put
        self._get = get

    async def put(self, data: bytes, context: ToolContext) -> str | None:
        """Store an output and return its handle; None if it cannot be stored."""
        if self._put is None:
            return None
        try:
            return await self._put(data, context.run_id)
        except TreadleError:
            return None

    async def get(self, piece: Piece, context: ToolContext) -> bytes:
        """Return a piece of a stored output.

        Raises: ToolError, when there is no such handle for this run.
        """
        if self._get is None:
            raise ToolError("Nothing is kept here.", code="not_found")
        try:
            return await self._get(piece, context.run_id)
        except NotFound:
            raise ToolError(f"There is no output with the handle {piece[0]} here.", code="not_found") from None


def keepable(data: bytes, total: int) -> bytes:
    """Return the bytes to store of an output; if they are not all of it, append a note that says so."""
    if total <= len(data):
        return data
    return data + f"\n[{total - len(data)} more bytes were not kept]".encode()


def make_output_read(
    shelf: OutputStore, caps: LocalCaps = DEFAULT_CAPS
) -> Callable[..., Coroutine[Any, Any, ToolAnswer]]:
    """Return the tool's function."""

    async def output_read(
        context: ToolContext,
        handle: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")],
        offset: Annotated[int, msgspec.Meta(ge=0)] = 0,
        length: Annotated[int, msgspec.Meta(ge=16, le=caps.output_read_bytes_max)] = min(
            PAGE_BYTES, caps.output_read_bytes_max
        ),
    ) -> ToolAnswer:
        """Read more of an output that was cut, by the handle that the cut result names.

        Args:
            handle: The handle.
            offset: The first byte to show, counted from 0.
            length: How many bytes to show at most.
        """
        data = await shelf.get((handle, offset, length + 1), context)
        if not data:
            raise ToolError("The offset is past the end.", code="past_end")
        text, used = _fitting(data[:length], context.output_bytes_max - ENVELOPE_BYTES)
        body: dict[str, Any] = {"output": text}
        if used < len(data):
            body |= {"truncated": True, "next": {"handle": handle, "offset": offset + used}}
        return answer(body, f"{used} bytes read")

    return output_read


def _fitting(data: bytes, room: int) -> tuple[str, int]:
    """Return as much of the text as fits in `room` bytes of JSON, and the number of bytes consumed.

    A character cut at the end is left to the next page; one cut at the start was on the previous page.
    """
    while True:
        whole = end_on_character(data)
        text = whole.decode("utf-8", "replace")
        size = len(write_json(text))
        if size <= room or len(whole) <= 1:
            return text, len(whole)
        data = whole[: max(1, int(len(whole) * min(0.9, room / size)))]


def end_on_character(data: bytes) -> bytes:
    """Return UTF-8 data without an incomplete character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            wanted = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[:-back] if wanted > back and back < len(data) else data
    return data
