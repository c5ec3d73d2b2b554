"""What happens to runs whose process died: they are taken over, every open call gets its result, and they end."""

import logging

import msgspec

from treadle.canon.errors import ErrorInfo, TreadleError
from treadle.canon.events import RunEnded
from treadle.canon.items import CallItem, ResultItem, TextPart
from treadle.canon.messages import Entry, entry_of_item, item_of_entry
from treadle.canon.tools import Outcome, failure
from treadle.engine.ports import Clock
from treadle.store.journal import RunJournal, RunRow, Store

log = logging.getLogger("treadle.runs")

BATCH = 100
UNKNOWN = failure("interrupted", "Interrupted, outcome unknown.")
NOT_RUN = failure("interrupted", "Not run: the process that should have run it was stopped.")


async def close_abandoned(store: Store, clock: Clock, owner: str, lease_s: float) -> list[str]:
    """Take over every run whose lease ended and close it; return their ids."""
    closed: list[str] = []
    while claimed := await store.claim_abandoned(owner, lease_s, BATCH):
        for row, journal in claimed:
            try:
                await _close(await store.entries(row.id), journal, clock.now())
                if not row.store:
                    await store.purge_run(row.id)
            except TreadleError as error:
                log.warning("abandoned run not closed", extra={"run_id": row.id, "code": error.info.code})
                continue
            closed.append(row.id)
            _log(row)
    return closed


async def _close(entries: list[Entry], journal: RunJournal, now: float) -> None:
    try:
        results = _missing_results(entries, now)
    except msgspec.MsgspecError:
        # An entry that cannot be read must not keep the run open for ever; its calls are closed when it is continued.
        results = []
    ended = RunEnded(
        status="failed",
        error=ErrorInfo(code="interrupted", message="The process that ran this was stopped.", status=503),
        rounds=sum(entry.kind == "plan" for entry in entries),
        calls=sum(entry.kind == "tool_start" for entry in entries),
        ended_at=now,
    )
    status = Entry(kind="status", content=ended.status, data=msgspec.Raw(msgspec.json.encode(ended)), at=now)
    await journal.finish([*results, status], ended)


def _missing_results(entries: list[Entry], now: float) -> list[Entry]:
    """Return a result for every server call that has none: only one that had started may have had an effect."""
    own = [entry for entry in entries if not entry.is_input]
    items = [item_of_entry(entry) for entry in own if entry.kind in ("tool_call", "tool_result")]
    answered = {item.call_id for item in items if isinstance(item, ResultItem)}
    started = {entry.call_id for entry in own if entry.kind == "tool_start"}
    return [
        entry_of_item(_result(item, UNKNOWN if item.call_id in started else NOT_RUN), at=now)
        for item in items
        if isinstance(item, CallItem) and item.side == "server" and item.call_id not in answered
    ]


def _result(call: CallItem, outcome: Outcome) -> ResultItem:
    return ResultItem(
        call_id=call.call_id,
        name=call.name,
        output=(TextPart(text=outcome.text),),
        is_error=True,
        kind=call.kind,
        rc=outcome.rc,
        summary=outcome.summary,
    )


def _log(row: RunRow) -> None:
    log.warning("run closed after its process died", extra={"run_id": row.id})
