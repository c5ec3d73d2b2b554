"""Finds the call that a piece belongs to: providers omit, repeat, reuse and invent ids, indexes and names.

The rules, first match wins:

    id known            that call, unless name or index show that it is a second call of the same id
    id new              the call at its place, if that has no id yet, or is unfinished and the piece has no name
    no id, an index     the call at that index, unless the piece starts another call
    no id, no index     the last call, unless the piece starts another call
    otherwise           a new call

A piece starts another call if it brings a different name, or the same name again once the arguments are complete.
"""

from collections.abc import Hashable

import msgspec

from treadle.core.items import CallKind
from treadle.protocols.decoding.item_drafts import CallDraft


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a call; empty strings and None where the provider left a field out."""

    id: str = ""
    name: str = ""
    text: str = ""
    index: Hashable = None
    kind: CallKind = "function"


class Correlator:
    """The calls of one stream, in the order in which they appeared; `by_index` are the latest of each index."""

    def __init__(self) -> None:
        self.calls: list[CallDraft] = []
        self.by_index: dict[Hashable, CallDraft] = {}
        self._by_id: dict[str, list[CallDraft]] = {}
        self._named_now: set[int] = set()

    def start_delta(self) -> None:
        """Start a delta: two names in one are two calls."""
        self._named_now.clear()

    def place(self, piece: Piece) -> tuple[CallDraft, bool]:
        """Return the call of this piece, and whether it is new."""
        call = self._of_id(piece) if piece.id else self._of_place(piece)
        is_new = call is None
        if call is None:
            call = CallDraft(piece.id, piece.name, piece.index, piece.kind)
            # A lone half of a pair is valid in JSON as an escape, and nothing can take that for another character.
            call.joiner.is_json = piece.kind != "custom"
            self.calls.append(call)
            self._index_id(call, piece)
        else:
            self._complete(call, piece)
        if call.position is not None:
            self.by_index[call.position] = call
        if piece.name:
            self._named_now.add(id(call))
        return call, is_new

    def _of_id(self, piece: Piece) -> CallDraft | None:
        same = self._by_id.get(piece.id)
        if same:
            call = next((call for call in same if call.position == piece.index), same[-1])
            moved = bool(piece.name) and None not in (piece.index, call.position) and piece.index != call.position
            return None if moved or self._starts_another(piece, call) else call
        call = self._at(piece)
        if call is None or self._starts_another(piece, call):
            return None
        if not call.upstream_id:
            return call
        # Some servers draw a new id for every chunk of one call.
        return call if call.name and not piece.name and not call.arguments.is_closed else None

    def _of_place(self, piece: Piece) -> CallDraft | None:
        call = self._at(piece)
        return None if call is None or self._starts_another(piece, call) else call

    def _at(self, piece: Piece) -> CallDraft | None:
        last = self.calls[-1] if self.calls else None
        if piece.index is None:
            return last
        at_index = self.by_index.get(piece.index)
        if at_index is None and last is not None and last.position is None and not piece.name:
            return last
        return at_index

    def _starts_another(self, piece: Piece, call: CallDraft) -> bool:
        if not piece.name or not call.name:
            return False
        if piece.name != call.name or id(call) in self._named_now:
            return True
        again = piece.text.strip()
        return bool(again) and call.arguments.is_closed and again != call.arguments.text.strip()

    def _complete(self, call: CallDraft, piece: Piece) -> None:
        call.name = call.name or piece.name
        if call.position is None:
            call.position = piece.index
        if piece.id and not call.upstream_id:
            call.upstream_id = piece.id
            self._index_id(call, piece)

    def _index_id(self, call: CallDraft, piece: Piece) -> None:
        if piece.id:
            self._by_id.setdefault(piece.id, []).append(call)
