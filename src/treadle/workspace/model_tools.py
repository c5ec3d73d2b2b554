"""What a model may do with a workspace: read it, patch the draft, propose facts, see the locks, open a panel.

There is no tool that commits facts. A refusal reaches the model with its code, the name of the lock in the way, and
what to do; what a person decided since reaches it as a warning with the next result, once.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from treadle.core.errors import NotFound, ToolFailed, TreadleError
from treadle.core.items import ResultItem
from treadle.core.journal_entries import item_of_entry
from treadle.core.tool_definitions import ToolPolicy
from treadle.engine.approval_reasons import NEVER_READ
from treadle.journal.journal_interface import Store
from treadle.tools import Tool, ToolContext
from treadle.tools.function_tools import function_tool
from treadle.workspace.excerpts import DEPTH_DEFAULT, PAGE_DEFAULT, Glance, look
from treadle.workspace.json_pointer import get_at
from treadle.workspace.run_binding import Binding
from treadle.workspace.workspace_service import Workspaces
from treadle.workspace.workspace_state import Change
from treadle.workspace.workspace_store import Author, Held, Standing

SOURCE = "workspace"
DEPTH_MAX = 16
PAGE_MAX = 1_000
NEWS_REASON_CHARS = 500
BEARERS_MAX = 1_000
"""Workspaces whose last news are remembered until it is known that a model read them."""
SLACK_S = 10.0
"""What a call that waits for a person gets beside that time."""

_READ = ToolPolicy(effect="read", parallel=True)
_SHOW = ToolPolicy(effect="idempotent")
_WRITE = ToolPolicy(effect="write")

T = TypeVar("T")


class ProposalTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How the tools work.

    `default` is the workspace of runs that have none; `wait_s` is how long a proposal waits for a person before the
    run goes on; `read_bytes_max` bounds what is read at once.
    """

    default: str = ""
    wait_s: float = 0.0
    read_bytes_max: int = 16_384


def workspace_tools(workspaces: Workspaces, store: Store, terms: ProposalTerms | None = None) -> list[Tool]:
    """Return the tools on the workspaces of a store."""
    terms = terms or ProposalTerms()
    binding = Binding(workspaces, store, default=terms.default)
    hands = _Hands(workspaces, binding, terms, _Bearers(store))
    proposing = ToolPolicy(effect="idempotent", timeout_s=terms.wait_s + SLACK_S)
    rows: tuple[tuple[str, Callable[..., Any], ToolPolicy], ...] = (
        ("state.get", hands.get_state, _READ),
        ("locks.list", hands.list_locks, _READ),
        ("draft.patch", hands.patch_draft, _WRITE),
        ("facts.propose", hands.propose_facts, proposing),
        ("ui.show", hands.show, _SHOW),
    )
    return [function_tool(function, name=name, policy=policy, source=SOURCE) for name, function, policy in rows]


class _Hands:
    """The functions behind the tools."""

    def __init__(self, workspaces: Workspaces, binding: Binding, terms: ProposalTerms, bearers: "_Bearers") -> None:
        self._workspaces = workspaces
        self._binding = binding
        self._terms = terms
        self._bearers = bearers

    async def get_state(
        self,
        context: ToolContext,
        path: str = "",
        depth: int = DEPTH_DEFAULT,
        offset: int = 0,
        limit: int = PAGE_DEFAULT,
    ) -> Any:
        """Read the workspace: facts, draft, locks and ui, or the part of it at a JSON Pointer such as /draft/title.

        Args:
            path: A JSON Pointer; empty is everything.
            depth: How many levels to show; what is deeper is named with its size and path.
            offset: Where to read on: next_offset of the page before.
            limit: How many members or elements at most.
        """
        held = await self._held(context)
        value = _told(lambda: get_at(held.workspace.document(), path))
        glance = Glance(
            depth=_within("depth", depth, 1, DEPTH_MAX),
            offset=_within("offset", offset, 0, 2**31),
            limit=_within("limit", limit, 1, PAGE_MAX),
            bytes_max=min(self._terms.read_bytes_max, context.output_bytes_max // 2),
        )
        page = msgspec.to_builtins(look(value, path, glance))
        now = held.workspace
        return {"path": path, "version": now.version, "facts_version": now.facts_version, **page}

    async def list_locks(self, context: ToolContext) -> Any:
        """List the paths that are locked: their values, and all inside them, cannot change until a person unlocks."""
        held = await self._held(context)
        return {"version": held.workspace.version, "locks": list(held.workspace.locks)}

    async def patch_draft(self, context: ToolContext, changes: list[Change], reason: str = "") -> Any:
        """Change the draft: all of the changes are made, in order, or none. Locked paths cannot be changed.

        Args:
            changes: Each has a path (JSON Pointer such as /draft/title), an op (set, delete, append to an array, insert
                before an element) and, but for delete, a value.
            reason: Why, in one line.
        """
        held = await self._held(context)
        taken = await _asked(self._desk(held).patch_draft(held.row.id, changes, author=_author(context, reason)))
        return {"version": taken.record.version, "changed": [each.path for each in taken.record.diff]}

    async def propose_facts(
        self, context: ToolContext, changes: list[Change], reason: str, base_version: int | None = None
    ) -> Any:
        """Propose changes to the facts. A person decides: facts never change by this call alone.

        Args:
            changes: Each has a path (such as /facts/name), an op (set, delete, append, insert) and a value.
            reason: Why the person should agree.
            base_version: The facts_version that you have read; if what you change has changed since, it is refused.
        """
        held = await self._held(context)
        standing = await _asked(
            self._desk(held).propose(held.row.id, changes, author=_author(context, reason), base=base_version)
        )
        if self._terms.wait_s and standing.status == "open":
            context.progress("waiting for a person to decide")
            standing = await self._desk(held).wait_decision(held.row.id, standing.proposal.id, self._terms.wait_s)
        if standing.status != "open":
            await self._workspaces.told(standing.proposal.id)
        return _outcome(standing)

    async def show(self, context: ToolContext, panel: str, path: str = "") -> Any:
        """Ask the user interface to open a panel or form.

        Args:
            panel: The name of the panel or form.
            path: The JSON Pointer of what it should show, if any.
        """
        held = await self._held(context)
        changes = [Change(path="/ui/panel", value=panel), Change(path="/ui/path", value=path)]
        taken = await _asked(self._desk(held).show(held.row.id, changes, author=_author(context, "")))
        return {"version": taken.record.version, "panel": panel}

    async def _held(self, context: ToolContext) -> Held:
        """Return the workspace of the run, and let the model hear what was decided meanwhile."""
        held = await self._binding.find(context.run_id, context.session_id)
        missed = await self._bearers.missed(held.row.id, context)
        for words in [*missed, *(_news(each) for each in await self._desk(held).news(held.row.id))]:
            self._bearers.bear(held.row.id, words, context)
            context.warn(words)
        return held

    def _desk(self, held: Held) -> Workspaces:
        """Return the desk of whoever's workspace it is."""
        return self._workspaces.of(held.row.key_id)


class _Bearers:
    """Which calls bear news to the model. Not every call that runs is read: one that began before its turn was whole
    is dropped when that breaks off. Then the next run hears the news it bore."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._borne: OrderedDict[str, dict[str, tuple[str, str]]] = OrderedDict()

    def bear(self, workspace_id: str, words: str, context: ToolContext) -> None:
        """Note that a call tells something."""
        self._borne.setdefault(workspace_id, {})[words] = (context.run_id, context.call_id)
        while len(self._borne) > BEARERS_MAX:
            self._borne.popitem(last=False)

    async def missed(self, workspace_id: str, context: ToolContext) -> list[str]:
        """Return what calls of other runs told and no model read, and forget them."""
        borne = self._borne.get(workspace_id, {})
        others = {words: call for words, call in borne.items() if call[0] != context.run_id}
        for words in others:
            del borne[words]
        return [words for words, call in others.items() if not await self._is_read(*call)]

    async def _is_read(self, run_id: str, call_id: str) -> bool:
        """Return whether a call has a result that the model has read; a run without entries is trusted."""
        try:
            entries = await self._store.entries(run_id)
        except NotFound:
            return True
        results = [item_of_entry(each) for each in entries if each.kind == "tool_result" and each.call_id == call_id]
        return not entries or any(isinstance(item, ResultItem) and item.rc not in NEVER_READ for item in results)


def _author(context: ToolContext, reason: str) -> Author:
    return Author(actor="model", reason=reason, run_id=context.run_id or None, call_id=context.call_id or None)


def _outcome(standing: Standing) -> dict[str, Any]:
    """Return how a proposal stands, in the words of a result."""
    said: dict[str, Any] = {"proposal_id": standing.proposal.id, "status": standing.status}
    decision = standing.decision
    if standing.status == "open":
        return {**said, "waiting_for": "a person", "facts_version": standing.proposal.base_version}
    if decision is not None and decision.reason:
        said["reason"] = decision.reason
    if standing.status == "confirmed" and decision is not None:
        said["changes"] = msgspec.to_builtins(decision.changes)
        said["as_proposed"] = decision.changes == standing.proposal.changes
    return said


def _news(standing: Standing) -> str:
    """Return a decision as one line for the model."""
    words = f"Proposal {standing.proposal.id} was {standing.status}"
    decision = standing.decision
    if decision is not None and standing.status == "confirmed" and decision.changes != standing.proposal.changes:
        words += " in another form; read the facts"
    if decision is not None and decision.reason:
        words += f": {decision.reason[:NEWS_REASON_CHARS]}"
    return words + ("" if words.endswith((".", "!", "?")) else ".")


async def _asked(work: Awaitable[T]) -> T:
    try:
        return await work
    except TreadleError as error:
        raise _refusal(error) from None


def _told(work: Callable[[], T]) -> T:
    try:
        return work()
    except TreadleError as error:
        raise _refusal(error) from None


def _refusal(error: TreadleError) -> ToolFailed:
    """Return a refusal of the workspace as something that the model can read and act on."""
    hint = f" ({error.hint})" if error.hint else ""
    return ToolFailed(f"{error.message}{hint}", code=error.info.code)


def _within(name: str, number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise ToolFailed(f"{name} must be from {least} to {most}.", code="invalid_arguments")
    return number
