"""One open item at a time: items that overlap in a run are written one after the other, in order of appearance.

Most clients cannot follow two open items. The first open item goes out as it comes; what belongs to later ones
waits in their lanes, which are bounded because the upstream's text and arguments are. A server call holds its place
from when the model says it until it has run. The end of an item is held
until the next event, because only the end of the run tells whether its last item was cut off.
"""

from typing import assert_never

from treadle.core.events import (
    ApprovalDecided,
    ApprovalRequested,
    ItemAdded,
    ItemDone,
    ToolFinished,
    ToolStarted,
    is_server_call,
)
from treadle.core.ids import CALL_ITEM, MESSAGE, REASONING, SERVER_CALL, IdSource, shown_call_id
from treadle.core.items import CallItem, ImagePart, MessageItem, OpaqueItem, ReasoningItem, ReferenceItem, ResultItem
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.responses.client_events import EventOutput
from treadle.protocols.responses.client_item_writers import (
    CallWriter,
    Delta,
    ItemWriter,
    MessageWriter,
    OpaqueWriter,
    Picture,
    PictureWriter,
    QuestionWriter,
    ReasoningWriter,
    ServerCallWriter,
    Source,
)
from treadle.protocols.responses.client_part_writers import OpenPart, PartPosition, picture_of
from treadle.protocols.responses.client_response_object import OutputItem
from treadle.protocols.responses.content_parts import PROTOCOL

PICTURE = "img"
"""How ids of images begin, followed by the id of the message that has them."""

Opening = ItemAdded | ItemDone | ToolStarted | ToolFinished | ApprovalRequested
LaneEvent = Opening | Delta | Picture
_OWN = (ItemAdded, ItemDone)
_ITEMS = (MessageItem, ReasoningItem, CallItem, OpaqueItem, ResultItem, ReferenceItem)
_OPENINGS = (ItemAdded, ItemDone, ToolStarted, ToolFinished, ApprovalRequested)
_ENDS = frozenset({ItemDone, ToolFinished, ApprovalRequested})


class _Lane:
    """One item: the events it still waits to write, and its writer once it is open.

    It `is_place` as long as it only keeps the place of a server call, of which nothing is shown before it runs.
    """

    __slots__ = ("is_place", "is_settled", "waiting", "writer")

    def __init__(self) -> None:
        self.is_place = False
        self.waiting: list[LaneEvent] = []
        self.writer: ItemWriter | None = None
        self.is_settled = False


class Lanes:
    """Writes items in order and keeps those that are done."""

    def __init__(self, out: EventOutput, ids: IdSource, tools: tuple[ToolSpec, ...]) -> None:
        self._out = out
        self._ids = ids
        self._tools = tools
        self._lanes: dict[int, _Lane] = {}
        self._done: list[OutputItem] = []
        self._opened = 0
        self._pictures = 0
        self._approvals: dict[int, str] = {}

    @property
    def done(self) -> tuple[OutputItem, ...]:
        """Return the items that are done, in the order of their output_index."""
        return tuple(self._done)

    def grow(self, delta: Delta) -> OpenPart | None:
        """Write more of an item, or let it wait until the items before it are done.

        Return the part that takes more text by itself, until anything else happens.
        """
        lane = self._lanes.get(delta.index)
        if lane is None or lane.is_settled or lane.is_place:
            return None
        if lane.writer is not None:
            return lane.writer.feed(delta)
        lane.waiting.append(delta)
        return None

    def feed(self, event: Opening) -> None:
        """Write an item's beginning or end, or let it wait until the items before it are done."""
        lane = self._lanes.get(event.index)
        if lane is None:
            is_place = is_server_call(event)
            if not is_place and not _is_shown(event):
                return
            lane = self._lanes[event.index] = _Lane()
            lane.is_place = is_place
        if lane.is_settled or is_server_call(event):
            return
        lane.is_place = False
        lane.waiting.append(event)
        if type(event) is ItemDone and type(event.item) is MessageItem:
            self._add_pictures(event.item)
        self._advance()

    def leave(self, index: int) -> None:
        """Give up the place of a server call that is not run now."""
        lane = self._lanes.get(index)
        if lane is not None and lane.is_place:
            del self._lanes[index]
            self._advance()

    def approve(self, event: ApprovalDecided) -> None:
        """Remember which question a call that runs later was decided by."""
        self._approvals[event.index] = event.approval_id

    def settle(self) -> None:
        """Close the item that is only held back because it might have been the last."""
        if self._lanes and next(iter(self._lanes.values())).is_settled:
            self._close_first("completed")

    def end(self, *, is_cut: bool) -> None:
        """Close everything that is open; with `is_cut` a text at the end is not whole though it was said to be.

        What a client may run is never said to be done unless it is whole: clients run it then, whatever its status.
        """
        while self._lanes:
            self._advance()
            index, lane = next(iter(self._lanes.items()))
            is_run = lane.writer is not None and lane.writer.is_run
            if is_run and not lane.is_settled:
                del self._lanes[index]
                continue
            is_whole = lane.is_settled and (is_run or not is_cut)
            self._close_first("completed" if is_whole else "incomplete")

    def _advance(self) -> None:
        """Write what the first lane holds, and go on with the next as long as the first is whole."""
        while self._lanes:
            lane = next(iter(self._lanes.values()))
            waiting, lane.waiting = lane.waiting, []
            for event in waiting:
                self._write(lane, event)
            if not lane.is_settled or len(self._lanes) == 1:
                return
            self._close_first("completed")

    def _add_pictures(self, message: MessageItem) -> None:
        """Give the images of a message lanes of their own, behind it."""
        images = [part for part in message.content if type(part) is ImagePart]
        for number, found in enumerate(filter(None, map(picture_of, images))):
            self._pictures += 1
            item_id = f"{PICTURE}_{message.id}_{number}" if message.id else self._ids.new(PICTURE)
            lane = self._lanes[-self._pictures] = _Lane()
            lane.waiting.append(Picture(index=-self._pictures, id=item_id, format=found[0], data=found[1]))

    def _write(self, lane: _Lane, event: LaneEvent) -> None:
        if isinstance(event, _OPENINGS):
            source = event.item if isinstance(event, _OWN) else event
            if lane.writer is None:
                lane.writer = self._open(event.index, source)
            if type(event) in _ENDS:
                lane.writer.settle(source)
                lane.is_settled = True
        elif isinstance(event, Picture):
            place = self._next_place(event.id, event.index)
            lane.writer = PictureWriter(self._out, place, event)
            lane.is_settled = True
        elif lane.writer is not None:
            lane.writer.feed(event)

    def _open(self, index: int, source: Source) -> ItemWriter:
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
        if isinstance(source, _ITEMS):
            return source.id or self._ids.new(_PREFIXES.get(type(source), MESSAGE))
        if isinstance(source, ApprovalRequested):
            return source.approval_id
        return server_call_id(source.call) or self._ids.new(SERVER_CALL)

    def _close_first(self, status: str) -> None:
        lane = self._lanes.pop(next(iter(self._lanes)))
        if lane.writer is not None:
            self._done.append(lane.writer.close(status))


_PREFIXES: dict[type, str] = {MessageItem: MESSAGE, ReasoningItem: REASONING, CallItem: CALL_ITEM}


def server_call_id(call: CallItem) -> str:
    """Return the id a server call is shown under, always the same for the same call; empty if it has none."""
    return shown_call_id(call.id.removeprefix(f"{SERVER_CALL}_")) if call.id else ""


def _is_shown(event: Opening) -> bool:
    """Return whether an event begins an output item: server calls are shown by their run, results inside the call."""
    if not isinstance(event, _OWN):
        return event.is_deferred if isinstance(event, ApprovalRequested) else True
    item = event.item
    if type(item) is CallItem:
        return item.side == "client"
    if type(item) is OpaqueItem:
        return item.protocol == PROTOCOL
    return type(item) is MessageItem or type(item) is ReasoningItem
