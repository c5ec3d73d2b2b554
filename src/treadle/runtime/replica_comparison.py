"""Compares the processes that share a journal, and reports differences before a client meets them.

Each process writes a heartbeat row with its facts, and reads those of the others every few seconds. A process with a
different secret is not ready: it could verify no key or login of the others. Different tools, routes, counters and
versions are only logged and counted, because a rolling upgrade has them for a while.
"""

import asyncio
import hashlib
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from urllib.parse import urlsplit

import msgspec

from treadle.config import Settings
from treadle.core.errors import StoreError, TreadleError
from treadle.core.run_endings import INTERNAL
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import ServerTool, essence
from treadle.journal.journal_interface import Store
from treadle.journal.replicas_interface import ReplicaRow
from treadle.telemetry import Metrics

log = logging.getLogger("treadle.replicas")

BEAT_S = 5.0
ALONE_BEAT_S = 10.0
"""How often a process without replicas writes its heartbeat, for `treadle doctor` and the next process to start."""
IDLE_BEAT_S = 3_600.0
"""The same on a local journal: an idle laptop should not write to its disk."""
LIVING_S = 15.0
"""How long a process without heartbeat counts as alive: as long as its leases last."""
FORGET_S = 86_400.0
NAMES_MAX = 8
"""How many names of a difference are shown."""
KINDS: tuple[str, ...] = ("secret", "tools", "routes", "rates", "version")
KINDS_OF_LOCAL: tuple[str, ...] = ("secret", "version")
"""The kinds that a process without clients is compared in."""
OTHER_SECRET = "TREADLE_SECRET is another one than that of {who}: keys and logins made there are refused here"
OTHER_KEYS = "TREADLE_SECRET is not the one under which the keys of this journal were made"
SECRET_HINT = "set TREADLE_SECRET to the same text for every process; a new key made with it also settles this"


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is compared between processes; everything that could be secret is a fingerprint.

    `tools` are names with effect, source and a fingerprint of the schema, `routes` decide which upstream serves a
    model. `is_local` is a process without clients, such as a terminal chat.
    """

    version: str = ""
    secret: str = ""
    rates: str = ""
    tools: dict[str, str] = {}
    routes: dict[str, str] = {}
    is_local: bool = False


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A process on the journal, with its differences from this one by kind."""

    owner: str
    version: str
    started_at: float
    silent_s: float
    is_self: bool = False
    differs: dict[str, tuple[str, ...]] = {}


def facts_of(settings: Settings, tools: Iterable[ServerTool], secret: str, *, is_local: bool = False) -> Facts:
    """Return the facts of a process with these settings; `secret` is the fingerprint of its secret."""
    routes = {f"upstream {each.name}": each for each in settings.upstream}
    routes_and_default = {
        **{name: _fingerprint((each.protocol, _address(each.base_url), each.models)) for name, each in routes.items()},
        **{f"route {n} {each.model}": _fingerprint(each) for n, each in enumerate(settings.route)},
        "default model": settings.model,
    }
    return Facts(
        version=version("treadle"),
        secret=secret,
        rates=_fingerprint(_address(settings.rates.url)) if settings.rates.url else "",
        tools={tool.name: _describe(tool) for tool in tools},
        routes=routes_and_default,
        is_local=is_local,
    )


def _describe(tool: ServerTool) -> str:
    schema = _fingerprint((tool.spec.description, tool.spec.parameters))
    return f"{essence(tool.name, tool.policy, tool.source)} {schema}"


def differences(here: Facts, there: Facts) -> dict[str, tuple[str, ...]]:
    """Return the differences of two processes: the names of what differs, by kind."""
    found: dict[str, tuple[str, ...]] = {
        "tools": _different_names(here.tools, there.tools),
        "routes": _different_names(here.routes, there.routes),
        "rates": ("rates.url",) if here.rates != there.rates else (),
        "version": (there.version,) if here.version != there.version else (),
        # A process without key authentication has no secret to compare.
        "secret": ("TREADLE_SECRET",) if here.secret and there.secret and here.secret != there.secret else (),
    }
    # Clients never use the tools and routes of a terminal chat: only servers have to agree in them.
    kinds = KINDS_OF_LOCAL if here.is_local or there.is_local else KINDS
    return {kind: found[kind] for kind in kinds if found[kind]}


class Replicas:
    """This process among those on its journal."""

    def __init__(
        self, store: Store, clock: Clock, metrics: Metrics, owner: str, read_facts: Callable[[str], Facts]
    ) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._read_facts = read_facts
        self._secret = ""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._logged: set[tuple[str, str]] = set()
        self._last: tuple[Facts, float] | None = None
        self._written_at = 0.0
        self._alone_s = IDLE_BEAT_S
        self._problem = ""
        self._failing = ""
        self.seen: tuple[Replica, ...] = ()
        self._others: dict[str, Facts] = {}
        metrics.show("treadle_replicas", "Processes that share the journal, this one included.", lambda: len(self.seen))
        metrics.show_differences(self._count_differences)

    async def open(self) -> None:
        """Write the first heartbeat, and continue in the background."""
        await self._beat_and_log()
        self._task = asyncio.create_task(self._beat_forever(), name="treadle-replicas")

    async def close(self) -> None:
        """Stop, and remove the heartbeat."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        try:
            await self._store.replicas.leave(self._owner)
        except TreadleError as error:
            log.warning("a replica that leaves is still listed: %s", error.message, extra={"code": error.info.code})

    @property
    def problem(self) -> StoreError | None:
        """Return why this process must not serve next to the others; None if it may."""
        return StoreError(self._problem, code="store_secret", hint=SECRET_HINT) if self._problem else None

    def set_secret(self, fingerprint: str) -> None:
        """Set the fingerprint of the secret that keys and logins are verified with."""
        self._secret = fingerprint
        self.compare_soon()

    def compare_soon(self) -> None:
        """Write a heartbeat soon, because the facts of this process changed."""
        self._changed.set()

    def are_tools_elsewhere(self, tools: Iterable[str]) -> bool:
        """Return whether one other process has all of these tools, each in the form of `essence`."""
        wanted = {*tools}
        found = [{each.rpartition(" ")[0] for each in facts.tools.values()} for facts in self._others.values()]
        return any(wanted <= each for each in found)

    async def _beat_forever(self) -> None:
        while True:
            sleeping = asyncio.ensure_future(self._clock.sleep(BEAT_S))
            changing = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((sleeping, changing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                changing.cancel()
            self._changed.clear()
            await self._beat_and_log()

    async def _beat_and_log(self) -> None:
        """Compare once; log when that starts to fail, and when it works again."""
        try:
            await self.beat()
        except TreadleError as error:
            self._note_failure(error.info.code, error.message)
        except Exception as error:  # an unexpected error must not end the loop: no one would notice
            if self._failing != INTERNAL.code:
                log.exception("replicas not compared")
            self._note_failure(INTERNAL.code, str(error))
        else:
            if self._failing:
                log.warning("replicas are compared again")
            self._failing = ""

    def _note_failure(self, code: str, why: str) -> None:
        if code != self._failing:
            log.warning("replicas not compared: %s", why, extra={"code": code})
        self._failing = code

    async def beat(self) -> None:
        """Write the heartbeat, compare with the others, and log new differences.

        Raises: StoreError.
        """
        here = self._read_facts(self._secret)
        replicas = self._store.replicas
        last = self._last
        # A process that is alone and unchanged writes less often, just enough to be known as alive.
        if last is None:
            self._alone_s = IDLE_BEAT_S if await self._store.server_time() is None else ALONE_BEAT_S
        is_due = self._clock.monotonic() - self._written_at >= self._alone_s
        if last is None or last[0] != here or self._others or is_due:
            self._written_at = self._clock.monotonic()
            text = msgspec.json.encode(here).decode()
            last = self._last = here, await replicas.beat(self._owner, text, forget_s=FORGET_S)
        rows = [row for row in await replicas.living(LIVING_S) if row.owner != self._owner]
        was_alone = not self._others
        self._others = {row.owner: _read(row) for row in rows}
        itself = Replica(owner=self._owner, version=here.version, started_at=last[1], silent_s=0.0, is_self=True)
        others = [self._compared(here, row) for row in rows]
        self.seen = tuple(sorted((itself, *others), key=lambda each: (each.started_at, each.owner)))
        if was_alone and rows:
            self.compare_soon()
        self._check_secret(here, await replicas.secrets() if here.secret else frozenset())
        self._log_differences()

    def _compared(self, here: Facts, row: ReplicaRow) -> Replica:
        facts = self._others[row.owner]
        return Replica(
            owner=row.owner,
            version=facts.version,
            started_at=row.started_at,
            silent_s=max(0.0, row.silent_s),
            differs=differences(here, facts),
        )

    def _check_secret(self, here: Facts, proved: frozenset[str]) -> None:
        """Refuse a secret that no key of the journal was made with, or that differs from an earlier process's."""
        problem = ""
        if here.secret and proved and here.secret not in proved:
            problem = OTHER_KEYS
        elif here.secret:
            # The first process keeps serving, whichever secret is right: to change it, stop the old processes.
            earlier = itertools.takewhile(lambda each: not each.is_self, self.seen)
            # A process whose secret made no key is itself the wrong one, even if it was first.
            others = (each.owner for each in earlier if "secret" in each.differs)
            other = next((each for each in others if not proved or self._others[each].secret in proved), None)
            problem = "" if other is None else OTHER_SECRET.format(who=other)
        if problem and problem != self._problem:
            log.error("not ready: %s; %s", problem, SECRET_HINT, extra={"code": "store_secret"})
        elif self._problem and not problem:
            log.warning("the secret is that of the others now")
        self._problem = problem

    def _log_differences(self) -> None:
        """Log every difference once, for as long as it lasts."""
        there = {(each.owner, kind): names for each in self.seen for kind, names in each.differs.items()}
        for (owner, kind), names in there.items():
            if (owner, kind) not in self._logged:
                about = {"replica": owner, "kind": kind, "names": ", ".join(names)}
                log.warning("replicas differ in %s: %s (%s)", kind, about["names"], owner, extra=about)
        self._logged = set(there)

    def _count_differences(self) -> Mapping[str, float]:
        counts: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        for each in self.seen:
            for kind in each.differs:
                counts[kind] += 1
        return counts


def _read(row: ReplicaRow) -> Facts:
    """Return the facts of another process; empty if a newer version writes them differently."""
    try:
        return msgspec.json.decode(row.facts, type=Facts)
    except msgspec.MsgspecError:
        return Facts()


def _different_names(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    names: Sequence[str] = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    more = len(names) - NAMES_MAX
    return tuple(names) if more <= 0 else (*names[:NAMES_MAX], f"and {more} more")


def _address(url: str) -> str:
    """Return a URL without credentials and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _fingerprint(value: object) -> str:
    """Return a short fingerprint, enough to detect a difference."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]
