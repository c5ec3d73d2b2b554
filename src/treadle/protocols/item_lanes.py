"""Writes items that overlap in a run one after the other, because most clients cannot follow two open items.

The first open item is written as it comes; what belongs to later ones waits in their lanes, which are bounded because
the upstream's text and arguments are. A server call holds its place from when the model makes it until it has run. How
an item is written is not decided here.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from treadle.core.events import (
    ApprovalRequested,
    ArgumentsDelta,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolFinished,
    ToolStarted,
    is_server_call,
)
from treadle.core.items import AnyItem, CallItem, MessageItem, OpaqueItem, ReasoningItem

Delta = TextDelta | RefusalDelta | ReasoningDelta | ArgumentsDelta
Opening = ItemAdded | ItemDone | ToolStarted | ToolFinished | ApprovalRequested
Source = AnyItem | ToolStarted | ToolFinished | ApprovalRequested
"""What an item is written from."""

_ENDS = frozenset({ItemDone, ToolFinished, ApprovalRequested})


class LaneWriter(Protocol):
    """Writes one item."""

    def feed(self, delta: Delta) -> Any:
        """Send more of the content."""
        ...

    def settle(self, final: Source) -> None:
        """Send what was not streamed, from the finished item."""
        ...


W = TypeVar("W", bound=LaneWriter)


class Lane(Generic[W]):
    """One item: the events it still waits to write, and its writer once it is open.

    It `is_place` as long as it only holds the place of a server call, of which nothing is shown before it runs.
    """

    __slots__ = ("is_place", "is_settled", "waiting", "writer")

    def __init__(self) -> None:
        self.is_place = False
        self.waiting: list[Any] = []
        self.writer: W | None = None
        self.is_settled = False


class ItemLanes(ABC, Generic[W]):
    """The open items of an answer in one protocol; it `keeps_last` open until something follows or the run ends."""

    keeps_last = False

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol
        self.lanes: dict[int, Lane[W]] = {}

    @abstractmethod
    def open_item(self, index: int, source: Source) -> W:
        """Start an item and return its writer."""

    @abstractmethod
    def close_item(self, writer: W) -> None:
        """Send the end of a finished item."""

    def grow(self, delta: Delta) -> Any:
        """Write more of an item, or let it wait until the items before it are done; return what its writer does."""
        lane = self.lanes.get(delta.index)
        if lane is None or lane.is_settled or lane.is_place:
            return None
        if lane.writer is not None:
            return lane.writer.feed(delta)
        lane.waiting.append(delta)
        return None

    def feed(self, event: Opening) -> None:
        """Write an item's beginning or end, or let it wait until the items before it are done."""
        lane = self.lanes.get(event.index)
        is_place = is_server_call(event)
        if lane is None:
            if not is_place and not self._is_shown(event):
                return
            lane = self.lanes[event.index] = Lane()
            lane.is_place = is_place
        if not is_place and not lane.is_settled:
            lane.is_place = False
            lane.waiting.append(event)
            self.advance()

    def leave(self, index: int) -> None:
        """Give up the place of a server call that is not run now."""
        lane = self.lanes.get(index)
        if lane is not None and lane.is_place:
            del self.lanes[index]
            self.advance()

    def advance(self) -> None:
        """Write what waits in the first lane, and in the next ones as long as the first is finished."""
        while self.lanes:
            index, lane = next(iter(self.lanes.items()))
            waiting, lane.waiting = lane.waiting, []
            for event in waiting:
                self.write(lane, event)
            if not lane.is_settled or (self.keeps_last and len(self.lanes) == 1):
                return
            del self.lanes[index]
            if lane.writer is not None:
                self.close_item(lane.writer)

    def write(self, lane: Lane[W], event: Any) -> None:
        """Write an event of an item that is next."""
        if lane.is_settled:
            return
        if isinstance(event, Delta):
            if lane.writer is not None:
                lane.writer.feed(event)
            return
        source = event.item if isinstance(event, ItemAdded | ItemDone) else event
        if lane.writer is None:
            lane.writer = self.open_item(event.index, source)
        if type(event) in _ENDS:
            lane.writer.settle(source)
            lane.is_settled = True

    def _is_shown(self, event: Opening) -> bool:
        """Return whether an event begins an item: server calls are shown by their run, results inside the call."""
        if not isinstance(event, ItemAdded | ItemDone):
            return event.is_deferred if isinstance(event, ApprovalRequested) else True
        item = event.item
        if type(item) is CallItem:
            return item.side == "client"
        if type(item) is OpaqueItem:
            return item.protocol == self._protocol
        return type(item) is MessageItem or type(item) is ReasoningItem
