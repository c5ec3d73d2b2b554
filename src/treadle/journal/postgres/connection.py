"""Connections to PostgreSQL: a pool of them, with a bound on every wait, and their failures named.

A connection that fails while a statement is under way leaves it open whether that was done: `Gone` says so, and
`certain` then looks at what is there before it tries again. Nothing here knows a table.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import asyncpg

from treadle.core.errors import Conflict, NotFound, ProtocolError, StoreError, TreadleError
from treadle.journal.journal_interface import IDEMPOTENCY_KEY_TAKEN, SESSION_BUSY
from treadle.journal.store_url import PostgresAddress

CONNECT_S = 3.0
PAUSES_S = (0.02, 0.05, 0.1, 0.2)
"""How long to wait before the next attempt; the last one over and over."""
LINES_POOL_SIZE_MIN = 8
"""How large a pool must be to have connections for those who keep one."""
KEPT_S = 300.0
"""How long a connection is kept without being used: what lies between may forget an idle one and not say so."""

T = TypeVar("T")


class Connection(Protocol):
    """What is used of a connection; the driver itself has no types."""

    async def execute(self, query: str, *values: Any, timeout: float | None = None) -> str:
        """Run a statement, or without values several."""
        ...

    async def fetch(self, query: str, *values: Any, timeout: float | None = None) -> list[Any]:
        """Return all rows."""
        ...

    async def fetchrow(self, query: str, *values: Any) -> Any:
        """Return the first row, or None."""
        ...

    async def fetchval(self, query: str, *values: Any, timeout: float | None = None) -> Any:
        """Return the first value of the first row, or None."""
        ...

    def transaction(self, *, isolation: str | None = None, readonly: bool = False) -> Any:
        """Return a transaction, to be entered."""
        ...

    def terminate(self) -> None:
        """Close at once."""
        ...


Work = Callable[[Connection], Awaitable[T]]

UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,
)
"""What means that the database is away for now, or that this connection is: the driver has many words for it."""
_AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
"""What PostgreSQL undid so that others could go on."""

_GONE = "somebody dropped the schema, or restores it just now: Treadle goes on by itself when it is back"
POOLED = "its pooler gives every transaction another connection, and Treadle needs one that stays its own"
POOLED_HINT = "set pool_mode = session in the pooler for this user or database, or name PostgreSQL itself"

_FAILURES: tuple[tuple[type[Exception], str, str, str], ...] = (
    (asyncpg.DiskFullError, "store_full", "its disk is full", "free some space"),
    (asyncpg.ReadOnlySQLTransactionError, "store_read_only", "it cannot be written", "name the primary server"),
    (asyncpg.InvalidAuthorizationSpecificationError, "store_refused", "it refuses the user or the password", ""),
    (asyncpg.InvalidCatalogNameError, "store_cannot_open", "there is no such database", "create it, or name another"),
    (asyncpg.InsufficientPrivilegeError, "store_read_only", "the user lacks a right", "grant CREATE on the database"),
    (asyncpg.UndefinedTableError, "store_schema_missing", "its tables are gone", _GONE),
    (asyncpg.UndefinedObjectError, "store_schema_missing", "its types are gone", _GONE),
    (asyncpg.DataCorruptedError, "store_corrupt", "the database is damaged", "restore a backup"),
    (asyncpg.IndexCorruptedError, "store_corrupt", "the database is damaged", "restore a backup"),
    (asyncpg.InvalidSQLStatementNameError, "store_pooled", POOLED, POOLED_HINT),
    (asyncpg.DuplicatePreparedStatementError, "store_pooled", POOLED, POOLED_HINT),
)
_CREDENTIALS = "check the user, and the password in PGPASSWORD or the variable that store.password_env names"


class Gone(Exception):
    """The connection failed while a statement was under way, so nobody knows whether it was done."""


class PostgresPool:
    """Connections to one database, made when they are needed and made anew when they are lost."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._pool: Any = None
        self._lines: list[PoolConnection] = []
        self._waiting = 0
        self.errors: Counter[str] = Counter()

    @property
    def in_use(self) -> int:
        """Return how many connections are taken."""
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    @property
    def waiting(self) -> int:
        """Return how many wait for a connection."""
        return self._waiting

    @property
    def is_open(self) -> bool:
        """Tell whether work is taken."""
        return self._pool is not None

    async def open(self) -> None:
        """Make a first connection.

        Raises: StoreError.
        """
        sizes = {"min_size": 0, "max_size": self._address.pool_size}
        begin = partial(begin_session, address=self._address)
        options: dict[str, Any] = {**_options(self._address), **sizes, "connection_class": _Plain, "init": begin}
        self._pool = await asyncpg.create_pool(self._address.dsn, **options)

    async def close(self) -> None:
        """Let go of all connections; wait a moment for those in use."""
        pool = self._pool
        if pool is None:
            return
        for line in self._lines:
            await line.put_down()
        self._pool = None
        try:
            async with asyncio.timeout(CONNECT_S):
                await pool.close()
        except (TimeoutError, *UNREACHABLE):
            pool.terminate()
            await asyncio.sleep(0)  # so that the sockets are closed when this returns

    async def run(self, work: Work[T], deadline: float) -> T:
        """Run work on a connection of its own, by `deadline` of the monotonic clock.

        Raises: Gone, when the outcome is not known; StoreError, when there was no connection; what the work raises.
        """
        connection = await self.acquire(deadline)
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                return await work(connection)
        except _FAILED as error:
            raise _told(connection, error) from None
        finally:
            await self.release(connection)

    def line(self) -> "PoolConnection":
        """Return a place at which work follows work; a small pool has no connections to keep for it."""
        self._lines.append(PoolConnection(self, is_kept=self._has_lines))
        return self._lines[-1]

    @property
    def shared_size(self) -> int:
        """Return how many connections are left to those who keep none."""
        return self._address.pool_size - (len(self._lines) if self._has_lines else 0)

    @property
    def _has_lines(self) -> bool:
        return self._address.pool_size >= LINES_POOL_SIZE_MIN

    async def certain(
        self, work: Work[T], deadline: float, settle: Work[T | None] | None = None, *, in_doubt: bool = False
    ) -> T:
        """Run work until it is known to be done, or known to be refused, or until `deadline` of the monotonic clock.

        After a lost connection `settle` looks whether the work was done and returns its value if so. Without one the
        work must be such that doing it twice is doing it once. `in_doubt` says that it may have been done before.
        Raises: TreadleError.
        """
        try:
            return await self._certain(work, deadline, settle, in_doubt)
        except StoreError as error:
            self.errors[error.info.code] += 1
            raise

    async def _certain(self, work: Work[T], deadline: float, settle: Work[T | None] | None, in_doubt: bool) -> T:
        while True:
            lost, refused = "", None
            try:
                return await self.run(work, deadline)
            except Gone as error:
                in_doubt = True
                lost = str(error)
            except _AGAIN as error:
                lost = str(error)
            except asyncpg.PostgresError as error:
                refused = self.named(error)
            except TreadleError as error:
                refused = error
            if refused is not None and not in_doubt:
                raise refused
            found = await self._settle(settle, deadline) if in_doubt and settle is not None else None
            if found is not None:
                return found
            if refused is not None:
                raise refused
            if time.monotonic() >= deadline:
                raise self.unavailable(lost)

    async def read(self, work: Work[T], within_s: float) -> T:
        """Run work that changes nothing.

        Raises: TreadleError.
        """
        return await self.certain(work, time.monotonic() + within_s)

    def named(self, error: asyncpg.PostgresError) -> TreadleError:
        """Say in words what PostgreSQL's error means."""
        return constraint_error(error) or store_error(error, self._address)

    def unavailable(self, why: object) -> StoreError:
        """Say that the database is away."""
        return unavailable(self._address, why)

    async def _settle(self, settle: Work[T | None], deadline: float) -> T | None:
        while True:
            try:
                return await self.run(settle, deadline)
            except Gone as error:
                if time.monotonic() >= deadline:
                    raise self.unavailable(error) from None
            except asyncpg.PostgresError as error:
                raise self.named(error) from None

    async def acquire(self, deadline: float) -> Connection:
        """Take a connection, trying again while the database is away and there is time.

        Raises: StoreError.
        """
        attempt = 0
        while True:
            pool = self._pool
            if pool is None:
                raise closed(self._address)
            try:
                # Also where a connection is idle: the pool may hand out one that has to be made anew.
                async with asyncio.timeout(_left_s(deadline)):
                    return await self._wait_for_one(pool)
            except UNREACHABLE as error:
                why = str(error) or "no connection came free in time"
            except asyncpg.PostgresError as error:
                raise store_error(error, self._address) from None
            pause = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
            if time.monotonic() + pause >= deadline:
                raise self.unavailable(why)
            attempt += 1
            await asyncio.sleep(pause)

    async def _wait_for_one(self, pool: Any) -> Connection:
        self._waiting += 1
        try:
            return await pool.acquire()
        finally:
            self._waiting -= 1

    async def release(self, connection: Connection) -> None:
        """Give a connection back."""
        if self._pool is not None:
            await self._pool.release(connection)


class PoolConnection:
    """Work after work on one connection, which is kept meanwhile: to take it anew costs as much as to use it.

    What is done here is done over and over, for few rows of tables that grow: a plan is made once, by their indexes.
    """

    def __init__(self, pool: PostgresPool, *, is_kept: bool) -> None:
        self._pool = pool
        self._is_kept = is_kept
        self._connection: Connection | None = None
        self._used_at = 0.0

    async def run(self, work: Callable[[Connection, float], Awaitable[T]], within_s: float) -> T:
        """Run work within some seconds, of which it is given what is left: it must not take longer.

        Raises: as `PostgresPool.run`.
        """
        began = time.monotonic()
        deadline = began + within_s
        connection, self._connection = self._connection, None
        if connection is not None and began - self._used_at > KEPT_S:
            await self._drop(connection)
            connection = None
        is_new, is_fit = connection is None, False
        if connection is None:
            connection = await self._pool.acquire(deadline)
        try:
            if is_new and self._is_kept:
                await connection.execute(_PLAN_ONCE, timeout=_left_s(deadline))
            done = await work(connection, within_s if not is_new else _left_s(deadline))
            is_fit = True
        except _FAILED as error:
            is_fit = isinstance(error, asyncpg.PostgresError) and not isinstance(error, _LOST)
            raise _told(connection, error) from None
        finally:
            if not self._is_kept:
                await self._pool.release(connection)
            elif is_fit:
                self._connection, self._used_at = connection, began
            else:
                await self._drop(connection)
        return done

    async def put_down(self) -> None:
        """Give the connection back to a pool that is being closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._pool.release(connection)

    async def _drop(self, connection: Connection) -> None:
        """Close a connection rather than give it to others, who plan otherwise."""
        _terminate(connection)
        await self._pool.release(connection)


def _left_s(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


_PLAN_ONCE = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan"
_LOST = (*UNREACHABLE, asyncpg.ReadOnlySQLTransactionError)
_FAILED = (asyncpg.PostgresError, asyncio.CancelledError, *UNREACHABLE)


def _told(connection: Connection, error: BaseException) -> BaseException:
    """Close a connection that is of no use any more, and return what its failure means."""
    if isinstance(error, UNREACHABLE):
        _terminate(connection)
        return Gone(str(error) or "it did not answer in time")
    if isinstance(error, (asyncio.CancelledError, *_LOST)):
        _terminate(connection)
    return error


def _terminate(connection: Connection) -> None:
    # One that the server closed has left the pool by itself.
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


class _Plain(asyncpg.Connection):
    """A connection that needs no cleaning between uses: nothing here changes its state. It saves a round trip."""

    def get_reset_query(self) -> str:
        """Return nothing to do."""
        return ""


async def connect(address: PostgresAddress, *, is_durable: bool = True) -> Any:
    """Make a connection outside of any pool; one that is not durable does not wait for the disk.

    Raises: OSError, TimeoutError, ValueError, asyncpg.InterfaceError, asyncpg.PostgresError.
    """
    driver: Any = asyncpg
    connection = await driver.connect(address.dsn, **_options(address))
    try:
        await begin_session(connection, address=address, is_durable=is_durable)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def begin_session(connection: Connection, *, address: PostgresAddress, is_durable: bool = True) -> None:
    """Set what all statements rely on: by a statement, as poolers refuse parameters that they do not know."""
    commit = "on" if is_durable else "off"
    sql = f"SET search_path TO {address.quoted_schema}; SET synchronous_commit TO {commit}; SET jit TO off"
    await connection.execute(sql, timeout=CONNECT_S)


def _options(address: PostgresAddress) -> dict[str, Any]:
    options: dict[str, Any] = {
        "timeout": CONNECT_S,
        "target_session_attrs": "primary",
        "server_settings": {"application_name": "treadle"},
    }
    return options if address.password is None else {**options, "password": address.password}


def closed(address: PostgresAddress) -> StoreError:
    """Say that a store was closed, or not opened yet."""
    return StoreError(f"the store {address.shown} is not open", code="store_closed")


def unavailable(address: PostgresAddress, why: object) -> StoreError:
    """Say that the database is away."""
    hint = "check that PostgreSQL runs and can be reached; Treadle tries again by itself"
    return StoreError(f"the store {address.shown} cannot be reached: {_clean(address, why)}", hint=hint)


def store_error(error: Exception, address: PostgresAddress) -> StoreError:
    """Say in words what PostgreSQL's error means for the database at `address`."""
    for kind, code, what, hint in _FAILURES:
        if isinstance(error, kind):
            text = f"the store {address.shown}: {what} ({_clean(address, error)})"
            return StoreError(text, code=code, hint=hint or _CREDENTIALS)
    if isinstance(error, UNREACHABLE):
        return unavailable(address, error)
    return StoreError(
        f"the store {address.shown}: PostgreSQL failed ({_clean(address, error)})", hint="see the message"
    )


def constraint_error(error: Exception) -> TreadleError | None:
    """Say in words which rule of the schema a write would have broken; None for any other error."""
    match error:
        case asyncpg.ForeignKeyViolationError():
            return NotFound("the run, the previous run or the session that this refers to is not in the store")
        case asyncpg.UniqueViolationError(constraint_name="runs_idempotency"):
            return Conflict("the idempotency key belongs to another run", code=IDEMPOTENCY_KEY_TAKEN)
        case asyncpg.UniqueViolationError(constraint_name="leases_session"):
            return Conflict("A run of this session is still going on.", code=SESSION_BUSY, param="session")
        case asyncpg.UniqueViolationError():
            return Conflict(f"the journal holds this already: {error}")
        case asyncpg.DataError():
            return ProtocolError(f"a value cannot be kept: {error}")
        case asyncpg.NotNullViolationError() | asyncpg.ProgramLimitExceededError():
            return ProtocolError(f"a field is missing, or too long to be looked up: {error}")
        case _:
            return None


def _clean(address: PostgresAddress, why: object) -> str:
    text = str(why)
    for secret in address.secrets:
        text = text.replace(secret, "***")
    return text
