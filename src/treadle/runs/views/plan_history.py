"""Lists the plans of a run, reads one with its difference from the one before, and finds model calls with equal plans.

A plan is rebuilt from the journal and verified by its fingerprint.
"""

from collections.abc import Sequence

import msgspec

from treadle.core.errors import NotFound
from treadle.core.items import AnyItem
from treadle.core.journal_entries import Entry
from treadle.core.json import OptionalRaw, canonical_json
from treadle.core.plan import Plan, bare
from treadle.core.request import Options
from treadle.core.tool_definitions import AUTO, ToolChoice
from treadle.journal.journal_interface import RunRow, Store
from treadle.runs.response_cache import HIT
from treadle.runs.views.recorded_rounds import read_so_far


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """A model call as its run's journal names it. `round` counts from 1; `cached_from` is whose answer it got."""

    round: int
    fingerprint: str
    tools_sha256: str
    model: str
    items: int
    tools: int
    at: float
    tool_choice: ToolChoice = AUTO
    is_final: bool = False
    cached_from: str | None = None


class Changed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An option as it was and as it is; absent where it was not given."""

    name: str
    before: OptionalRaw = None
    after: OptionalRaw = None


class PlanDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan has otherwise than the one before: which items came and went, which tools, which options."""

    items_added: tuple[AnyItem, ...] = ()
    items_removed: tuple[AnyItem, ...] = ()
    tools_added: tuple[str, ...] = ()
    tools_removed: tuple[str, ...] = ()
    tools_changed: tuple[str, ...] = ()
    options: tuple[Changed, ...] = ()


class EqualCall(msgspec.Struct, frozen=True, kw_only=True):
    """A model call that had a plan: in which run, and where in it."""

    run_id: str
    round: int
    status: str
    at: float
    cached_from: str | None = None


class _PlanData(msgspec.Struct):
    fingerprint: str = ""
    items: int = 0
    tools: int = 0
    tools_sha256: str = ""
    tool_choice: ToolChoice = AUTO
    final: bool = False


class _NoteData(msgspec.Struct):
    code: str = ""
    field: str | None = None


async def list_plans(store: Store, row: RunRow) -> list[PlanLine]:
    """Return a line for each model call of a run that is not void; the run may still be active.

    Raises: NotFound.
    """
    return _lines(await store.entries(row.id))


async def read_plan(store: Store, row: RunRow, number: int) -> tuple[PlanLine, Plan, PlanDifference | None]:
    """Return a model call's plan, and what changed since the one before it in the run.

    Raises: NotFound, when the run has no such round; Conflict, when its plans cannot be made again.
    """
    lines = await list_plans(store, row)
    if not 1 <= number <= len(lines):
        raise NotFound(f"The run {row.id} has {len(lines)} rounds, not {number}.", param="round")
    calls = (await read_so_far(store, row)).calls
    plan = calls[number - 1].plan
    before = calls[number - 2].plan if number > 1 else None
    return lines[number - 1], plan, None if before is None else difference(before, plan)


async def equal_calls(store: Store, fingerprint: str, rows: Sequence[RunRow]) -> list[EqualCall]:
    """Return which model calls of these runs had this plan."""
    found: list[EqualCall] = []
    for row in rows:
        found += [
            EqualCall(run_id=row.id, round=line.round, status=row.status, at=line.at, cached_from=line.cached_from)
            for line in await list_plans(store, row)
            if line.fingerprint == fingerprint
        ]
    return found


def difference(before: Plan, after: Plan) -> PlanDifference:
    """Compare two plans; where their items part, what follows in each was removed and added."""
    shared = _shared(before.items, after.items)
    old = {spec.name: canonical_json(spec) for spec in before.tools}
    new = {spec.name: canonical_json(spec) for spec in after.tools}
    return PlanDifference(
        items_removed=before.items[shared:],
        items_added=after.items[shared:],
        tools_added=tuple(name for name in new if name not in old),
        tools_removed=tuple(name for name in old if name not in new),
        tools_changed=tuple(name for name in new if name in old and new[name] != old[name]),
        options=tuple(_changes(before, after)),
    )


def _lines(entries: Sequence[Entry]) -> list[PlanLine]:
    lines: list[PlanLine] = []
    for entry in entries:
        match entry.kind:
            case "plan" if not entry.is_input:
                lines.append(_line(entry, len(lines) + 1))
            case "void":
                # The call was interrupted and is repeated with the same plan.
                lines.pop()
            case "note" if lines and entry.data is not None:
                note = msgspec.json.decode(entry.data, type=_NoteData)
                if note.code == HIT:
                    lines[-1] = msgspec.structs.replace(lines[-1], cached_from=note.field)
            case _:
                pass
    return lines


def _line(entry: Entry, number: int) -> PlanLine:
    data = msgspec.json.decode(entry.data or b"{}", type=_PlanData)
    return PlanLine(
        round=number,
        fingerprint=data.fingerprint,
        tools_sha256=data.tools_sha256,
        model=entry.name or "",
        items=data.items,
        tools=data.tools,
        at=entry.at,
        tool_choice=data.tool_choice,
        is_final=data.final,
    )


def _shared(before: Sequence[AnyItem], after: Sequence[AnyItem]) -> int:
    """Return how many items two histories begin with alike."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((number for number, (one, other) in pairs if bare(one) != bare(other)), min(len(before), len(after)))


def _changes(before: Plan, after: Plan) -> list[Changed]:
    pairs = [
        ("model", before.model, after.model),
        ("tool_choice", before.tool_choice, after.tool_choice),
        *((name, getattr(before.options, name), getattr(after.options, name)) for name in Options.__struct_fields__),
    ]
    return [
        Changed(name=name, before=msgspec.Raw(canonical_json(old)), after=msgspec.Raw(canonical_json(new)))
        for name, old, new in pairs
        if old != new
    ]
