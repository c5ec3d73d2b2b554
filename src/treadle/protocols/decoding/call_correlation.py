"""Which call does a piece belong to? Upstreams omit, repeat, reuse and invent ids, indexes and names.

The rules, first match wins:

    id known            that call, unless name or index say that it is a second call of the same id
    id new              the call at its place, if that has no id yet, or is unfinished and the piece has no name
    no id, an index     the call at that index, unless the piece begins another call
    no id, no index     the last call, unless the piece begins another call
    otherwise           a new call

A piece begins another call if it brings a different name, or the same name again once the arguments are complete.
"""

from collections.abc import Hashable

import msgspec

from treadle.core.items import CallKind
from treadle.protocols.decoding.call_arguments import Arguments, FreeText


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a call; empty strings and None where the upstream said nothing."""

    id: str = ""
    name: str = ""
    text: str = ""
    index: Hashable = None
    kind: CallKind = "function"


class Slot(msgspec.Struct, eq=False):
    """One call as far as it is known."""

    id: str
    name: str
    index: Hashable
    kind: CallKind
    arguments: Arguments


class Correlator:
    """The calls of one stream, in the order in which they appeared; `by_index` are the latest of each index."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.by_index: dict[Hashable, Slot] = {}
        self._by_id: dict[str, list[Slot]] = {}
        self._named_now: set[int] = set()

    def begin_delta(self) -> None:
        """Say that the next pieces come in one delta, where two names are two calls."""
        self._named_now.clear()

    def place(self, piece: Piece) -> tuple[Slot, bool]:
        """Return the call of this piece, and whether it is new."""
        slot = self._of_id(piece) if piece.id else self._of_place(piece)
        is_new = slot is None
        if slot is None:
            arguments = FreeText() if piece.kind == "custom" else Arguments()
            slot = Slot(piece.id, piece.name, piece.index, piece.kind, arguments)
            self.slots.append(slot)
            self._learn_id(slot, piece)
        else:
            self._learn(slot, piece)
        if slot.index is not None:
            self.by_index[slot.index] = slot
        if piece.name:
            self._named_now.add(id(slot))
        return slot, is_new

    def _of_id(self, piece: Piece) -> Slot | None:
        same = self._by_id.get(piece.id)
        if same:
            slot = next((slot for slot in same if slot.index == piece.index), same[-1])
            moved = bool(piece.name) and None not in (piece.index, slot.index) and piece.index != slot.index
            return None if moved or self._begins(piece, slot) else slot
        slot = self._at(piece)
        if slot is None or self._begins(piece, slot):
            return None
        if not slot.id:
            return slot
        # Some servers draw a new id for every chunk of one call.
        return slot if slot.name and not piece.name and not slot.arguments.is_closed else None

    def _of_place(self, piece: Piece) -> Slot | None:
        slot = self._at(piece)
        return None if slot is None or self._begins(piece, slot) else slot

    def _at(self, piece: Piece) -> Slot | None:
        last = self.slots[-1] if self.slots else None
        if piece.index is None:
            return last
        at_index = self.by_index.get(piece.index)
        if at_index is None and last is not None and last.index is None and not piece.name:
            return last
        return at_index

    def _begins(self, piece: Piece, slot: Slot) -> bool:
        if not piece.name or not slot.name:
            return False
        if piece.name != slot.name or id(slot) in self._named_now:
            return True
        again = piece.text.strip()
        return bool(again) and slot.arguments.is_closed and again != slot.arguments.text.strip()

    def _learn(self, slot: Slot, piece: Piece) -> None:
        slot.name = slot.name or piece.name
        if slot.index is None:
            slot.index = piece.index
        if piece.id and not slot.id:
            slot.id = piece.id
            self._learn_id(slot, piece)

    def _learn_id(self, slot: Slot, piece: Piece) -> None:
        if piece.id:
            self._by_id.setdefault(piece.id, []).append(slot)
