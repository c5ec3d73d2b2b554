"""Runs BFCL questions through a real gateway over HTTP, executes the calls, and grades the answers."""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from treadle.config import ServerSection, Settings, StoreSection, ToolsSection, Upstream
from treadle.core.errors import TreadleError
from treadle.evals.bfcl.answer_checker import check_calls
from treadle.evals.bfcl.bfcl_client import APIS, BfclCall, BfclClient
from treadle.evals.bfcl.dataset import Archive, BfclQuestion, TruthCall
from treadle.evals.bfcl.ground_truth_model import TruthPlayer
from treadle.evals.bfcl.stateful_classes import Worlds, differences, missing
from treadle.evals.live.live_runner import alone
from treadle.evals.results.sample_rows import SampleRow
from treadle.evals.suite_report import Outcome
from treadle.http.client_pool import ClientPool
from treadle.providers.fakes.fake_server import ScriptServer
from treadle.runtime import Parts, Runtime
from treadle.server.server_process import Address, serve

TRUTH = "truth"
"""The name of the model that always answers with the ground truth."""
STEPS_MAX = 20
"""How many times a model may request calls in one turn."""

Told = Callable[[SampleRow], None]


class BfclOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The questions, models and APIs of a run."""

    wheel: Path
    sets: tuple[str, ...]
    apis: tuple[str, ...] = APIS
    models: tuple[str, ...] = (TRUTH,)
    every: int = 1
    jobs: int = 4
    requests_max: int | None = None
    settings: Settings = Settings()
    env: Mapping[str, str] = {}


async def run_bfcl(options: BfclOptions, told: Told | None = None) -> list[SampleRow]:
    """Run everything and return a row for each question, model and API; fewer if the request limit is reached.

    Raises: ConfigError.
    """
    questions = read_questions(options)
    asked = _RequestCounter(options.requests_max)
    worlds = Worlds(options.wheel)
    async with AsyncExitStack() as exits:
        base_url = await exits.enter_async_context(_gateway(options, questions))
        pool = ClientPool(options.jobs)
        exits.push_async_callback(pool.close)
        work = [(question, model, api) for model in options.models for api in options.apis for question in questions]
        rows: list[SampleRow | None] = [None] * len(work)
        places = iter(range(len(work)))

        async def worker() -> None:
            for place in places:
                if asked.is_exhausted:
                    return
                question, model, api = work[place]
                client = BfclClient(pool, base_url, api, question.id if model == TRUTH else model)
                row = await _ask(question, model, api, _Conversation(client, asked), worlds)
                rows[place] = row
                if told is not None:
                    told(row)

        await asyncio.gather(*(worker() for _ in range(options.jobs)))
    return [row for row in rows if row is not None]


def read_questions(options: BfclOptions) -> list[BfclQuestion]:
    """Return the questions to run; those without a valid answer are left out.

    Raises: ConfigError.
    """
    archive = Archive(options.wheel)
    chosen = [question for name in options.sets for question in list(archive.questions(name))[:: options.every]]
    return [question for question in chosen if question.is_sound]


def _handlers() -> dict[signal.Signals, Any]:
    """Return who hears of signals now: an interruption ends the run, not only the server that would take it."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


@asynccontextmanager
async def _gateway(options: BfclOptions, questions: Iterable[BfclQuestion]) -> AsyncGenerator[str, None]:
    """Serve a whole Treadle on loopback: before the truth, or before what is configured."""
    async with AsyncExitStack() as exits:
        settings = alone(options.settings)
        if TRUTH in options.models:
            player = TruthPlayer({question.id: question for question in questions})
            upstream = await exits.enter_async_context(ScriptServer(player))
            truth = Upstream(name=TRUTH, base_url=upstream.url, models=("*",))
            settings = Settings(upstream=(truth,))
        settings = msgspec.structs.replace(
            settings,
            store=StoreSection(persistence="off"),
            tools=ToolsSection(demo=False),
            server=ServerSection(port=0),
        )
        runtime = await exits.enter_async_context(Runtime(settings, parts=Parts(env=options.env)))
        handlers = _handlers()
        started: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve(runtime, started.set_result, 0.0))
        done, _ = await asyncio.wait((started, serving), return_when=asyncio.FIRST_COMPLETED)
        if started not in done:
            await serving
        for number, handler in handlers.items():
            signal.signal(number, handler)
        try:
            yield f"{started.result().url}/v1"
        finally:
            serving.cancel()
            await asyncio.wait((serving,))


async def _ask(question: BfclQuestion, model: str, api: str, talk: "_Conversation", worlds: Worlds) -> SampleRow:
    """Run one question and grade it."""
    try:
        if question.is_multi:
            problem = await _converse(question, talk, worlds)
        else:
            await talk.turn(question.turns[0], question, 0, None)
            problem = check_calls(question, [(call.name, call.value) for call in talk.calls])
    except TreadleError as error:
        return _row(question, model, api, talk, "broken", error.message)
    return _row(question, model, api, talk, "fail" if problem else "pass", problem or "")


def _row(
    question: BfclQuestion, model: str, api: str, talk: "_Conversation", outcome: Outcome, reason: str
) -> SampleRow:
    """Return the row of a question: a scenario of its own, so that runs are paired by question, under its set."""
    return SampleRow(
        key=f"{model}.{api}.{question.id}",
        scenario=question.id,
        model=f"{model} via {api}",
        strategy="full",
        title=question.set,
        outcome=outcome,
        reason=reason,
        calls=len(talk.calls),
        rounds=talk.requests,
        input_tokens=talk.input_tokens,
        output_tokens=talk.output_tokens,
    )


class _RequestCounter:
    """Counts the requests of a run against its limit."""

    def __init__(self, requests_max: int | None) -> None:
        self._left = requests_max

    @property
    def is_exhausted(self) -> bool:
        """Return whether the limit is reached."""
        return self._left is not None and self._left <= 0

    def count(self) -> None:
        """Count a request; a started conversation is always finished."""
        if self._left is not None:
            self._left -= 1


class _Conversation:
    """One conversation in progress."""

    def __init__(self, client: BfclClient, asked: "_RequestCounter") -> None:
        self._client = client
        self._asked = asked
        self._messages: list[dict[str, Any]] = []
        self.calls: list[BfclCall] = []
        self.requests = 0
        self.input_tokens = 0
        self.output_tokens = 0

    async def turn(
        self, said: Sequence[dict[str, str]], question: BfclQuestion, number: int, run: Callable[[BfclCall], str] | None
    ) -> list[str]:
        """Send messages; with `run`, execute calls and send their results until there are none, and return them.

        Raises: BrokenStream.
        """
        self._messages.extend(said)
        given: list[str] = []
        for _ in range(STEPS_MAX):
            self._asked.count()
            answer = await self._client.ask(self._messages, question.offered(number))
            self.requests += 1
            self.input_tokens += answer.input_tokens
            self.output_tokens += answer.output_tokens
            self.calls += answer.calls
            self._messages += answer.echo
            if not answer.calls or run is None:
                return given
            outputs = [run(call) for call in answer.calls]
            given += outputs
            self._messages += self._client.results(answer.calls, outputs)
        return given


async def _converse(question: BfclQuestion, talk: _Conversation, worlds: Worlds) -> str | None:
    """Play all turns in the model's world and in the ground truth's; return the first difference."""
    own, truth = worlds.make(question), worlds.make(question)
    seen: list[str] = []

    def run(call: BfclCall) -> str:
        value = call.value
        if not isinstance(value, dict):
            return "Error during execution: the arguments are not an object"
        return own.run(TruthCall(name=call.name, arguments=cast("dict[str, Any]", value)))

    for number, said in enumerate(question.turns):
        before = len(talk.calls)
        seen += await talk.turn(said, question, number, run)
        wanted = [truth.run(call) for call in question.truth[number]]
        if not wanted:
            if len(talk.calls) > before:
                return f"turn {number + 1}: expected no call, got {talk.calls[before].name}"
            continue
        if changed := differences(truth, own):
            return f"turn {number + 1}: the state differs in {', '.join(changed)}"
        if absent := missing(wanted, seen):
            return f"turn {number + 1}: never seen: {absent[0][:200]}"
    return None
