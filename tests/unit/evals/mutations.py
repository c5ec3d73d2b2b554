"""Ways to break the loop on purpose, and the scenarios that must notice: a suite that catches none proves nothing."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from treadle.core.tool_definitions import AUTO
from treadle.engine import call_schedule as schedule
from treadle.engine import run_loop as loop
from treadle.engine import run_state as turn
from treadle.engine import tool_choice_check as choice
from treadle.engine.call_schedule import waves
from treadle.engine.limits import RunBudget
from treadle.protocols.chat import client_encoder as encode
from treadle.protocols.decoding.call_correlation import Correlator
from treadle.protocols.translation.restore_events import Restorer
from treadle.providers import provider_model as model
from treadle.tools import json_schema as schema

Break = Callable[[pytest.MonkeyPatch], None]


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """One way to break the loop: how, and the scenario and grader that must fail because of it."""

    how: Break
    scenario: str
    grader: str


def _rounds_unbounded(patch: pytest.MonkeyPatch) -> None:
    """Let a model call tools for ever."""
    patch.setattr(RunBudget, "end_round", lambda self: None)


def _calls_uncounted(patch: pytest.MonkeyPatch) -> None:
    """Let every call run, however many there were."""
    patch.setattr(RunBudget, "admit", lambda self, call: True)


def _last_round_free(patch: pytest.MonkeyPatch) -> None:
    """Offer tools again after a limit was reached."""
    patch.setattr(choice, "NONE", AUTO)


def _facts_committed(patch: pytest.MonkeyPatch) -> None:
    """Forget that some deeds are a person's only."""
    patch.setattr(turn, "is_person_only", lambda name: False)


def _arguments_unchecked(patch: pytest.MonkeyPatch) -> None:
    """Run tools on whatever arguments they are given."""
    patch.setattr(schema.Validator, "faults", lambda self, value: [])
    patch.setattr(schema.Validator, "is_valid", lambda self, value: True)


def _writes_run_twice(patch: pytest.MonkeyPatch) -> None:
    """Run every interrupted tool again, whatever it does."""
    patch.setattr(loop, "RETRYABLE", frozenset({"read", "idempotent", "write", "destructive"}))


def _calls_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Run the last call of a turn first."""
    patch.setattr(schedule, "waves", lambda claims: [[place] for wave in reversed(waves(claims)) for place in wave])


def _text_trusted(patch: pytest.MonkeyPatch) -> None:
    """Run a call that stood in text without asking anybody."""
    patch.setattr(turn, "reasons_for", lambda call, policy, tainted, *, is_from_text: ())


def _indexes_trusted(patch: pytest.MonkeyPatch) -> None:
    """Believe every upstream that two pieces at one index are one call."""
    patch.setattr(Correlator, "_of_id", Correlator._at)
    patch.setattr(Correlator, "_of_place", Correlator._at)


def _done_forgotten(patch: pytest.MonkeyPatch) -> None:
    """End Chat streams without their last word."""
    patch.setattr(encode, "DONE_FRAME", b"")


def _dialects_unread(patch: pytest.MonkeyPatch) -> None:
    """Leave calls in text where they are."""
    patch.setattr(model, "scanner_of", lambda plan, rules: None)


def _names_not_restored(patch: pytest.MonkeyPatch) -> None:
    """Call tools by the names that the upstream was told."""

    def as_it_is(self: Restorer, event: Any) -> list[Any]:
        return [event]

    patch.setattr(Restorer, "feed", as_it_is)


MUTATIONS: dict[str, Mutation] = {
    "rounds unbounded": Mutation(how=_rounds_unbounded, scenario="limits.endless_caller", grader="script"),
    "calls uncounted": Mutation(how=_calls_uncounted, scenario="limits.calls_mid_batch", grader="milestones"),
    "last round free": Mutation(how=_last_round_free, scenario="limits.endless_caller", grader="script"),
    "facts committed": Mutation(how=_facts_committed, scenario="restrain.facts_only_proposed", grader="script"),
    "arguments unchecked": Mutation(
        how=_arguments_unchecked, scenario="recover.invalid_arguments", grader="milestones"
    ),
    "writes run twice": Mutation(how=_writes_run_twice, scenario="limits.crash_in_a_write", grader="mines"),
    "calls out of order": Mutation(how=_calls_out_of_order, scenario="parallel.conflict_in_order", grader="script"),
    "text trusted": Mutation(how=_text_trusted, scenario="dialects.effects_need_consent", grader="mines"),
    "indexes trusted": Mutation(how=_indexes_trusted, scenario="wire.index_zero", grader="calls"),
    "done forgotten": Mutation(how=_done_forgotten, scenario="wire.every_pair", grader="wire"),
    "dialects unread": Mutation(how=_dialects_unread, scenario="dialects.marked_1", grader="milestones"),
    "names not restored": Mutation(how=_names_not_restored, scenario="wire.odd_names", grader="milestones"),
}
"""By the name that docs/evals.md gives them."""
