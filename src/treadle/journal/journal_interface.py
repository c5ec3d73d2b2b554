"""The journal's interface: what a store promises to the rooms above it. No SQL and no database's name here.

A run is the unit. Its row holds the request and how the run ended, its entries hold what happened. Runs chain by
`previous_id`, so a conversation may branch. The promises, each with a test in tests/store:

 J1  Dense: the entries of a run are numbered 1, 2, 3 … in the order of writing, without a gap, across all writers.
 J2  Durable: a write that has returned survives the death of the process and of the machine.
 J3  Atomic: what one call writes is there together or not at all, also when its caller is cancelled in the middle.
 J4  Started together: a run's row, its input and its lease become durable in one step; an id is never taken twice.
 J5  Fenced: only the holder of the newest epoch writes to a run; epochs only grow. The check is part of the write.
 J6  Leased: a run that has not ended is claimed only after its lease ended or was released; every write renews it.
 J7  One end: a run ends once, together with its last entries, and nothing is written to it afterwards.
 J8  One call, one result: among the entries a run itself wrote, a call id has at most one call and one result.
     Input is exempt, because a client may send what it likes.
 J9  Exact: content and data are read back byte for byte, whatever their size, NUL and lone surrogates included.
 J10 History: the items of a run and of all it continues, oldest first; a run continues only an older one, of the
     same conversation. Deleting a run in the middle joins what is left.
 J11 Forgotten is gone: after a purge, a deletion or an expiry none of the content can be read here any more, nor a
     blob unless another run uses it. The row of a purged run and its counts stay.
 J12 Isolated: a write that fails changes nothing and harms no other; once space on a full disk is freed, writes work.
 J13 Chained: every entry carries the sha256 of itself and of the entry before it, so that a changed, a lost or a
     moved entry is found by reading, and so is a changed row of its run; a purge or deletion takes whole runs out of
     the chain and no single entry.
 J14 Once: an idempotency key of an API key belongs to one run, for as long as that run has a row.
 J15 Live: what a run publishes before it is durable can be read by other processes soon after, in order and without
     a gap; it may be lost when the database crashes, and it is deleted when the run ends.
 J16 One at a time: a session has at most one run that has not ended, whichever process started it.
 J17 Unstored: what a run that is not to be stored holds after its end is given to the run that continues it, and to
     no other reader: no list, search, reference or export finds it.
"""

from asyncio import Future
from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from treadle.core.errors import Conflict, ErrorInfo, StoreError
from treadle.core.events import RunEnded, Status
from treadle.core.journal_entries import Entry
from treadle.core.usage import Usage
from treadle.journal.approvals_interface import ApprovalStore
from treadle.journal.keys_interface import KeyStore
from treadle.journal.login_tickets_interface import TicketStore
from treadle.journal.replicas_interface import ReplicaStore
from treadle.journal.run_row_hash import SealedRow
from treadle.journal.workspaces_interface import WorkspaceStore

INLINE_BYTES_MAX = 65_536
"""An entry's data above this size is stored once, by its sha256."""

INPUT_INLINE_BYTES_MAX = 1_024
"""The same for the input of a run that stays: a client that sends its whole conversation each time sends most of it
over and over."""

QUESTION_CHARS_MAX = 200
"""How much of a question is shown in a list."""

LEASE_LOST = "lease_lost"
"""The code of the StoreError when a writer finds that its run has another owner now."""

RUN_ENDED = "run_ended"
"""The code of the Conflict when a writer finds that its run has ended already."""

IDEMPOTENCY_KEY_TAKEN = "idempotency_key_taken"
"""The code of the Conflict when a starter finds that its idempotency key belongs to another run already."""

SESSION_BUSY = "session_busy"
"""The code of the Conflict when a starter finds that a run of the same session has not ended."""

SessionKind = Literal["session", "conversation"]


def busy(session_id: str) -> Conflict:
    """Return the error of a session that has a run that has not ended."""
    hint = "Wait for it, or cancel it."
    return Conflict(
        f"A run of session {session_id!r} is still going on.", code=SESSION_BUSY, param="session", hint=hint
    )


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run besides its entries. `request` holds the instructions and options it was asked with."""

    id: str
    response_id: str
    conversation_id: str
    protocol: str
    model: str
    created_at: float
    previous_id: str | None = None
    session_id: str | None = None
    key_id: str = ""
    status: Status = "running"
    store: bool = True
    background: bool = False
    ended_at: float | None = None
    expires_at: float | None = None
    stop: str | None = None
    limit: str | None = None
    usage: Usage | None = None
    error: ErrorInfo | None = None
    rounds: int = 0
    calls: int = 0
    request: msgspec.Raw | None = None
    idempotency_key: str | None = None
    request_sha256: str = ""


class RunSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to find; what is None narrows nothing.

    `model` and `tool` are names, `error` the code of the error a run ended with (empty is any), `text` something that
    appears in a message, a call or a result, without regard to case; `since` is when it started at the earliest.
    """

    status: Status | None = None
    session_id: str | None = None
    key_id: str | None = None
    model: str | None = None
    tool: str | None = None
    error: str | None = None
    text: str | None = None
    since: float | None = None


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation stored under a name; `head_run_id` is the run that its next run continues.

    `kind` distinguishes Treadle's own sessions from conversations of the Responses API; `metadata` is a JSON object.
    """

    id: str
    created_at: float
    updated_at: float
    name: str = ""
    key_id: str = ""
    head_run_id: str | None = None
    kind: SessionKind = "session"
    metadata: msgspec.Raw | None = None


class StoreStats(msgspec.Struct, kw_only=True):
    """Errors by code since the store was opened, its pool now, and how often its listener reconnected."""

    errors: Counter[str] = msgspec.field(default_factory=Counter[str])
    pool_in_use: int = 0
    pool_waiting: int = 0
    reconnects: int = 0


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a live run as it published them: the first one's number in the run, and all of them as a JSON array."""

    first: int
    count: int
    data: bytes


class AuditLine(msgspec.Struct, frozen=True, kw_only=True):
    """One entry as the audit reads it: what its hash should be, and what it is; see `chain.audit_lines`."""

    run_id: str
    seq: int
    epoch: int
    kind: str
    sha256: str
    expected: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is stored of one run, at one moment, for its audit.

    `is_rooted` is true if its chain begins in its row; `faults` name values not stored as Treadle writes them.
    """

    row: RunRow
    sealed: SealedRow
    entries: list[Entry]
    lines: list[AuditLine]
    is_rooted: bool
    faults: tuple[str, ...] = ()


def is_inline(size: int, is_shared: bool) -> bool:
    """Return whether data of this size is stored in its entry; `is_shared` is true for input of a stored run."""
    return size <= INPUT_INLINE_BYTES_MAX or (size <= INLINE_BYTES_MAX and not is_shared)


def question_place(entries: Sequence[Entry]) -> int:
    """Return the number of the last user message among the entries that a run begins with; 0 for none."""
    seq = len(entries)
    while seq and not (entries[seq - 1].kind == "user" and entries[seq - 1].is_input):
        seq -= 1
    return seq


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The last round of a run that handed calls to its client: the model's items, and the server's results.

    `is_kept` is true if the run stays stored once its turn has been continued.
    """

    run_id: str
    is_kept: bool
    entries: list[Entry]


class RunJournal(Protocol):
    """The right to write to one run, until another owner claims it.

    `append`, `finish` and `renew` start their write at once; their future is done when it is durable, or has failed.
    Cancelling the future does not cancel the write.
    """

    @property
    def run_id(self) -> str:
        """Return the run this journal writes to."""
        ...

    @property
    def epoch(self) -> int:
        """Return the number of this owner, from 1: above 1 the run was recovered or handed over."""
        ...

    @property
    def attempt(self) -> int:
        """Return how many owners, this one included, did not release the run themselves."""
        ...

    def append(self, entries: Sequence[Entry]) -> "Future[int]":
        """Make the entries durable, in order, and return the number of the last one; renew the lease.

        Raises: StoreError (code `lease_lost` after a take-over), Conflict (the run has ended, or a call
        would get a second call or result entry), NotFound (the run was deleted).
        """
        ...

    def finish(self, entries: Sequence[Entry], ended: RunEnded, *, forget: Sequence[str] = ()) -> "Future[int]":
        """Append the last entries and end the run, in one step.

        In the same step the content of the runs to `forget` is purged, perhaps of this very run: those that have not
        ended or are not there are left out.

        Raises: as `append`; Conflict too when the run has ended already.
        """
        ...

    def renew(self) -> "Future[int]":
        """Make the lease run from now; return the number of the run's last entry.

        Raises: as `append`.
        """
        ...

    async def release(self) -> None:
        """Release the run, so that it can be claimed at once; without effect after a take-over."""
        ...

    async def write_chunk(self, chunk: Chunk, *, keep_from: int, is_durable: bool = False) -> None:
        """Publish events to other processes before they are journalled; drop chunks that end before `keep_from`.

        One that `is_durable` outlives the machine when this returns; others may be lost with it.
        Raises: as `append`.
        """
        ...


class Store(Protocol):
    """Stores runs, their entries, sessions and blobs."""

    @property
    def path(self) -> str:
        """Return where it is, without a password."""
        ...

    @property
    def approvals(self) -> ApprovalStore:
        """Return where approvals are stored; its promises are in `approvals_interface`."""
        ...

    @property
    def keys(self) -> KeyStore:
        """Return where clients' keys are stored; its promises are in `keys_interface`."""
        ...

    @property
    def tickets(self) -> TicketStore:
        """Return where spent login tickets are stored; its promises are in `login_tickets_interface`."""
        ...

    @property
    def replicas(self) -> ReplicaStore:
        """Return where the processes that share the store are stored; its promises are in `replicas_interface`."""
        ...

    @property
    def workspaces(self) -> WorkspaceStore:
        """Return where workspaces are stored; its promises are in `workspaces_interface`."""
        ...

    async def open(self) -> None:
        """Make the store usable, creating or migrating it where needed.

        Raises: StoreError, naming the place, the fault and the remedy.
        """
        ...

    async def close(self) -> None:
        """Finish the writes that were queued, then release everything; without effect the second time."""
        ...

    @property
    def queued(self) -> int:
        """Return how many writes are queued and not done yet; 0 while it is not open."""
        ...

    async def server_time(self) -> float | None:
        """Return the time of the database, which several machines share; None where it is on this one.

        Raises: StoreError.
        """
        ...

    async def ping(self) -> None:
        """Check cheaply that reading works and that writing has not stopped.

        Raises: StoreError.
        """
        ...

    async def probe(self) -> None:
        """Check that a write would succeed now, disk space included. Call it from one task only.

        Raises: StoreError.
        """
        ...

    def hold_off(self, error: StoreError | None) -> None:
        """Refuse requests at once with this error, until called with None, instead of letting them time out.

        Runs in progress are not refused: they wait as long as their lease allows.
        """
        ...

    @property
    def stats(self) -> StoreStats:
        """Return the current counters."""
        ...

    def start_run(
        self, row: RunRow, entries: Sequence[Entry], *, owner: str, lease_s: float, is_private: bool = False
    ) -> "Future[RunJournal]":
        """Make a run, its input and its lease durable, and return the right to write to it.

        The write starts at once; cancelling the future does not cancel it. A run that `is_private` has no reader until
        more of it is durable, so until then it may be lost with the machine. If it refers to no other run, its start
        may even be deferred and written together with its first entries: until then it can be lost with the process,
        other processes do not see it, and a fault in it is raised by that first write.
        Raises: Conflict (an id or, with code `idempotency_key_taken`, the idempotency key is taken, with code
        `session_busy` another run of the session has not ended, or the previous run is of another conversation),
        NotFound (the previous run or the session is not there), StoreError.
        """
        ...

    async def claim_abandoned(
        self,
        owner: str,
        lease_s: float,
        limit: int,
        *,
        run_id: str | None = None,
        background: bool | None = None,
        besides: Sequence[str] = (),
    ) -> list[tuple[RunRow, RunJournal]]:
        """Take over runs that have not ended although their lease did, longest abandoned first.

        `run_id` narrows to one run, `background` to background runs or to the others; `besides` are excluded.
        """
        ...

    async def abandoned(self, run_ids: Sequence[str]) -> list[str]:
        """Return those of the runs that have not ended although their lease did."""
        ...

    async def end_leases(self, owner: str) -> int:
        """End the leases of an owner that is known to be dead, and return how many there were."""
        ...

    async def find_idempotent(self, idempotency_key: str, *, key_id: str) -> RunRow | None:
        """Return the run that was started under this idempotency key."""
        ...

    async def request_cancel(self, run_id: str) -> bool:
        """Ask the owner of the run to cancel it; False if it has ended or is not there."""
        ...

    async def cancel_requests(self, owner: str) -> list[str]:
        """Return the runs of this owner whose cancellation was requested."""
        ...

    async def chunks(self, run_id: str, *, after: int = 0) -> list[Chunk]:
        """Return what a live run published, in order, in the chunks that hold events numbered above `after`."""
        ...

    async def wait_change(self, run_id: str, timeout_s: float) -> None:
        """Return soon after any process wrote to the run, or when the time is over.

        It may return for no reason: a waiter reads again and decides.
        """
        ...

    async def audit(self, run_id: str) -> list[AuditLine]:
        """Return the entries of a run with the hash each carries and the one computed from what is stored.

        Raises: NotFound.
        """
        ...

    async def evidence(self, run_id: str) -> Evidence:
        """Return all that is stored of a run as it is at one moment.

        Raises: NotFound.
        """
        ...

    async def strays(self) -> dict[str, int]:
        """Return how many rows belong to runs that are not there, by table: those were deleted by hand."""
        ...

    async def find_run(self, run_or_response_id: str, *, key_id: str | None = None) -> RunRow | None:
        """Return the run of that id or response id; with `key_id`, only if it belongs to that key."""
        ...

    async def list_runs(
        self,
        *,
        limit: int = 50,
        before: str | None = None,
        status: Status | None = None,
        session_id: str | None = None,
        key_id: str | None = None,
        fingerprint: str | None = None,
    ) -> list[RunRow]:
        """Return runs, newest first; `before` is the id of the last run of the page before.

        `fingerprint` narrows to the runs that made a model call with exactly that plan.

        Raises: NotFound, when there is no run `before`.
        """
        ...

    async def search_runs(self, wanted: RunSearch, *, limit: int = 50, before: str | None = None) -> list[RunRow]:
        """Return the runs that are looked for, newest first; `before` is the id of the last run of the page before.

        Raises: NotFound, when there is no run `before`.
        """
        ...

    async def questions(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the beginning of the last thing that each of the runs was asked, where that is known."""
        ...

    async def entries(
        self, run_id: str, *, after: int = 0, limit: int | None = None, for_next: bool = False
    ) -> list[Entry]:
        """Return the entries of a run whose number is above `after`, in order.

        Of a run that is not stored and has ended nothing is given but to the run that comes next, `for_next`.

        Raises: NotFound.
        """
        ...

    async def history(self, run_id: str, *, for_next: bool = False) -> list[Entry]:
        """Return the items of the run and of all it continues, oldest first; numbers are those of each run.

        Entries of kind `void` come along: they name the items before them that no model shall read again. `for_next`
        is as in `entries`.

        Raises: NotFound.
        """
        ...

    async def find_item(self, item_id: str, *, key_id: str | None = None) -> list[Entry]:
        """Return the item of that id and, for a call, the result that the same run gave it; nothing if unknown.

        Where a run wrote the item itself is preferred to where a client sent it back.
        """
        ...

    async def find_turns(
        self, call_ids: Sequence[str], questions: Sequence[str], *, key_id: str | None = None
    ) -> list[StoredTurn]:
        """Return the last rounds of runs that wait for such calls and were asked such a question, newest first.

        Only those that hold more than the client knows: results of server calls, or a provider's opaque state.
        """
        ...

    async def delete_run(self, run_or_response_id: str) -> bool:
        """Forget a run and all of its content and return whether it was there."""
        ...

    async def purge_run(self, run_id: str) -> None:
        """Delete the content of an ended run; its row and counts stay.

        Raises: NotFound, Conflict when the run has not ended.
        """
        ...

    async def expire(self, now: float) -> int:
        """Forget the ended runs that have expired and return how many.

        A stored run stays as long as any run of its conversation does; one that is not stored goes alone.
        """
        ...

    async def put_blob(self, data: bytes, *, run_id: str) -> str:
        """Store bytes for as long as the run is stored, once however often they come, and return their sha256 in hex.

        Raises: NotFound.
        """
        ...

    async def get_blob(self, sha256: str, offset: int, length: int, *, run_id: str | None = None) -> bytes:
        """Return a piece of a blob: less than `length` at its end, nothing beyond it.

        With a run, only a blob of that run, or of another of the same key in the same conversation or session. Calls
        that were made without a model are one conversation.

        Raises: NotFound.
        """
        ...

    async def create_session(self, row: SessionRow) -> None:
        """Store a new session.

        Raises: Conflict (its id, or its name within the key, is taken), NotFound (its head is not there).
        """
        ...

    async def find_session(self, id_or_name: str, *, key_id: str | None = None) -> SessionRow | None:
        """Return the session of that id, else the one of that name used last."""
        ...

    async def list_sessions(
        self,
        limit: int = 50,
        *,
        key_id: str | None = None,
        kind: SessionKind = "session",
        before: str | None = None,
        search: str | None = None,
    ) -> list[SessionRow]:
        """Return sessions, the one used last first; `before` is the id of the last one of the page before.

        `search` narrows to those whose name, or whose messages (what was asked and answered), hold that text,
        without regard to case.
        Raises: NotFound, when there is no session `before`.
        """
        ...

    async def update_session(
        self, session_id: str, *, name: str | None = None, metadata: msgspec.Raw | None = None
    ) -> SessionRow:
        """Give a session another name or other metadata; what is None stays.

        Raises: NotFound, Conflict when the name is taken within the key.
        """
        ...

    async def delete_session(self, session_id: str, *, with_runs: bool) -> bool:
        """Forget a session, and with `with_runs` the ended runs made in it; return whether it was there.

        Raises: Conflict while a run of the session has not ended.
        """
        ...

    async def set_session_head(self, session_id: str, run_id: str | None, *, expected: str | None) -> None:
        """Let the session continue from `run_id`, or from its beginning, if its head is `expected`.

        Raises: NotFound (session or run), Conflict when another run has become the head.
        """
        ...
