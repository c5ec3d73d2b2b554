"""What the runs of a process are made with: the rooms below, and how they are used here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.core.ids import IdSource
from treadle.core.journal_entries import Entry
from treadle.core.tool_definitions import ServerTool
from treadle.core.usage import Usage
from treadle.engine.limits import GATEWAY_LIMITS, Limits
from treadle.engine.ports import Approver, Clock, Model, Toolbox
from treadle.engine.run_loop import Ports
from treadle.journal.journal_interface import RunRow, Store
from treadle.runs.approvals.bound_toolbox import BoundToolbox
from treadle.runs.approvals.unattended import DenyAll
from treadle.runs.response_cache import CacheRules
from treadle.runs.runners.local_runner import LocalRunner
from treadle.runs.runners.runner_interface import RunDriver
from treadle.runs.tool_offers import OfferRules
from treadle.telemetry import Metrics
from treadle.telemetry.run_observer import Tracer


class ModelProvider(Protocol):
    """Finds the model that answers to a name."""

    def model_for(self, name: str) -> Model:
        """Return the model.

        Raises: NotFound, naming what there is.
        """
        ...


class ToolProvider(Protocol):
    """The server tools of this process."""

    def tools(self) -> Sequence[ServerTool]:
        """Return the enabled tools in a stable order: another object once they are others."""
        ...


class Quotas(Protocol):
    """Counts the runs of each key, and what they use."""

    async def take(self, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None) -> None:
        """Take a place for a run beside those that go on, and reserve what it may use; `entries` are its input.

        Raises: Exhausted, StoreError.
        """
        ...

    def release(self, row: RunRow) -> None:
        """Give back what was reserved for a run that is not begun after all."""
        ...

    async def maintain(self) -> None:
        """Keep the places of runs that go on, and charge what was left uncharged; raise nothing."""
        ...

    def enter(self, row: RunRow) -> None:
        """Count a run that goes on here."""
        ...

    def record_usage(self, row: RunRow, usage: Usage | None) -> None:
        """Count what a run used, at the moment its end is told."""
        ...

    async def settle(self, row: RunRow) -> None:
        """Write down what it used, now or soon, if its end was told; raise nothing."""
        ...

    def leave(self, row: RunRow) -> None:
        """Count it out."""
        ...


class NoQuotas:
    """Counts nothing. Fits `Quotas`."""

    async def take(self, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None) -> None:
        """Let every run begin."""

    def release(self, row: RunRow) -> None:
        """Give back nothing."""

    async def maintain(self) -> None:
        """Keep nothing."""

    def enter(self, row: RunRow) -> None:
        """Count nothing."""

    def record_usage(self, row: RunRow, usage: Usage | None) -> None:
        """Count nothing."""

    async def settle(self, row: RunRow) -> None:
        """Charge nobody."""

    def leave(self, row: RunRow) -> None:
        """Count nothing."""


class RunsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How runs are made here. `defers_approvals` ends a run of the Responses API where it would wait for a person."""

    owner: str = "treadle"
    persistence: bool = True
    default_model: str = ""
    limits: Limits = GATEWAY_LIMITS
    offers: OfferRules = OfferRules()
    lease_s: float = 15.0
    unstored_s: float = 3600.0
    keep_s: float | None = None
    background_wall_s: float = 86_400.0
    shares_live_events: bool = True
    defers_approvals: bool = True
    cache: CacheRules | None = None

    def limits_of(self, *, defers: bool, background: bool) -> Limits:
        """Return the limits of a run that ends where it would wait for a person, or that goes on in the background."""
        limits = self.limits
        if defers:
            limits = msgspec.structs.replace(limits, approvals="defer")
        if background and limits.wall_s is not None:
            limits = msgspec.structs.replace(limits, wall_s=self.background_wall_s)
        return limits


def _not_elsewhere(tools: Iterable[str]) -> bool:
    return False


class RunDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a process are made with."""

    store: Store
    models: ModelProvider
    tools: ToolProvider
    toolbox: Toolbox
    clock: Clock
    ids: IdSource
    metrics: Metrics
    approver: Approver = DenyAll()
    quotas: Quotas = NoQuotas()
    runner: RunDriver = LocalRunner()
    tracer: Tracer | None = None
    elsewhere: Callable[[Iterable[str]], bool] = _not_elsewhere
    """Tells whether another process has all of these tools, each as `core.tool_definitions.essence` writes it."""


class RunOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """What one run is made with instead of what all others are: another model, or tools of its own and who runs them.

    After a crash such tools are gone, and a run that offers a guest's is ended. `allowed` narrows the server tools to
    those whose name or source fits one of its patterns, beside what the route of the model allows.
    """

    model: Model | None = None
    tools: ToolProvider | None = None
    toolbox: Toolbox | None = None
    allowed: tuple[str, ...] | None = None

    @property
    def is_movable(self) -> bool:
        """Return whether another process could make the run again: it has nothing that only this one has."""
        return self.model is None and self.tools is None and self.toolbox is None


NO_OVERRIDES = RunOverrides()


def ports_of(
    rooms: RunDependencies,
    model: Model,
    sources: Mapping[str, str],
    instead: RunOverrides = NO_OVERRIDES,
    known: Sequence[ServerTool] | None = None,
) -> Ports:
    """Return what a loop with this model reaches the world through; `sources` are where its tools were offered from,
    `known` those that were there, if all of them were chosen now, also for calls that are carried on."""
    toolbox = instead.toolbox or rooms.toolbox
    if sources:
        toolbox = BoundToolbox(toolbox, instead.tools or rooms.tools, sources, known)
    return Ports(model=model, toolbox=toolbox, clock=rooms.clock, approver=rooms.approver, ids=rooms.ids)
