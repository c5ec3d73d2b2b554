"""The plan, the prices and the ledger: what a run may cost is known before, and kept."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from treadle.core.errors import BrokenStream, ConfigError, ErrorInfo, UpstreamError
from treadle.core.events import Finished, ModelEvent
from treadle.core.items import text_message
from treadle.core.plan import Plan
from treadle.core.request import Note
from treadle.core.usage import Usage
from treadle.evals.live.prices import EvalPrice, read_listing, read_price
from treadle.evals.live.quirk_detection import REFUSALS, Detected, symptoms_of, write_detected
from treadle.evals.live.sample_plan import LivePlan, check_plan, write_plan
from treadle.evals.live.spending_ledger import Metered, SpendingLedger, is_transport
from treadle.evals.scenario_file import find_scenarios, load_scenario
from treadle.providers.quirk_table import QUIRKS

SCENARIOS = tuple(load_scenario(path) for path in find_scenarios() if path.stem in ("select_one", "state_mind"))
PRICE = EvalPrice(input_usd=1.0, output_usd=4.0)
PLAN = LivePlan(models=("a", "b"), scenarios=SCENARIOS, trials=3, prices={"a": PRICE, "b": PRICE})
ASKED = Plan(items=(text_message("user", "x" * 3000),), model="m")


def test_a_plan_makes_every_sample_once_trial_by_trial() -> None:
    """A run that stops early has seen every scenario as often as any other."""
    work = PLAN.work()
    assert len({each.key for each in work}) == len(work) == 12
    assert [each.trial for each in work] == [1] * 4 + [2] * 4 + [3] * 4
    assert work[0].key == f"a.full.{SCENARIOS[0].id}.1"


def test_the_bound_is_printed_with_the_price() -> None:
    """And what is not known is not guessed."""
    work = PLAN.work()
    usd = PLAN.usd_max(work)
    assert usd is not None
    text = write_plan(PLAN, work, budget_usd=2.0, requests_max=50)
    assert "2 models × 2 scenarios × 3 trials × 1 strategies: 12 samples" in text
    assert f"at most {usd:.2f} USD, stopping at 2.00 USD" in text
    assert "stopping at 50" in text
    unpriced = msgspec.structs.replace(PLAN, prices={"a": PRICE})
    assert unpriced.usd_max(work) is None
    assert "the price is not known" in write_plan(unpriced, work, budget_usd=None, requests_max=None)


def test_the_bound_holds_for_what_really_happens() -> None:
    """Every request of the longest run, its tools and all that was said before, costs no more."""
    work = [each for each in PLAN.work() if each.scenario.id == "select.one_tool"][:1]
    usd = PLAN.usd_max(work)
    assert usd is not None
    requests = PLAN.requests_max(work[0].scenario)
    assert usd >= PRICE.cost(requests * 500, requests * PLAN.output_tokens_max)


@pytest.mark.parametrize(
    ("changes", "budget", "message"),
    [
        ({"models": ()}, None, "no model is named"),
        ({"scenarios": ()}, None, "no live scenario fits"),
        ({"strategies": ("best",)}, None, "there is no strategy 'best'"),
        ({"prices": {"a": PRICE}}, 1.0, "the price of b is not known"),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(changes: dict[str, object], budget: float | None, message: str) -> None:
    """Each with what to do about it."""
    check_plan(PLAN, budget_usd=1.0)
    with pytest.raises(ConfigError, match=message) as caught:
        check_plan(msgspec.structs.replace(PLAN, **changes), budget_usd=budget)
    assert caught.value.info.hint


def test_prices_are_given_by_hand_or_read_from_a_list() -> None:
    """OpenRouter tells them for a token; what is odd is left out."""
    assert read_price("x/y:free=0.4/1.6") == ("x/y:free", EvalPrice(input_usd=0.4, output_usd=1.6))
    for bad in ("x", "x=1", "x=a/b", "=1/2", "x=-1/2"):
        with pytest.raises(ConfigError, match="is not MODEL=INPUT/OUTPUT"):
            read_price(bad)
    body = b"""{"data":[{"id":"m","pricing":{"prompt":"0.0000004","completion":"0.0000016"}},{"id":"n"},
      {"id":"o","pricing":{"prompt":"-1","completion":"0"}},{"pricing":{}},7]}"""
    assert {name: (price.input_usd, price.output_usd) for name, price in read_listing(body).items()} == {
        "m": (pytest.approx(0.4), pytest.approx(1.6))
    }
    assert (read_listing(b"<html>"), read_listing(b"[]"), PRICE.cost_of(None)) == ({}, {}, None)


class Said:
    """A model that tells a usage, or breaks."""

    def __init__(self, usage: Usage | None, error: UpstreamError | None = None) -> None:
        self._usage = usage
        self._error = error

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield one batch, or raise."""
        if self._error is not None:
            raise self._error
        yield [Finished(stop="done", usage=self._usage)]


async def heard(metered: Metered) -> list[ModelEvent]:
    """Hear one reply out."""
    return [event async for batch in metered.stream(ASKED, "r") for event in batch]


async def test_the_ledger_books_what_was_used_and_reserves_what_could_be() -> None:
    """A reply without usage costs what was reserved; a call that could go over is not made."""
    ledger = SpendingLedger(budget_usd=0.02)
    metered = Metered(Said(Usage(input_tokens=1000, output_tokens=500)), ledger, PRICE, 1000)
    await heard(metered)
    assert (ledger.requests, ledger.spent_usd) == (1, pytest.approx(0.003))
    silent = Metered(Said(None), ledger, PRICE, 1000)
    await heard(silent)
    assert silent.cost_usd is not None
    assert silent.cost_usd > 0.005
    while ledger.take(0.004):
        ledger.settle(0.004, None)
    with pytest.raises(UpstreamError, match="budget"):
        await heard(silent)
    assert ledger.is_exhausted
    assert ledger.spent_usd <= 0.02


async def test_a_broken_call_is_remembered_as_the_transports() -> None:
    """Whether it may be tried again is told by its code and status."""
    metered = Metered(Said(None, BrokenStream("gone")), SpendingLedger(), None, 10)
    with pytest.raises(BrokenStream):
        await heard(metered)
    assert metered.failure is not None
    assert is_transport(metered.failure)
    statuses = {status: is_transport(ErrorInfo(code="x", message="", status=status)) for status in (400, 404, 429, 503)}
    assert statuses == {400: False, 404: False, 429: True, 503: True}


def test_symptoms_are_counted_by_the_name_of_their_quirk() -> None:
    """Also repaired ones; a note that is no symptom is none."""
    notes = [
        Note(code="index_shared", action="repaired", message="", count=2),
        Note(code="call_recovered", action="repaired", message=""),
        Note(code="max_tokens_default", action="coerced", message=""),
    ]
    assert symptoms_of(notes) == {"index_zero": 2, "dialect_text": 1}


REFUSED = [
    ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead", "new_max_tokens"),
    ("extra_forbidden: stream_options.include_usage", "no_stream_options"),
    ("Tool call id was x but must be a-z, A-Z, 0-9, with a length of 9.", "ids_of_9"),
    ("Parallel tool calls are not supported", "no_parallel_flag"),
    ('Unknown name "const" at function_declarations', "openapi_schema"),
    ("The reasoning_content in the thinking mode must be passed back", "reasoning_echo"),
    ("you are out of credits", None),
]  # fmt: skip


@pytest.mark.parametrize(("body", "quirk"), REFUSED, ids=[str(row[1]) for row in REFUSED])
def test_a_refusal_names_the_quirk_that_avoids_it(body: str, quirk: str | None) -> None:
    """By its words; most refusals are about something else."""
    assert next((name for pattern, name in REFUSALS if pattern.search(body)), None) == quirk


def test_every_suggestion_can_be_configured() -> None:
    """A quirk of the table that changes requests; the entry is TOML to be pasted."""
    assert [name for _, name in REFUSALS if QUIRKS[name].is_detector] == []
    found = Detected(endpoint="local http://x/v1 m", calls=3, symptoms={"stray_name": 2}, wanted={"no_seed": 1})
    assert found.suggested == ["stray_names", "no_seed"]
    text = write_detected([found, Detected(endpoint="y", calls=1, symptoms={}, wanted={})])
    assert 'quirks = ["stray_names", "no_seed"]' in text
    assert "nothing odd" in text
