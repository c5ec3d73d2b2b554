"""Writes the output items of a response in order, and collects those that are done."""

from typing import Any, assert_never

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ItemDone,
    ToolFinished,
    ToolStarted,
)
from treadle.core.ids import CALL_ITEM, MESSAGE, REASONING, SERVER_CALL, IdSource, shown_call_id
from treadle.core.items import CallItem, ImagePart, MessageItem, OpaqueItem, ReasoningItem, ReferenceItem, ResultItem
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.item_lanes import ItemLanes, Lane, Opening, Source
from treadle.protocols.responses.client_events import EventOutput
from treadle.protocols.responses.client_item_writers import (
    CallWriter,
    ItemWriter,
    MessageWriter,
    OpaqueWriter,
    Picture,
    PictureWriter,
    QuestionWriter,
    ReasoningWriter,
    ServerCallWriter,
)
from treadle.protocols.responses.client_part_writers import PartPosition, picture_of
from treadle.protocols.responses.client_response_object import OutputItem
from treadle.protocols.responses.content_parts import PROTOCOL

PICTURE = "img"
"""How ids of images begin, followed by the id of the message that has them."""


class Lanes(ItemLanes[ItemWriter]):
    """Writes items in order and collects those that are done.

    The end of the last item is held until the next event, because only the end of the run shows whether it was cut.
    """

    keeps_last = True

    def __init__(self, out: EventOutput, ids: IdSource, tools: tuple[ToolSpec, ...]) -> None:
        super().__init__(PROTOCOL)
        self._out = out
        self._ids = ids
        self._tools = tools
        self._done: list[OutputItem] = []
        self._opened = 0
        self._pictures = 0
        self._approvals: dict[int, str] = {}

    @property
    def done(self) -> tuple[OutputItem, ...]:
        """Return the items that are done, in the order of their output_index."""
        return tuple(self._done)

    def feed(self, event: Opening) -> None:
        """Write an item's beginning or end, and behind a finished message its images."""
        super().feed(event)
        if type(event) is ItemDone and type(event.item) is MessageItem:
            self._add_pictures(event.item)
            self.advance()

    def approve(self, event: ApprovalDecided) -> None:
        """Store which approval decided a call that runs later."""
        self._approvals[event.index] = event.approval_id

    def settle(self) -> None:
        """Close the item that is only held back because it might be the last."""
        if self.lanes and next(iter(self.lanes.values())).is_settled:
            self._close_first("completed")

    def end(self, *, is_cut: bool) -> None:
        """Close everything that is open; with `is_cut` a text at the end is not whole though its item ended.

        A call that is not whole is left out: clients run a call that is sent as done, whatever its status.
        """
        while self.lanes:
            self.advance()
            index, lane = next(iter(self.lanes.items()))
            is_run = lane.writer is not None and lane.writer.is_run
            if is_run and not lane.is_settled:
                del self.lanes[index]
                continue
            is_whole = lane.is_settled and (is_run or not is_cut)
            self._close_first("completed" if is_whole else "incomplete")

    def _add_pictures(self, message: MessageItem) -> None:
        """Give the images of a message lanes of their own, behind it."""
        images = [part for part in message.content if type(part) is ImagePart]
        for number, found in enumerate(filter(None, map(picture_of, images))):
            self._pictures += 1
            item_id = f"{PICTURE}_{message.id}_{number}" if message.id else self._ids.new(PICTURE)
            lane = self.lanes[-self._pictures] = Lane()
            lane.waiting.append(Picture(index=-self._pictures, id=item_id, format=found[0], data=found[1]))

    def write(self, lane: Lane[ItemWriter], event: Any) -> None:
        """Write an event of an item that is next, or an image."""
        if isinstance(event, Picture):
            lane.writer = PictureWriter(self._out, self._next_place(event.id, event.index), event)
            lane.is_settled = True
        else:
            super().write(lane, event)

    def open_item(self, index: int, source: Source) -> ItemWriter:
        """Send the start of an item and return its writer."""
        place = self._next_place(self._item_id(source), index)
        match source:
            case MessageItem():
                return MessageWriter(self._out, place, source)
            case ReasoningItem():
                return ReasoningWriter(self._out, place)
            case CallItem():
                spec = next((spec for spec in self._tools if spec.name == source.name), None)
                return CallWriter(self._out, place, source, spec)
            case ToolStarted() | ToolFinished():
                return ServerCallWriter(self._out, place, source, self._approvals.get(source.index, ""))
            case ApprovalRequested():
                return QuestionWriter(self._out, place, source)
            case OpaqueItem():
                return OpaqueWriter(self._out, place, source)
            case ResultItem() | ReferenceItem():
                raise AssertionError("not an output item")
            case _:
                assert_never(source)

    def _next_place(self, item_id: str, index: int) -> PartPosition:
        self._opened += 1
        return PartPosition(item_id=item_id, output_index=self._opened - 1, index=index)

    def _item_id(self, source: Source) -> str:
        if not isinstance(source, ToolStarted | ToolFinished | ApprovalRequested):
            return source.id or self._ids.new(_PREFIXES.get(type(source), MESSAGE))
        if isinstance(source, ApprovalRequested):
            return source.approval_id
        return server_call_id(source.call) or self._ids.new(SERVER_CALL)

    def close_item(self, writer: ItemWriter) -> None:
        """Send that an item is done."""
        self._done.append(writer.close("completed"))

    def _close_first(self, status: str) -> None:
        lane = self.lanes.pop(next(iter(self.lanes)))
        if lane.writer is not None:
            self._done.append(lane.writer.close(status))


_PREFIXES: dict[type, str] = {MessageItem: MESSAGE, ReasoningItem: REASONING, CallItem: CALL_ITEM}


def server_call_id(call: CallItem) -> str:
    """Return the id a server call is shown under, always the same for the same call; empty if it has none."""
    return shown_call_id(call.id.removeprefix(f"{SERVER_CALL}_")) if call.id else ""
