"""The plan of a live run: its samples, and an upper bound of their cost, printed before any request."""

from collections.abc import Mapping, Sequence

import msgspec

from treadle.core.errors import ConfigError
from treadle.evals.distractor_tools import distractors
from treadle.evals.live.prices import EvalPrice
from treadle.evals.live.spending_ledger import TOKEN_BYTES
from treadle.evals.scenario_file import Scenario
from treadle.evals.scenario_tools import Toolkit

STRATEGIES = ("bare", "repair", "full")
"""No repair and no quirks; only what helps with any model; everything that is configured."""


RESULT_BYTES = 600
"""What a tool of the toolkit gives at most, where its world does not make it more."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One sample to be made."""

    model: str
    strategy: str
    scenario: Scenario
    trial: int

    @property
    def key(self) -> str:
        """Return the name of the sample in the run."""
        return f"{self.model}.{self.strategy}.{self.scenario.id}.{self.trial}"


class LivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a live run will do."""

    models: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    trials: int = 1
    strategies: tuple[str, ...] = ("full",)
    attempts: int = 3
    output_tokens_max: int = 2_048
    prices: Mapping[str, EvalPrice] = {}

    def work(self) -> list[Work]:
        """Return all samples: each trial of everything before the next, so that a run that stops early is even."""
        return [
            Work(model=model, strategy=strategy, scenario=scenario, trial=trial)
            for trial in range(1, self.trials + 1)
            for scenario in self.scenarios
            for model in self.models
            for strategy in self.strategies
        ]

    def requests_max(self, scenario: Scenario) -> int:
        """Return how many model calls one attempt at a scenario can make."""
        return len(scenario.turn) * (scenario.limits.max_iterations + 1)

    def usd_max(self, work: Sequence[Work]) -> float | None:
        """Return what the samples can cost at most, every attempt used; None where a price is not known."""
        if any(each.model not in self.prices for each in work):
            return None
        return sum(self._sample_usd(each) * self.attempts for each in work)

    def _sample_usd(self, work: Work) -> float:
        """Bound one attempt: each request holds the tools, and everything that was said and given before it."""
        scenario, price = work.scenario, self.prices[work.model]
        requests = self.requests_max(scenario)
        limits = scenario.limits
        fixed = _prompt_bytes(scenario) // TOKEN_BYTES
        results = limits.max_total_tool_calls * _result_bytes(scenario) // TOKEN_BYTES
        said = self.output_tokens_max * requests // 2
        input_tokens = requests * (fixed + results + said)
        return price.cost(input_tokens, requests * self.output_tokens_max)


def _prompt_bytes(scenario: Scenario) -> int:
    toolkit = Toolkit(scenario.world)
    tools = [*toolkit.tools(scenario.tools), *toolkit.canned(scenario.tool), *distractors(scenario.distractors)]
    specs = sum(len(msgspec.json.encode(tool.spec)) for tool in tools)
    return specs + len(scenario.instructions) + sum(len(turn.user.encode()) for turn in scenario.turn)


def _result_bytes(scenario: Scenario) -> int:
    """Return what one result can weigh: what is canned, what is in files, a page of the log, else a few lines."""
    sizes = [RESULT_BYTES, *(len(text) for text in scenario.world.files.values())]
    sizes += [len(each.output) + len(each.error or "") for tool in scenario.tool for each in tool.results]
    if "log.read" in scenario.tools:
        sizes.append(scenario.limits.max_tool_output_bytes)
    return min(max(sizes), scenario.limits.max_tool_output_bytes)


def check_plan(plan: LivePlan, *, budget_usd: float | None) -> None:
    """Refuse a plan that cannot be kept.

    Raises: ConfigError, saying what is missing.
    """
    if not plan.models:
        raise ConfigError(
            "no model is named", param="models", hint="--models A,B, or OPENROUTER_API_KEY and OPENROUTER_MODEL(S)"
        )
    if not plan.scenarios:
        raise ConfigError("no live scenario fits", param="scenarios", hint='live ones have the tag "live"')
    if unknown := [name for name in plan.strategies if name not in STRATEGIES]:
        raise ConfigError(f"there is no strategy {unknown[0]!r}", param="strategies", hint=", ".join(STRATEGIES))
    unpriced = [model for model in plan.models if model not in plan.prices]
    if budget_usd is not None and unpriced:
        raise ConfigError(
            f"--budget-usd cannot be kept: the price of {', '.join(unpriced)} is not known",
            param="budget_usd",
            hint="name it: --price MODEL=INPUT/OUTPUT, in USD for a million tokens",
        )


def write_plan(plan: LivePlan, work: Sequence[Work], *, budget_usd: float | None, requests_max: int | None) -> str:
    """Write what will be done at most."""
    requests = sum(plan.requests_max(each.scenario) for each in work) * plan.attempts
    usd = plan.usd_max(work)
    lines = [
        f"{len(plan.models)} models × {len(plan.scenarios)} scenarios × {plan.trials} trials × "
        f"{len(plan.strategies)} strategies: {len(work)} samples to make",
        f"at most {requests} requests{'' if requests_max is None else f', stopping at {requests_max}'}; "
        + ("the price is not known" if usd is None else f"at most {usd:.2f} USD")
        + ("" if budget_usd is None else f", stopping at {budget_usd:.2f} USD"),
    ]
    lines += [
        f"  {model}: " + (f"{price.input_usd:g}/{price.output_usd:g} USD for a million tokens" if price else "no price")
        for model in plan.models
        for price in [plan.prices.get(model)]
    ]
    return "\n".join([*lines, ""])
