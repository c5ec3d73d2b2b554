"""The model calls of a stored run: each plan is made again exactly, and what cannot be is refused."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from treadle import tool
from treadle.config import Settings, StoreSection
from treadle.core.errors import Conflict
from treadle.core.items import CallItem, ResultItem, text_of
from treadle.core.plan import Plan, plan_json
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.runs.views.recorded_rounds import read_run
from treadle.runtime import Parts, RandomIds, Runtime


@tool(effect="read")
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


TWICE = ScriptTurn(calls=tuple(ReplyCall(name="double", args={"number": n}) for n in (1, 2)))


class Opened:
    """A runtime on a scripted model, and the plans that the model was asked."""

    def __init__(self, folder: Path, *turns: ScriptTurn) -> None:
        self._model = ScriptedModel(Script(turns=turns), ids=RandomIds())
        settings = Settings(store=StoreSection(url=f"sqlite:///{folder}/t.db"), default_model="script")
        self.runtime = Runtime(settings, tools=[double], model=self._model, parts=Parts(env={}))

    @property
    def plans(self) -> list[Plan]:
        return self._model.player.plans

    async def run(self, *prompts: str, session: str | None = None) -> None:
        for prompt in prompts:
            async for _ in self.runtime.run(prompt, session=session):
                pass

    async def read(self) -> list[Any]:
        store = self.runtime.store
        return [await read_run(store, row) for row in reversed(await store.list_runs())]


async def test_every_plan_is_the_one_that_was_asked(tmp_path: Path) -> None:
    """Over several rounds and runs, history, calls and results included."""
    opened = Opened(tmp_path, TWICE, ScriptTurn(text="Two and four."), ScriptTurn(text="Yes."))
    async with opened.runtime:
        await opened.run("Double.", "Sure?", session="s")
        runs = await opened.read()
    made = [call.plan for run in runs for call in run.calls]
    assert [plan_json(plan) for plan in made] == [plan_json(plan) for plan in opened.plans]
    assert [plan.fingerprint for plan in made] == [plan.fingerprint for plan in opened.plans]
    assert [len(run.calls) for run in runs] == [2, 1]


async def test_calls_and_results_belong_to_their_round(tmp_path: Path) -> None:
    """In call order, with how the reply ended and when."""
    opened = Opened(tmp_path, TWICE, ScriptTurn(text="Done."))
    async with opened.runtime:
        await opened.run("Double.")
        (run,) = await opened.read()
    first, last = run.calls
    assert [item.name for item in first.items if isinstance(item, CallItem)] == ["double", "double"]
    assert [text_of(result.output) for result in first.results if isinstance(result, ResultItem)] == ["2", "4"]
    assert (first.ending, first.reply.stop, last.ending, last.results) == ("finished", "calls", "finished", ())
    assert first.asked_at <= first.replied_at <= last.asked_at
    assert list(run.offers) == ["double"]


async def test_a_call_that_broke_is_there_with_its_error(tmp_path: Path) -> None:
    """And with what was said until then."""
    opened = Opened(tmp_path, ScriptTurn(text="Half an answer", faults=Faults(disconnect_after=400)))
    async with opened.runtime:
        await opened.run("Go on.")
        (run,) = await opened.read()
    (call,) = run.calls
    assert (call.ending, call.items) == ("failed", ())
    assert call.error is not None
    assert call.error.code == "upstream_broken_stream"


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("DELETE FROM events WHERE kind = 'frame'", "Only a run that was stored whole"),
        ("UPDATE events SET content = 'Triple.' WHERE kind = 'user'", "The plan of entry 4 cannot be made again"),
        ("UPDATE runs SET status = 'running'", "is still going on"),
    ],
)
async def test_what_the_journal_does_not_say_is_not_invented(tmp_path: Path, sql: str, said: str) -> None:
    """A plan that does not have its fingerprint is no plan of this run."""
    opened = Opened(tmp_path, ScriptTurn(text="Done."))
    async with opened.runtime:
        await opened.run("Double.")
        connection = apsw.Connection(f"{tmp_path}/t.db")
        list(connection.execute(sql))
        connection.close()
        with pytest.raises(Conflict) as caught:
            await opened.read()
        assert said in caught.value.message
