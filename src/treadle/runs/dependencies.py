"""The dependencies and options of the run service."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from treadle.core.ids import IdSource
from treadle.core.journal_entries import Entry
from treadle.core.shared_ports import Clock
from treadle.core.tool_definitions import ServerTool
from treadle.core.usage import Usage
from treadle.engine.limits import GATEWAY_LIMITS, Limits
from treadle.engine.ports import Approver, Model, Toolbox
from treadle.engine.run_loop import Ports
from treadle.journal.journal_interface import RunRow, Store
from treadle.runs.approvals.bound_toolbox import BoundToolbox
from treadle.runs.approvals.durable_approver import DenyAll
from treadle.runs.response_cache import CacheRules
from treadle.runs.runners.runner_interface import RunDriver
from treadle.runs.runners.store_runners import LocalRunner
from treadle.runs.tool_offers import OfferRules
from treadle.telemetry import Metrics
from treadle.telemetry.run_observer import Tracer


class ModelProvider(Protocol):
    """Finds a model by name."""

    def model_for(self, name: str) -> Model:
        """Return the model.

        Raises: NotFound, naming what there is.
        """
        ...


class ToolProvider(Protocol):
    """The server tools of this process."""

    def tools(self) -> Sequence[ServerTool]:
        """Return the enabled tools in a stable order; the object is replaced when they change."""
        ...


class Quotas(Protocol):
    """Charges each run against the rates, run limits and budgets of its key."""

    async def take(self, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None) -> None:
        """Admit a run beside the active ones of its key, and reserve what it may use; `entries` are its input.

        Raises: Exhausted, StoreError.
        """
        ...

    def release(self, row: RunRow) -> None:
        """Release the reservation of a run that was not started."""
        ...

    async def maintain(self) -> None:
        """Renew the admissions of active runs, and charge what could not be charged before; raise nothing."""
        ...

    def enter(self, row: RunRow) -> None:
        """Count a run that is driven in this process."""
        ...

    def record_usage(self, row: RunRow, usage: Usage | None) -> None:
        """Record the usage of a run when its end is published."""
        ...

    async def settle(self, row: RunRow) -> None:
        """Charge its recorded usage, now or soon; raise nothing."""
        ...

    def leave(self, row: RunRow) -> None:
        """Stop counting the run."""
        ...


class NoQuotas:
    """Admits every run and charges nothing. Fits `Quotas`."""

    async def take(self, row: RunRow, entries: Sequence[Entry], output_tokens_max: int | None) -> None:
        """Admit the run."""

    def release(self, row: RunRow) -> None:
        """Do nothing."""

    async def maintain(self) -> None:
        """Do nothing."""

    def enter(self, row: RunRow) -> None:
        """Count nothing."""

    def record_usage(self, row: RunRow, usage: Usage | None) -> None:
        """Count nothing."""

    async def settle(self, row: RunRow) -> None:
        """Do nothing."""

    def leave(self, row: RunRow) -> None:
        """Count nothing."""


class RunsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the run service. `defers_approvals` ends a Responses run instead of waiting for an approval."""

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
        """Return the limits of a run that defers approvals, or that runs in the background."""
        limits = self.limits
        if defers:
            limits = msgspec.structs.replace(limits, approvals="defer")
        if background and limits.wall_s is not None:
            limits = msgspec.structs.replace(limits, wall_s=self.background_wall_s)
        return limits


def _not_elsewhere(tools: Iterable[str]) -> bool:
    return False


class RunDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the runs of a process need."""

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
    """Returns whether another process has all of these tools, each as `core.tool_definitions.essence` writes it."""


class RunOverrides(msgspec.Struct, frozen=True, kw_only=True):
    """What one run uses in place of the shared dependencies: another model, or tools of its own and their toolbox.

    Such tools do not survive a crash, and a run that offers a guest's tools is then ended. `allowed` narrows the server
    tools to those whose name or source matches a pattern, in addition to what the route of the model allows.
    """

    model: Model | None = None
    tools: ToolProvider | None = None
    toolbox: Toolbox | None = None
    allowed: tuple[str, ...] | None = None

    @property
    def is_movable(self) -> bool:
        """Return whether another process could drive the run: it uses nothing that only this process has."""
        return self.model is None and self.tools is None and self.toolbox is None


NO_OVERRIDES = RunOverrides()


def ports_of(
    deps: RunDependencies,
    model: Model,
    sources: Mapping[str, str],
    instead: RunOverrides = NO_OVERRIDES,
    known: Sequence[ServerTool] | None = None,
) -> Ports:
    """Return the ports of a loop with this model.

    `sources` maps the offered tools to where they came from; `known` are the tools of this process, if the offers were
    made from them just now.
    """
    toolbox = instead.toolbox or deps.toolbox
    if sources:
        toolbox = BoundToolbox(toolbox, instead.tools or deps.tools, sources, known)
    return Ports(model=model, toolbox=toolbox, clock=deps.clock, approver=deps.approver, ids=deps.ids)
