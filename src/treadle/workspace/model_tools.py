"""The tools with which a model reads a workspace, patches the draft, proposes facts, lists locks and opens panels.

No tool commits facts. A refused call returns its code, the lock that prevents it, and a hint. A person's decisions are
delivered to the model once, as a warning with its next result.
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
from treadle.workspace.excerpts import DEPTH_DEFAULT, PAGE_DEFAULT, ExcerptRange, excerpt
from treadle.workspace.json_pointer import get_at
from treadle.workspace.run_binding import Binding
from treadle.workspace.workspace_service import Workspaces
from treadle.workspace.workspace_state import Change
from treadle.workspace.workspace_store import Author, ProposalStanding, StoredWorkspace

SOURCE = "workspace"
DEPTH_MAX = 16
PAGE_MAX = 1_000
NEWS_REASON_CHARS = 500
WORKSPACES_MAX = 1_000
"""The number of workspaces whose last notices are kept until a model is known to have read them."""
SLACK_S = 10.0
"""The time that a call gets in addition to its wait for a person."""

_READ = ToolPolicy(effect="read", parallel=True)
_SHOW = ToolPolicy(effect="idempotent")
_WRITE = ToolPolicy(effect="write")

T = TypeVar("T")


class ProposalTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the tools.

    `default` is the workspace of runs that have none; `wait_s` is how long a proposal waits for a person before the
    run goes on; `read_bytes_max` bounds what is read at once.
    """

    default: str = ""
    wait_s: float = 0.0
    read_bytes_max: int = 16_384


def workspace_tools(workspaces: Workspaces, store: Store, terms: ProposalTerms | None = None) -> list[Tool]:
    """Return the tools for the workspaces of a store."""
    terms = terms or ProposalTerms()
    binding = Binding(workspaces, store, default=terms.default)
    functions = _WorkspaceTools(workspaces, binding, terms, _NoticeDelivery(store))
    proposing = ToolPolicy(effect="idempotent", timeout_s=terms.wait_s + SLACK_S)
    rows: tuple[tuple[str, Callable[..., Any], ToolPolicy], ...] = (
        ("state.get", functions.get_state, _READ),
        ("locks.list", functions.list_locks, _READ),
        ("draft.patch", functions.patch_draft, _WRITE),
        ("facts.propose", functions.propose_facts, proposing),
        ("ui.show", functions.show, _SHOW),
    )
    return [function_tool(function, name=name, policy=policy, source=SOURCE) for name, function, policy in rows]


class _WorkspaceTools:
    """The functions behind the tools."""

    def __init__(
        self, workspaces: Workspaces, binding: Binding, terms: ProposalTerms, notices: "_NoticeDelivery"
    ) -> None:
        self._workspaces = workspaces
        self._binding = binding
        self._terms = terms
        self._notices = notices

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
        value = _refusing(lambda: get_at(held.workspace.document(), path))
        bounds = ExcerptRange(
            depth=_within("depth", depth, 1, DEPTH_MAX),
            offset=_within("offset", offset, 0, 2**31),
            limit=_within("limit", limit, 1, PAGE_MAX),
            bytes_max=min(self._terms.read_bytes_max, context.output_bytes_max // 2),
        )
        page = msgspec.to_builtins(excerpt(value, path, bounds))
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
        taken = await _refusing_async(
            self._workspaces_of(held).patch_draft(held.row.id, changes, author=_author(context, reason))
        )
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
        standing = await _refusing_async(
            self._workspaces_of(held).propose(held.row.id, changes, author=_author(context, reason), base=base_version)
        )
        if self._terms.wait_s and standing.status == "open":
            context.progress("waiting for a person to decide")
            standing = await self._workspaces_of(held).wait_decision(
                held.row.id, standing.proposal.id, self._terms.wait_s
            )
        if standing.status != "open":
            await self._workspaces.mark_delivered(standing.proposal.id)
        return _outcome(standing)

    async def show(self, context: ToolContext, panel: str, path: str = "") -> Any:
        """Ask the user interface to open a panel or form.

        Args:
            panel: The name of the panel or form.
            path: The JSON Pointer of what it should show, if any.
        """
        held = await self._held(context)
        changes = [Change(path="/ui/panel", value=panel), Change(path="/ui/path", value=path)]
        taken = await _refusing_async(self._workspaces_of(held).show(held.row.id, changes, author=_author(context, "")))
        return {"version": taken.record.version, "panel": panel}

    async def _held(self, context: ToolContext) -> StoredWorkspace:
        """Return the workspace of the run, and add the decisions since the last call as warnings."""
        held = await self._binding.find(context.run_id, context.session_id)
        unread = await self._notices.take_unread(held.row.id, context)
        decided = await self._workspaces_of(held).take_undelivered(held.row.id)
        for notice in [*unread, *map(_notice, decided)]:
            self._notices.add(held.row.id, notice, context)
            context.warn(notice)
        return held

    def _workspaces_of(self, held: StoredWorkspace) -> Workspaces:
        """Return the workspaces of the key that owns this one."""
        return self._workspaces.of(held.row.key_id)


class _NoticeDelivery:
    """Tracks which calls delivered notices to the model.

    A model does not read every call's result: an early read is dropped if its model call is interrupted. Its notices
    are then delivered again in the next run.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sent: OrderedDict[str, dict[str, tuple[str, str]]] = OrderedDict()

    def add(self, workspace_id: str, notice: str, context: ToolContext) -> None:
        """Record that a call delivers a notice."""
        self._sent.setdefault(workspace_id, {})[notice] = (context.run_id, context.call_id)
        while len(self._sent) > WORKSPACES_MAX:
            self._sent.popitem(last=False)

    async def take_unread(self, workspace_id: str, context: ToolContext) -> list[str]:
        """Return the notices of other runs' calls that no model has read, and drop them."""
        sent = self._sent.get(workspace_id, {})
        others = {notice: call for notice, call in sent.items() if call[0] != context.run_id}
        for notice in others:
            del sent[notice]
        return [notice for notice, call in others.items() if not await self._is_read(*call)]

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


def _outcome(standing: ProposalStanding) -> dict[str, Any]:
    """Return the state of a proposal as the result of a call."""
    fields: dict[str, Any] = {"proposal_id": standing.proposal.id, "status": standing.status}
    decision = standing.decision
    if standing.status == "open":
        return {**fields, "waiting_for": "a person", "facts_version": standing.proposal.base_version}
    if decision is not None and decision.reason:
        fields["reason"] = decision.reason
    if standing.status == "confirmed" and decision is not None:
        fields["changes"] = msgspec.to_builtins(decision.changes)
        fields["as_proposed"] = decision.changes == standing.proposal.changes
    return fields


def _notice(standing: ProposalStanding) -> str:
    """Return a decision as one line for the model."""
    words = f"Proposal {standing.proposal.id} was {standing.status}"
    decision = standing.decision
    if decision is not None and standing.status == "confirmed" and decision.changes != standing.proposal.changes:
        words += " in another form; read the facts"
    if decision is not None and decision.reason:
        words += f": {decision.reason[:NEWS_REASON_CHARS]}"
    return words + ("" if words.endswith((".", "!", "?")) else ".")


async def _refusing_async(work: Awaitable[T]) -> T:
    try:
        return await work
    except TreadleError as error:
        raise _refusal(error) from None


def _refusing(work: Callable[[], T]) -> T:
    try:
        return work()
    except TreadleError as error:
        raise _refusal(error) from None


def _refusal(error: TreadleError) -> ToolFailed:
    """Return an error of the workspace as a tool failure with its hint, which the model can act on."""
    hint = f" ({error.hint})" if error.hint else ""
    return ToolFailed(f"{error.message}{hint}", code=error.info.code)


def _within(name: str, number: int, least: int, most: int) -> int:
    if not least <= number <= most:
        raise ToolFailed(f"{name} must be from {least} to {most}.", code="invalid_arguments")
    return number
