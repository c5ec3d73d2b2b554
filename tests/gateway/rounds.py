"""A whole runtime without HTTP: any client's protocol, any upstream's, and a script for each run.

A request is spelled in the client's protocol and read; the run's events are written in it again. The model that is
asked for names the upstream's protocol, and every run plays the script from its beginning.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import msgspec

from stream.answers import decode
from stream.pairs import Seen, seen_of
from treadle.config import LimitsSection, Settings, StoreSection
from treadle.core.events import ModelEvent, Numbered, RunEnded, RunStarted
from treadle.core.ids import CountingIds
from treadle.core.items import AnyItem, ResultItem, text_message
from treadle.core.plan import Plan
from treadle.core.request import Request, Surface
from treadle.core.tool_definitions import ToolSpec
from treadle.protocols.protocol_registry import PROTOCOLS
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.providers.provider_model import decode as read_answer
from treadle.providers.provider_model import open_call
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.tools import Tool

PAIRS = tuple(product(PROTOCOLS, PROTOCOLS))
QUESTION = text_message("user", "go")


class Voice:
    """A model of one protocol that plays its turns in every run, and keeps what it was asked by run."""

    def __init__(self, protocol: Any, turns: tuple[ScriptTurn, ...]) -> None:
        self._protocol = protocol
        self._script = Script(turns=turns)
        self._models: dict[str, ScriptedModel] = {}

    def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Play the next turn of the run."""
        if run_id not in self._models:
            self._models[run_id] = ScriptedModel(self._script, ids=RandomIds(), chunk_bytes=64, protocol=self._protocol)
        return self._models[run_id].stream(plan, run_id)

    def plans(self, run_id: str) -> list[Plan]:
        """Return what was asked in a run."""
        return self._models[run_id].player.plans


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One run as everybody saw it: the client's bytes and what they amount to, the events, the plans."""

    raw: bytes
    seen: Seen
    events: tuple[Any, ...]
    plans: tuple[Plan, ...]

    @property
    def started(self) -> RunStarted:
        """Return how it began."""
        return self.events[0]

    @property
    def ended(self) -> RunEnded:
        """Return how it ended."""
        return self.events[-1]


class Canned:
    """A model of one protocol that answers with these bytes, the later ones once it has read a result."""

    def __init__(self, protocol: Any, first: bytes, then: bytes, *, provider: str) -> None:
        self._protocol = protocol
        self._bytes = (first, then)
        self._provider = provider
        self._plans: dict[str, list[Plan]] = {}

    def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Answer as the real upstream would have its bytes read."""
        self._plans.setdefault(run_id, []).append(plan)
        call = open_call(self._protocol, plan, CountingIds(), self._provider)
        return read_answer(self._play(plan), call.decoder, call.notes)

    async def _play(self, plan: Plan) -> AsyncGenerator[bytes, None]:
        yield self._bytes[any(isinstance(item, ResultItem) for item in plan.items)]

    def plans(self, run_id: str) -> list[Plan]:
        """Return what was asked in a run."""
        return self._plans[run_id]


class Rounds:
    """Runs of any pair in one runtime."""

    def __init__(self, runtime: Runtime, voices: Mapping[str, Voice | Canned]) -> None:
        self.runtime = runtime
        self._voices = voices

    async def tell(
        self, client: Any, upstream: str, *items: AnyItem, tools: tuple[ToolSpec, ...] = (), **fields: Any
    ) -> Told:
        """Run one request to its end."""
        return await self.run(asked(client, upstream, items or (QUESTION,), tools, **fields))

    async def run(self, request: Request) -> Told:
        """Run a request to its end."""
        client: Any = request.protocol
        handle = await self.runtime.runs.start(request)
        encoder = PROTOCOLS[client].codec.encoder(request, CountingIds())
        frames: list[bytes] = []
        events: list[Any] = []
        async for batch in handle.events():
            for numbered in batch:
                await self.look(numbered, handle.run_id)
                frames += encoder.feed(numbered.event)
                events.append(numbered.event)
        await handle.wait()
        raw = b"".join(frames) if request.surface.stream else encoder.body()
        seen = seen_of(decode(PROTOCOLS[client].codec.decoder(CountingIds()), raw))
        return Told(
            raw=raw, seen=seen, events=tuple(events), plans=tuple(self._voices[request.model].plans(handle.run_id))
        )

    async def look(self, numbered: Numbered, run_id: str) -> None:
        """Look at the world in the moment in which a client is told of an event."""


def asked(client: Any, upstream: str, items: Iterable[AnyItem], tools: tuple[ToolSpec, ...], **fields: Any) -> Request:
    """Return the request as the client's protocol spells it and Treadle reads it."""
    written = open_call(client, Plan(items=tuple(items), model=upstream, tools=tools), CountingIds(), "")
    request = PROTOCOLS[client].codec.read_request(written.body)
    surface = Surface(stream=True, include_usage=True)
    return msgspec.structs.replace(request, model=upstream, surface=surface, store=True, **fields)


@asynccontextmanager
async def opened(
    *turns: ScriptTurn,
    tools: Iterable[Tool] = (),
    kind: type[Rounds] = Rounds,
    voices: Mapping[str, Voice | Canned] | None = None,
    **limits: Any,
) -> AsyncIterator[Rounds]:
    """Open a runtime whose models, one for each protocol, play these turns in every run."""
    models = voices or {protocol: Voice(protocol, turns) for protocol in PROTOCOLS}
    settings = Settings(store=StoreSection(url="sqlite:///:memory:"), limits=LimitsSection(**limits))
    async with Runtime(settings, tools=tools, parts=Parts(env={}, models=models, is_attended=False)) as runtime:
        yield kind(runtime, models)
