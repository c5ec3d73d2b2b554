"""What there is in a history that an upstream may not take: roles, and calls with their results."""

from collections.abc import Sequence

from treadle.canon.items import AnyItem, CallItem, MessageItem, ResultItem
from treadle.wire.adapt.names import all_fit
from treadle.wire.adapt.traits import Rule, Traits


class Survey:
    """Fits `canon.folds.Fold`: one look at each item of a history.

    `names` are of the tools that were called, or that results are of.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._roles: set[str] = set()
        self._called: set[str] = set()
        self._ids: list[str] = []
        self._are_plain = True
        self._fitting: dict[Rule, int] = {}

    def add(self, items: Sequence[AnyItem], /) -> None:
        """Look at more items."""
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
            elif type(item) is ResultItem:
                ids.append(item.call_id)
                if item.name:
                    self.names.add(item.name)
                if item.kind != "function":
                    self._are_plain = False

    @property
    def has_calls(self) -> bool:
        """Tell whether there are calls, or results of some."""
        return bool(self._ids)

    @property
    def call_ids(self) -> frozenset[str]:
        """Return the ids of all calls."""
        return frozenset(self._called)

    def has_odd_roles(self, traits: Traits) -> bool:
        """Tell whether there is a role that the upstream may not know, or not everywhere."""
        return "developer" in self._roles or ("system" in self._roles and not traits.has_late_system)

    def has_plain_calls(self, rule: Rule) -> bool:
        """Tell whether all calls are of functions without a namespace, and all their ids fit this rule."""
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
