"""The processes of one journal, compared: what one of them has and another lacks is said before a client meets it.

Each keeps a row with what it is and has, and reads those of the others every few seconds. Another secret is refused:
no key and no login of the others is known here then. Other tools, routes, counters and versions are only logged and
counted: a rolling upgrade has them for a while.
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
"""How often a process that is alone says that it is there: `treadle doctor` and the next to start look for it."""
IDLE_BEAT_S = 3_600.0
"""The same where all processes are on one machine: an idle journal on a laptop is left in peace."""
LIVING_S = 15.0
"""For how long a process that says nothing is taken to be there: as long as its leases last."""
FORGET_S = 86_400.0
NAMES_MAX = 8
"""How many names a difference shows."""
KINDS: tuple[str, ...] = ("secret", "tools", "routes", "rates", "version")
KINDS_OF_LOCAL: tuple[str, ...] = ("secret", "version")
"""In what a process without clients is compared."""
OTHER_SECRET = "TREADLE_SECRET is another one than that of {who}: keys and logins made there are refused here"
OTHER_KEYS = "TREADLE_SECRET is not the one under which the keys of this journal were made"
SECRET_HINT = "set TREADLE_SECRET to the same text for every process; a new key made with it also settles this"


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process is and has. Everything that could be secret is there as a fingerprint only.

    `tools` are names with effect, source and a fingerprint of the schema, `routes` decide who answers for a model.
    `is_local` is a process without clients, such as a chat: its tools and routes serve the person in front of it.
    """

    version: str = ""
    secret: str = ""
    rates: str = ""
    tools: dict[str, str] = {}
    routes: dict[str, str] = {}
    is_local: bool = False


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """Another process as this one sees it: in what they differ, by kind, with names."""

    owner: str
    version: str
    started_at: float
    silent_s: float
    is_self: bool = False
    differs: dict[str, tuple[str, ...]] = {}


def facts_of(settings: Settings, tools: Iterable[ServerTool], secret: str, *, is_local: bool = False) -> Facts:
    """Return what a process with these settings is and has; `secret` is the fingerprint of its secret."""
    routes = {f"upstream {each.name}": each for each in settings.upstream}
    ways = {
        **{name: _print((each.protocol, _place(each.base_url), each.models)) for name, each in routes.items()},
        **{f"route {n} {each.model}": _print(each) for n, each in enumerate(settings.route)},
        "default model": settings.model,
    }
    return Facts(
        version=version("treadle"),
        secret=secret,
        rates=_print(_place(settings.rates.url)) if settings.rates.url else "",
        tools={tool.name: _describe(tool) for tool in tools},
        routes=ways,
        is_local=is_local,
    )


def _describe(tool: ServerTool) -> str:
    schema = _print((tool.spec.description, tool.spec.parameters))
    return f"{essence(tool.name, tool.policy, tool.source)} {schema}"


def differences(here: Facts, there: Facts) -> dict[str, tuple[str, ...]]:
    """Return in what two processes differ, by kind, with the names of what is different."""
    found: dict[str, tuple[str, ...]] = {
        "tools": _unlike(here.tools, there.tools),
        "routes": _unlike(here.routes, there.routes),
        "rates": ("rates.url",) if here.rates != there.rates else (),
        "version": (there.version,) if here.version != there.version else (),
        # A process that asks for no key has no secret to compare.
        "secret": ("TREADLE_SECRET",) if here.secret and there.secret and here.secret != there.secret else (),
    }
    # No client meets the tools and routes of a chat: only servers have to be alike in them.
    kinds = KINDS_OF_LOCAL if here.is_local or there.is_local else KINDS
    return {kind: found[kind] for kind in kinds if found[kind]}


class Replicas:
    """This process among those of its journal."""

    def __init__(self, store: Store, clock: Clock, metrics: Metrics, owner: str, look: Callable[[str], Facts]) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self._look = look
        self._secret = ""
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._told: set[tuple[str, str]] = set()
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
        """Begin to be seen, and to look at others."""
        await self._try()
        self._task = asyncio.create_task(self._keep_beating(), name="treadle-replicas")

    async def close(self) -> None:
        """Be seen no more."""
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
        """Return why this process must not serve beside the others; None where it may."""
        return StoreError(self._problem, code="store_secret", hint=SECRET_HINT) if self._problem else None

    def set_secret(self, fingerprint: str) -> None:
        """Compare from now on by the fingerprint of the secret that keys and logins are proved with."""
        self._secret = fingerprint
        self.look_again()

    def look_again(self) -> None:
        """Tell the others soon what this process has now."""
        self._changed.set()

    def have(self, tools: Iterable[str]) -> bool:
        """Tell whether one of the others has all of these tools, each as `essence` writes it."""
        wanted = {*tools}
        found = [{each.rpartition(" ")[0] for each in facts.tools.values()} for facts in self._others.values()]
        return any(wanted <= each for each in found)

    async def _keep_beating(self) -> None:
        while True:
            sleeping = asyncio.ensure_future(self._clock.sleep(BEAT_S))
            changing = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait((sleeping, changing), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                changing.cancel()
            self._changed.clear()
            await self._try()

    async def _try(self) -> None:
        """Be seen and look, and log when that begins to fail, and when it works again."""
        try:
            await self.beat()
        except TreadleError as error:
            self._note_failure(error.info.code, error.message)
        except Exception as error:  # one look must not be the last: nobody would notice that there are none any more
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
        """Be seen, look at the others, and say what is new of them.

        Raises: StoreError.
        """
        here = self._look(self._secret)
        kept = self._store.replicas
        last = self._last
        # A process that is alone and the same as before need not write each time, but it must be known to be alive.
        if last is None:
            self._alone_s = IDLE_BEAT_S if await self._store.server_time() is None else ALONE_BEAT_S
        is_due = self._clock.monotonic() - self._written_at >= self._alone_s
        if last is None or last[0] != here or self._others or is_due:
            self._written_at = self._clock.monotonic()
            text = msgspec.json.encode(here).decode()
            last = self._last = here, await kept.beat(self._owner, text, forget_s=FORGET_S)
        rows = [row for row in await kept.living(LIVING_S) if row.owner != self._owner]
        was_alone = not self._others
        self._others = {row.owner: _read(row) for row in rows}
        itself = Replica(owner=self._owner, version=here.version, started_at=last[1], silent_s=0.0, is_self=True)
        others = [self._compared(here, row) for row in rows]
        self.seen = tuple(sorted((itself, *others), key=lambda each: (each.started_at, each.owner)))
        if was_alone and rows:
            self.look_again()
        self._judge_secret(here, await kept.secrets() if here.secret else frozenset())
        self._tell()

    def _compared(self, here: Facts, row: ReplicaRow) -> Replica:
        facts = self._others[row.owner]
        return Replica(
            owner=row.owner,
            version=facts.version,
            started_at=row.started_at,
            silent_s=max(0.0, row.silent_s),
            differs=differences(here, facts),
        )

    def _judge_secret(self, here: Facts, proved: frozenset[str]) -> None:
        """Refuse a secret that no key of the journal was made under, or another one than of who was there before."""
        problem = ""
        if here.secret and proved and here.secret not in proved:
            problem = OTHER_KEYS
        elif here.secret:
            # Who came first stays, whichever is right: what is changed is changed by stopping the old ones.
            earlier = itertools.takewhile(lambda each: not each.is_self, self.seen)
            # One whose secret no key was proved under is itself the odd one, however early it came.
            others = (each.owner for each in earlier if "secret" in each.differs)
            other = next((each for each in others if not proved or self._others[each].secret in proved), None)
            problem = "" if other is None else OTHER_SECRET.format(who=other)
        if problem and problem != self._problem:
            log.error("not ready: %s; %s", problem, SECRET_HINT, extra={"code": "store_secret"})
        elif self._problem and not problem:
            log.warning("the secret is that of the others now")
        self._problem = problem

    def _tell(self) -> None:
        """Log every difference once, for as long as it lasts."""
        there = {(each.owner, kind): names for each in self.seen for kind, names in each.differs.items()}
        for (owner, kind), names in there.items():
            if (owner, kind) not in self._told:
                about = {"replica": owner, "kind": kind, "names": ", ".join(names)}
                log.warning("replicas differ in %s: %s (%s)", kind, about["names"], owner, extra=about)
        self._told = set(there)

    def _count_differences(self) -> Mapping[str, float]:
        counts: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        for each in self.seen:
            for kind in each.differs:
                counts[kind] += 1
        return counts


def _read(row: ReplicaRow) -> Facts:
    """Return what a process says of itself; a newer one may say it otherwise."""
    try:
        return msgspec.json.decode(row.facts, type=Facts)
    except msgspec.MsgspecError:
        return Facts()


def _unlike(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    names: Sequence[str] = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
    more = len(names) - NAMES_MAX
    return tuple(names) if more <= 0 else (*names[:NAMES_MAX], f"and {more} more")


def _place(url: str) -> str:
    """Return an address without who connects to it, and without what else could be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _print(value: object) -> str:
    """Return a fingerprint: enough to see that two things are not the same."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]
