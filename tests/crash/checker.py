"""The history checker: reads what a run left behind (journal, ledger of effects, what clients saw), says what is wrong.

It knows the promises and not the code that keeps them: it reads entries and never asks the loop. Each rule is a
function that yields sentences; a run without any is as it should be.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from crash.reader import Resumed, Streamed
from treadle.core.events import ENDED, RoundBroken, RunEnded, RunEvent, ToolFinished, ToolStarted
from treadle.core.events import ItemDone as Done
from treadle.core.items import AnyItem, CallItem, ResultItem, text_of
from treadle.core.journal_entries import Entry, item_of_entry
from treadle.journal.audit_verification import audit_run
from treadle.journal.journal_interface import AuditLine, Evidence, RunRow, Store
from treadle.runs.conversation_history import close_orphans, read_history
from treadle.runs.replay.event_replay import DamagedJournal, EventReplay, replay_journal

RETRYABLE = ("read", "idempotent")
READS = frozenset({"look", "read_one"})
"""The tools of the scenes that only read: what they did in the last moments before a crash need not be marked."""
UNCERTAIN = ("interrupted", "cancelled")
"""What the result of a call may say whose tool was running when its process died."""
DURABLE = (Done, ToolStarted, ToolFinished, RoundBroken, RunEnded)
"""Events that nobody may see before they are in the journal."""


class Effect(msgspec.Struct, frozen=True):
    """One line of the ledger: a tool did its work, under this key."""

    run_id: str
    call_id: str
    tool: str
    key: str


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All that is left of one run. Sightings are what readers saw of it, each from its first event on: in the process
    that drove it, or far from there, through the store; `resumed` are clients that went on after each crash."""

    evidence: Evidence
    following: list[AnyItem]
    effects: list[Effect] = []
    sightings: list[list[RunEvent]] = []
    far_sightings: list[list[RunEvent]] = []
    resumed: list[Resumed | Streamed] = []

    @property
    def row(self) -> RunRow:
        return self.evidence.row

    @property
    def entries(self) -> list[Entry]:
        return self.evidence.entries

    @property
    def lines(self) -> list[AuditLine]:
        return self.evidence.lines

    @property
    def own(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.is_input]


class _Start(msgspec.Struct):
    effect: str
    attempt: int = 1


async def read(
    store: Store,
    run_id: str,
    effects: Sequence[Effect] = (),
    sightings: Sequence[list[RunEvent]] = (),
    far_sightings: Sequence[list[RunEvent]] = (),
    resumed: Sequence[Resumed | Streamed] = (),
) -> History:
    """Read a run from its store; the ledger may be that of several runs."""
    return History(
        evidence=await store.evidence(run_id),
        following=await read_history(store, run_id),
        effects=[effect for effect in effects if effect.run_id == run_id],
        sightings=list(sightings),
        far_sightings=list(far_sightings),
        resumed=list(resumed),
    )


def check(history: History) -> list[str]:
    """Return every broken promise, one sentence each."""
    return [f"{history.row.id}: {problem}" for rule in RULES for problem in rule(history)]


def _numbers(history: History) -> Iterator[str]:
    numbers = [entry.seq for entry in history.entries]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the entries are numbered {numbers}"
    if any(line.sha256 != line.expected for line in history.lines):
        yield "the chain is broken"


def _audited(history: History) -> Iterator[str]:
    yield from audit_run(history.evidence).problems


def _epochs(history: History) -> Iterator[str]:
    epochs = [line.epoch for line in history.lines]
    if epochs != sorted(epochs):
        yield f"an old owner wrote after a new one: epochs {epochs}"


def _one_end(history: History) -> Iterator[str]:
    if history.row.status not in ENDED:
        yield f"the run has not ended: {history.row.status}"
    ends = [entry for entry in history.own if entry.kind == "status" and entry.content in ENDED]
    if len(ends) != 1:
        yield f"{len(ends)} ends"
    elif ends[0] is not history.entries[-1]:
        yield "something was written after the end"
    elif ends[0].content != history.row.status:
        yield f"the entry says {ends[0].content}, the row {history.row.status}"


def _one_result(history: History) -> Iterator[str]:
    results = Counter(entry.call_id for entry in history.own if entry.kind == "tool_result")
    for call in _calls(history):
        if call.side == "server" and results[call.call_id] != 1:
            yield f"the server call {call.call_id} has {results[call.call_id]} results"
        if call.side == "client" and results[call.call_id]:
            yield f"the client's call {call.call_id} was answered here"


def _order(history: History) -> Iterator[str]:
    """Within a round results stand in call order, and all of them before the next model call."""
    for number, entries in enumerate(_rounds(history), 1):
        calls = [call.call_id for call in map(_item, entries) if isinstance(call, CallItem) and call.side == "server"]
        results = [entry.call_id for entry in entries if entry.kind == "tool_result"]
        if results != calls:
            yield f"round {number} calls {calls} and answers {results}"


def _starts(history: History) -> Iterator[str]:
    """A start is marked before an effect, once for a tool that must not run twice, and counted up for others."""
    starts = _marks(history)
    results = {entry.call_id: entry for entry in history.own if entry.kind == "tool_result"}
    for call_id, marks in starts.items():
        attempts = [start.attempt for _, start in marks]
        if attempts != list(range(1, len(marks) + 1)):
            yield f"the starts of {call_id} are counted {attempts}"
        if marks[0][1].effect not in RETRYABLE and len(marks) > 1:
            yield f"{call_id}, which has the effect {marks[0][1].effect}, was started {len(marks)} times"
        result = results.get(call_id)
        if result is not None and result.seq < marks[-1][0].seq:
            yield f"{call_id} was started after its result"
    for call_id, result in results.items():
        if call_id not in starts and _result(result).rc == "ok":
            yield f"{call_id} has a result and was never started"


def _effects(history: History) -> Iterator[str]:
    """Compare the ledger with the journal: nothing dangerous twice, nothing unmarked, and no result out of thin air."""
    starts = _marks(history)
    done = defaultdict[str, list[Effect]](list)
    for effect in history.effects:
        done[effect.call_id].append(effect)
        if effect.key != f"{history.row.id}:{effect.call_id}":
            yield f"{effect.tool} was run under the key {effect.key}"
    early = {entry.call_id for entry in history.own if entry.kind == "tool_early"}
    for call_id, effects in done.items():
        if call_id not in starts:
            if call_id not in early and effects[0].tool not in READS:
                yield f"{effects[0].tool} ran for {call_id} without a start mark"
        elif starts[call_id][0][1].effect not in RETRYABLE and len(effects) > 1:
            yield f"{effects[0].tool} ran {len(effects)} times for {call_id}"
    for entry in history.own:
        if entry.kind != "tool_result":
            continue
        result = _result(entry)
        if result.rc == "ok" and not done[result.call_id]:
            yield f"{result.call_id} has a result, and its tool never ran"
        # What only reads may have run and be asked for again, or said not to have been: nothing has changed by it.
        ran = [effect for effect in done[result.call_id] if effect.tool not in READS]
        if "Not run" in text_of(result.output) and ran:
            yield f"{ran[0].tool} ran for {result.call_id}, and the result says that it did not"


def _takeovers(history: History) -> Iterator[str]:
    """A dangerous call that was running when its owner died is uncertain for ever."""
    epochs = {line.seq: line.epoch for line in history.lines}
    starts = _marks(history)
    for entry in history.own:
        if entry.kind != "tool_result" or entry.call_id not in starts:
            continue
        mark, start = starts[entry.call_id][-1]
        is_other = epochs[entry.seq] > epochs[mark.seq]
        if is_other and "Not run" in text_of(_result(entry).output):
            yield f"{entry.call_id} was started by one owner, and another says that it was not run"
        if is_other and start.effect not in RETRYABLE and _result(entry).rc not in UNCERTAIN:
            yield f"{entry.call_id} was started by one owner and answered {_result(entry).rc!r} by another"


def _following(history: History) -> Iterator[str]:
    """What the next request reads has one result for each server call, right behind the calls of its round."""
    client = {call.call_id for call in _calls(history) if call.side == "client"}
    yield from (f"next request: {problem}" for problem in unpaired(history.following, client))
    voided = _voided(history)
    if kept := [item.id for item in history.following if item.id in voided]:
        yield f"next request: the taken back items {kept} are still read"


def _sightings(history: History) -> Iterator[str]:
    """What readers saw is what the journal tells, in the same pieces.

    Only the words of a model call that its process did not survive may have come in other pieces: they are told at
    once and not promised. What is promised (items, starts, results, the end) was seen only if it is in the journal.
    """
    try:
        told = [numbered.event for numbered in replay_journal(history.entries)]
    except DamagedJournal as error:
        yield f"the journal cannot be told: {error}"
        return
    durable = [event for event in told if isinstance(event, DURABLE)]
    sure = _uncut(history.entries)
    for seen in history.sightings:
        plain = [event for event in seen if not _is_lost_end(event)]
        claimed = [event for event in plain if isinstance(event, DURABLE)]
        if claimed != durable[: len(claimed)]:
            wrong = next(event for event, other in zip(claimed, [*durable, *claimed], strict=False) if event != other)
            yield f"a reader saw {wrong.__struct_config__.tag}, and the journal has it not there"
        if plain[:sure] != told[: min(sure, len(plain))]:
            yield "a reader saw other events than the journal tells, where nothing was cut"
    for seen in history.far_sightings:
        if seen != told[: len(seen)]:
            yield "a reader in another process saw other events than the journal tells"


def _resumed(history: History) -> Iterator[str]:
    """Whoever went on after a crash has exactly what the journal tells, and no number stood at two events."""
    for client in history.resumed:
        yield from client.check(history.entries)


def _uncut(entries: Sequence[Entry]) -> int:
    """Return how many events come before the words of the first model call that was cut."""
    replay, begun = EventReplay(), 0
    for entry in entries:
        replay.events_of(entry)
        if entry.kind == "plan":
            begun = replay.event_count
        if entry.kind == "reply" and entry.content == "interrupted":
            return begun
    return replay.event_count


def _is_lost_end(event: RunEvent) -> bool:
    """Tell whether this is what a process says that lost its run: it claims nothing of the run itself."""
    return isinstance(event, RunEnded) and event.error is not None and event.error.code in LOST


LOST = ("lease_lost", "store_closed", "store_full", "store_busy", "store_unavailable", "run_ended", "handed_over")
RULES = (
    _numbers,
    _audited,
    _epochs,
    _one_end,
    _one_result,
    _order,
    _starts,
    _effects,
    _takeovers,
    _following,
    _sightings,
    _resumed,
)


def wrong_times(row: RunRow, now: float) -> Iterator[str]:
    """Say which times of a run are not those of the database."""
    ended_at = row.created_at if row.ended_at is None else row.ended_at
    if not 0 <= row.created_at <= ended_at <= now:
        yield f"{row.id}: it began at {row.created_at} and ended at {ended_at}, and it is {now}"


def unpaired(items: Sequence[AnyItem], client: set[str] = frozenset()) -> Iterator[str]:
    """Say what a provider would refuse: calls without a result, results without a call, pairs torn apart."""
    open_calls: list[str] = []
    for item in items:
        match item:
            case CallItem():
                open_calls.append(item.call_id)
            case ResultItem() if item.call_id in open_calls:
                open_calls.remove(item.call_id)
            case ResultItem():
                yield f"the result of {item.call_id} answers nothing"
            case _ if any(call_id not in client for call_id in open_calls) and _closes(item):
                yield f"the calls {open_calls} are still open when {item.__struct_config__.tag} follows"
                open_calls = []
    if missing := [call_id for call_id in open_calls if call_id not in client]:
        yield f"the calls {missing} have no result"
    closed = close_orphans(items)
    if len(closed) - len(items) != len(open_calls) and not missing:
        yield "closing the orphans changed more than the client's open calls"


def _closes(item: AnyItem) -> bool:
    return getattr(item, "role", "") in ("user", "system")


def _calls(history: History) -> list[CallItem]:
    items = [_item(entry) for entry in history.own if entry.kind == "tool_call"]
    return [item for item in items if isinstance(item, CallItem)]


def _item(entry: Entry) -> AnyItem | None:
    return item_of_entry(entry) if entry.kind in ("tool_call", "tool_result") else None


def _result(entry: Entry) -> ResultItem:
    item = item_of_entry(entry)
    assert isinstance(item, ResultItem)
    return item


def _rounds(history: History) -> list[list[Entry]]:
    rounds: list[list[Entry]] = []
    for entry in history.own:
        if entry.kind == "plan":
            rounds.append([])
        elif rounds:
            rounds[-1].append(entry)
    return rounds


def _marks(history: History) -> dict[str, list[tuple[Entry, _Start]]]:
    marks: dict[str, list[tuple[Entry, _Start]]] = {}
    for entry in history.own:
        if entry.kind == "tool_start":
            start = msgspec.json.decode(entry.data or b"{}", type=_Start)
            marks.setdefault(entry.call_id or "", []).append((entry, start))
    return marks


def _voided(history: History) -> set[str]:
    voided: set[str] = set()
    for entry in history.own:
        if entry.kind == "void":
            voided.update(msgspec.json.decode(entry.data or b"{}").get("items", []))
    return voided
