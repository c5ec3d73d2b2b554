"""The history as an upstream takes it: roles that it knows, files of results where it can see them.

Order stays. No message is left out: it may get another role, with a marker.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from treadle.core.items import AnyItem, AnyPart, CallItem, MessageItem, ResultItem, TextPart, text_message
from treadle.core.json import type_errors, write_json
from treadle.protocols.field_reader import OBJECT
from treadle.protocols.messages.provider_state import INVALID_JSON
from treadle.protocols.translation.name_mapping import all_fit
from treadle.protocols.translation.upstream_features import FeatureRule, Traits
from treadle.protocols.translation_notes import Notes

_LEADERS = ("system", "developer")
_NEVER_RAN = frozenset({"interrupted", "cancelled"})
"""The text of calls that Treadle closed itself, because they never ran."""


class Survey:
    """What a history holds that an upstream may not take. Fits `incremental_folds.Fold`: each item is read once.

    `names` are of the tools that were called, or that results are of.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._roles: set[str] = set()
        self._called: set[str] = set()
        self._ids: list[str] = []
        self._are_plain = True
        self.has_broken_calls = False
        self._fitting: dict[FeatureRule, int] = {}

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Read more items."""
        roles, ids = self._roles, self._ids
        for item in items:
            if type(item) is MessageItem:
                roles.add(item.role)
            elif type(item) is CallItem:
                self._called.add(item.call_id)
                self.names.add(item.name)
                ids.append(item.call_id)
                if item.kind != "function" or item.namespace is not None:
                    self._are_plain = False
                if item.kind == "function":
                    try:
                        OBJECT.decode(item.arguments)
                    except type_errors:
                        self.has_broken_calls = True
            elif type(item) is ResultItem:
                ids.append(item.call_id)
                if item.name:
                    self.names.add(item.name)
                if item.kind != "function":
                    self._are_plain = False

    @property
    def has_calls(self) -> bool:
        """Return whether there are calls, or results of some."""
        return bool(self._ids)

    @property
    def call_ids(self) -> frozenset[str]:
        """Return the ids of all calls."""
        return frozenset(self._called)

    def has_odd_roles(self, traits: Traits) -> bool:
        """Return whether there is a role that the upstream may not know, or not everywhere."""
        return "developer" in self._roles or ("system" in self._roles and not traits.has_late_system)

    def has_plain_calls(self, rule: FeatureRule) -> bool:
        """Return whether all calls are of functions without a namespace, and all their ids fit this rule."""
        if not self._are_plain:
            return False
        fitting = self._fitting.get(rule, 0)
        if fitting == len(self._ids):
            return True
        # One that does not fit stays among those that are looked at the next time.
        if not all_fit(rule, self._ids[fitting:] if fitting else self._ids):
            return False
        self._fitting[rule] = len(self._ids)
        return True


def mend_calls(items: tuple[AnyItem, ...], notes: Notes) -> tuple[AnyItem, ...]:
    """Return the items with arguments that are objects: servers refuse a whole history for one that is none.

    A call without a result was cut before it was whole: it becomes a text that says so. Of one that was answered
    what the model wrote is wrapped, so that it can see what was wrong with it.
    """
    results = {item.call_id: item for item in items if type(item) is ResultItem}
    mended: list[AnyItem] = []
    cut: set[str] = set()
    for item in items:
        if type(item) is CallItem and not _is_sound(item):
            result = results.get(item.call_id)
            if not item.arguments.strip():
                item = msgspec.structs.replace(item, arguments="{}")
            elif result is None or result.rc in _NEVER_RAN:
                notes.add("cut_call", "repaired", "a call that was cut off before it was whole became a text")
                cut.add(item.call_id)
                item = text_message(
                    "assistant", f"[A call of {item.name} was cut off before it was whole, and not run.]"
                )
            else:
                notes.add("arguments_wrapped", "coerced", "arguments that are not a JSON object are sent as a text")
                item = msgspec.structs.replace(item, arguments=write_json({INVALID_JSON: item.arguments}).decode())
        elif type(item) is ResultItem and item.call_id in cut:
            continue
        mended.append(item)
    return tuple(mended)


def _is_sound(call: CallItem) -> bool:
    """Return whether any upstream takes the arguments of a call."""
    if call.kind != "function":
        return True
    try:
        OBJECT.decode(call.arguments)
    except type_errors:
        return False
    return True


def settle_roles(items: tuple[AnyItem, ...], traits: Traits, notes: Notes) -> Iterable[AnyItem]:
    """Return the items with the roles that the upstream knows, each where it may stand."""
    leaders = [(at, item.role) for at, item in enumerate(items) if type(item) is MessageItem and item.role in _LEADERS]
    if not leaders:
        return items
    is_leading = traits.has_late_system or leaders[-1][0] == len(leaders) - 1
    is_known = traits.has_developer or all(role != "developer" for _, role in leaders)
    return items if is_leading and is_known else _settled(items, traits, notes)


def _settled(items: Iterable[AnyItem], traits: Traits, notes: Notes) -> Iterator[AnyItem]:
    is_leading = True
    for item in items:
        if not isinstance(item, MessageItem) or item.role not in _LEADERS:
            is_leading = False
            yield item
        elif not is_leading and not traits.has_late_system:
            notes.add("late_system", "coerced", f"a late {item.role} message became a user's", "messages")
            content = _marked(f"[{item.role}] ", item.content)
            yield msgspec.structs.replace(item, role="user", content=content)
        elif item.role == "developer" and not traits.has_developer:
            notes.add("developer_role", "coerced", "developer messages became system messages", "messages")
            yield msgspec.structs.replace(item, role="system")
        else:
            yield item


def move_files(items: Iterable[AnyItem], notes: Notes) -> Iterator[AnyItem]:
    """Yield the items with what is not text of each run of results in a user message behind it."""
    moved: list[AnyPart] = []
    for item in items:
        if not isinstance(item, ResultItem):
            if moved:
                yield MessageItem(role="user", content=tuple(moved))
                moved = []
            yield item
            continue
        files = [part for part in item.output if not isinstance(part, TextPart)]
        if not files:
            yield item
            continue
        notes.add("result_attachment", "emulated", "images and files of results go into a user message")
        moved += [TextPart(text=f"[attached to the result of {item.name or 'the call'} ({item.call_id})]"), *files]
        marker = TextPart(text=f"[{len(files)} attachment(s) of this result follow in the next user message]")
        texts = [part for part in item.output if isinstance(part, TextPart)]
        yield msgspec.structs.replace(item, output=(*texts, marker))
    if moved:
        yield MessageItem(role="user", content=tuple(moved))


def _marked(marker: str, content: tuple[AnyPart, ...]) -> tuple[AnyPart, ...]:
    if content and isinstance(content[0], TextPart):
        return (msgspec.structs.replace(content[0], text=marker + content[0].text), *content[1:])
    return (TextPart(text=marker.rstrip()), *content)
