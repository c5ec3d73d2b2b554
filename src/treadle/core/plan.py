"""The plan: the immutable input of one model call, with its fingerprint, and the planner that builds plans.

The fingerprint is the sha256 of the plan's canonical JSON without item ids, which are Treadle's own and never sent:
equal inputs have equal fingerprints. A `Planner` keeps a running hash of the history, so that a round costs only what
it adds.
"""

import hashlib

import msgspec
from msgspec.structs import replace

from treadle.core.incremental_folds import F, Folds
from treadle.core.items import AnyItem
from treadle.core.json import canonical_json
from treadle.core.memoized import Memo
from treadle.core.request import Options, is_json_wanted
from treadle.core.tool_definitions import AUTO, ToolChoice, ToolSpec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one model call sends: the exact items, tools and options.

    Not part of its value are `is_strict` (fail rather than drop anything), `is_closing` (calls are no longer answered)
    and `folds`, which the plans of a run share.
    """

    items: tuple[AnyItem, ...]
    model: str
    options: Options = Options()
    tool_choice: ToolChoice = AUTO
    tools: tuple[ToolSpec, ...] = ()
    fingerprint: str = ""
    tools_sha256: str = ""
    is_strict: bool = False
    is_closing: bool = False
    folds: Folds | None = None

    def fold(self, kind: type[F]) -> F:
        """Return the fold of this class over the items."""
        if self.folds is not None:
            return self.folds.of(kind, self.items)
        fold = kind()
        fold.add(self.items)
        return fold


class Planner:
    """Builds the plans of one run. Its history, `items`, only grows, so each item is encoded and hashed once.

    `is_json_wanted` is true if the options require a JSON answer.
    """

    def __init__(self, model: str, tools: tuple[ToolSpec, ...], options: Options, *, is_strict: bool = False) -> None:
        self._is_strict = is_strict
        self._model = model
        self._tools = tools
        self._options = options
        self.is_json_wanted = is_json_wanted(options)
        self.items: list[AnyItem] = []
        self._folds: Folds | None = None
        self._hash = hashlib.sha256(b'{"items":[')
        tools_json, self._tools_sha256 = _TOOLS.of(tools)
        self._head = b'],"model":%b,"options":%b,"tool_choice":' % (canonical_json(model), canonical_json(options))
        self._tail = b',"tools":' + tools_json + b"}"

    def add(self, items: list[AnyItem]) -> None:
        """Append to the history."""
        if not items:
            return
        if self.items:
            self._hash.update(b",")
            if self._folds is None:
                # Most runs have one round, so folds are only kept from the second addition on.
                self._folds = Folds()
        # Encoded as one list for speed; the slice drops its brackets.
        written = canonical_json([replace(item, id="") if item.id else item for item in items])
        self._hash.update(memoryview(written)[1:-1])
        self.items += items

    def plan(self, tool_choice: ToolChoice, *, is_closing: bool = False) -> Plan:
        """Return the plan of the next model call."""
        digest = self._hash.copy()
        digest.update(self._head + canonical_json(tool_choice) + self._tail)
        return Plan(
            items=tuple(self.items),
            model=self._model,
            options=self._options,
            tool_choice=tool_choice,
            tools=self._tools,
            fingerprint=digest.hexdigest(),
            tools_sha256=self._tools_sha256,
            is_strict=self._is_strict,
            is_closing=is_closing,
            folds=self._folds,
        )


def _written(tools: tuple[ToolSpec, ...]) -> tuple[bytes, str]:
    """Return the canonical JSON of tools, and its sha256."""
    written = canonical_json(tools)
    return written, hashlib.sha256(written).hexdigest()


_TOOLS: Memo[tuple[ToolSpec, ...], tuple[bytes, str]] = Memo(_written)


def bare(item: AnyItem) -> AnyItem:
    """Return the item without its id."""
    return replace(item, id="") if item.id else item


def plan_json(plan: Plan) -> bytes:
    """Return the canonical JSON that the fingerprint is computed from."""
    return canonical_json(
        {
            "items": [bare(item) for item in plan.items],
            "model": plan.model,
            "options": plan.options,
            "tool_choice": plan.tool_choice,
            "tools": plan.tools,
        }
    )
