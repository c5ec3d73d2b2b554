"""A local OpenAI-compatible model that misbehaves on purpose, at known rates dealt from a seed."""

import random
from collections.abc import Sequence
from fractions import Fraction

import msgspec

from treadle.core.items import MessageItem, ResultItem, text_of
from treadle.core.plan import Plan
from treadle.core.usage import Usage
from treadle.evals.scenario_file import Scenario
from treadle.providers.fakes.scripted_reply import Faults, Reply, ReplyCall

USAGE = Usage(input_tokens=100, output_tokens=20)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """How often what goes wrong: the model invents a tool, the provider is overloaded, a stream has a stray shape."""

    mistake: float = 0.0
    overloaded: float = 0.0
    index_zero: float = 0.0
    refused: float = 0.0


class FlakyModel:
    """Plays the scripts of scenarios by what it is asked, and errs at its rates."""

    def __init__(self, scenarios: Sequence[Scenario], rates: Rates, seed: int = 1) -> None:
        self._scenarios = {each.turn[0].user: each for each in scenarios}
        self.rates = rates
        self._draw = random.Random(seed)
        self._decks: dict[float, list[bool]] = {}
        self.mistakes = 0
        self.samples = 0
        self.overloads = 0
        self.strays = 0
        self.opinions: list[str] = []

    def __call__(self, plan: Plan) -> Reply:
        """Reply to one request; as the judge, with the next opinion."""
        if plan.model == "judge":
            return Reply(text=self.opinions.pop(0), usage=USAGE)
        if self._happens(self.rates.overloaded):
            self.overloads += 1
            return Reply(faults=Faults(status=503, message="overloaded", retry_after_s=0.0))
        if self._happens(self.rates.refused):
            return Reply(faults=Faults(status=400, message="Unknown name seed"))
        asked = [
            place for place, item in enumerate(plan.items) if isinstance(item, MessageItem) and item.role == "user"
        ]
        scenario = self._scenarios[text_of(plan.items[asked[0]].content)]  # type: ignore[union-attr]
        step = _results(plan)
        if step == 0:
            self.samples += 1
            if self._happens(self.rates.mistake):
                self.mistakes += 1
                return Reply(text="I would rather not.", usage=USAGE)
        turn = scenario.script[min(step, len(scenario.script) - 1)]
        calls = tuple(
            ReplyCall(name=_told(call.name, plan), raw=call.arguments, id=f"call_{step}_{place}")
            for place, call in enumerate(turn.calls)
        )
        faults = Faults(index_zero=True) if len(calls) > 1 and self._happens(self.rates.index_zero) else Faults()
        self.strays += faults.index_zero
        return Reply(text=turn.text, calls=calls, usage=USAGE, faults=faults)

    def _happens(self, rate: float) -> bool:
        """Deal from small decks: requests come in any order, and the rates still come out nearly exact."""
        if rate == 0:
            return False
        deck = self._decks.setdefault(rate, [])
        if not deck:
            part = Fraction(rate).limit_denominator(100)
            cards = [True] * (4 * part.numerator) + [False] * (4 * (part.denominator - part.numerator))
            deck += self._draw.sample(cards, len(cards))
        return deck.pop()


def _told(name: str, plan: Plan) -> str:
    """Return the name that the model was told a tool by."""
    offered = {tool.name for tool in plan.tools}
    return name if name in offered else name.replace(".", "_")


def _results(plan: Plan) -> int:
    """Return how many batches of results the model has been given."""
    batches = 0
    was_result = False
    for item in plan.items:
        is_result = isinstance(item, ResultItem)
        batches += is_result and not was_result
        was_result = is_result
    return batches
