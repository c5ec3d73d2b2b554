"""`output_read`: goes on reading an output that was too long to be shown whole, by the handle it was kept under."""

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
"""What the JSON around the text takes at most."""

Put = Callable[[bytes, str], Awaitable[str]]
Piece = tuple[str, int, int]
Get = Callable[[Piece, str], Awaitable[bytes]]


class OutputStore:
    """Where whole outputs are kept: `put` takes bytes and a run's id, `get` a handle, an offset, a length and the id of
    the run that asks. What another conversation or key kept is not there for it."""

    def __init__(self, put: Put | None = None, get: Get | None = None) -> None:
        self._put = put
        self._get = get

    async def put(self, data: bytes, context: ToolContext) -> str | None:
        """Keep an output and return its handle; nothing when it cannot be kept."""
        if self._put is None:
            return None
        try:
            return await self._put(data, context.run_id)
        except TreadleError:
            return None

    async def get(self, piece: Piece, context: ToolContext) -> bytes:
        """Return a piece of what was kept: of a handle, from an offset, so long.

        Raises: ToolError, when there is no such handle for this run.
        """
        if self._get is None:
            raise ToolError("Nothing is kept here.", code="not_found")
        try:
            return await self._get(piece, context.run_id)
        except NotFound:
            raise ToolError(f"There is no output with the handle {piece[0]} here.", code="not_found") from None


def keepable(data: bytes, total: int) -> bytes:
    """Return what is kept of an output; where that is not all of it, its end says so, for whoever reads that far."""
    if total <= len(data):
        return data
    return data + f"\n[{total - len(data)} more bytes were not kept]".encode()


def make_output_read(
    shelf: OutputStore, caps: LocalCaps = DEFAULT_CAPS
) -> Callable[..., Coroutine[Any, Any, ToolAnswer]]:
    """Return the function behind the tool."""

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
    """Return as much of the text as fits into so many bytes of JSON, and how many bytes of it that was.

    A character that is cut at the end is left to the next page; one that is cut at the start was shown before.
    """
    while True:
        whole = end_on_character(data)
        text = whole.decode("utf-8", "replace")
        size = len(write_json(text))
        if size <= room or len(whole) <= 1:
            return text, len(whole)
        data = whole[: max(1, int(len(whole) * min(0.9, room / size)))]


def end_on_character(data: bytes) -> bytes:
    """Return UTF-8 without the character at its end that is not whole."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 != 0x80:
            wanted = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[:-back] if wanted > back and back < len(data) else data
    return data
