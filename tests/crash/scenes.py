"""The conversations that are killed at every point: what is asked, what the model says in each round, and the tools.

A model is a function of its plan alone, so that a process that never saw the beginning goes on as the first would have.
"""

import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from crash.checker import Effect, unpaired
from treadle.core.errors import ErrorInfo, UpstreamTimeout
from treadle.core.events import (
    ArgumentsDelta,
    Failed,
    Finished,
    ItemAdded,
    ItemDone,
    ModelEvent,
    Noted,
    ReasoningDelta,
    Stop,
    TextDelta,
)
from treadle.core.ids import CountingIds, IdSource
from treadle.core.items import AnyItem, CallItem, MessageItem, ReasoningItem, TextPart
from treadle.core.plan import Plan
from treadle.core.request import Note
from treadle.core.tool_definitions import CallContext, Outcome, ServerTool, ToolPolicy, ToolSpec
from treadle.core.usage import Usage
from treadle.engine.limits import Limits

Batch = list[ModelEvent]
CLIENT_TOOL = "theirs"
TOOLS: dict[str, ToolPolicy] = {
    "look": ToolPolicy(effect="read", parallel=True),
    "read_one": ToolPolicy(effect="read"),
    "put": ToolPolicy(effect="idempotent"),
    "pay": ToolPolicy(effect="write"),
    "erase": ToolPolicy(effect="destructive", approval="never"),
    "forbidden": ToolPolicy(effect="destructive"),
}


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says in one round: reasoning, text, then calls by the names of their tools."""

    text: str = ""
    thought: str = ""
    calls: tuple[str, ...] = ()
    stop: Stop = "done"
    note: bool = False
    fails: str = ""


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation. `fixed_ids` are call ids that the upstream repeats in every reply. The client of one that
    `is_whole` is answered in one piece: it hears of the run with its end. The model of one that
    `is_fickle` answers otherwise when it is asked again, from the middle of its words on."""

    replies: tuple[Reply, ...]
    limits: Limits = Limits(wall_s=600.0)
    has_client_tool: bool = False
    fixed_ids: bool = False
    in_session: bool = False
    is_stored: bool = True
    is_whole: bool = False
    is_fickle: bool = False
    cancels_in: str = ""
    cancels_unowned: bool = False


FINAL = Reply(text="That is all I may do.")
SCENES: dict[str, Scene] = {
    "tools": Scene(
        replies=(
            Reply(thought="First I look around.", calls=("look", "look", "pay")),
            Reply(text="Now I pay.", calls=("put", "erase", "nonsense")),
            Reply(calls=("forbidden", "read_one")),
            Reply(text="All of it is done.", note=True),
        ),
        fixed_ids=True,
    ),
    "mixed": Scene(
        replies=(Reply(calls=("put",)), Reply(text="Yours.", calls=("pay", CLIENT_TOOL))), has_client_tool=True
    ),
    "client": Scene(replies=(Reply(calls=(CLIENT_TOOL, "look")),), has_client_tool=True),
    "limit": Scene(replies=(Reply(calls=("pay",)), Reply(calls=("pay", "look"))), limits=Limits(max_iterations=2)),
    "broken": Scene(replies=(Reply(calls=("pay",)), Reply(text="It breaks he", fails="inside"))),
    "refused": Scene(replies=(Reply(calls=("put",)), Reply(fails="before"))),
    "cut": Scene(replies=(Reply(text="Too long an answ", calls=("pay",), stop="length"),)),
    "cancelled": Scene(replies=(Reply(calls=("look", "pay")), Reply(text="Never said.")), cancels_in="pay"),
    "unowned": Scene(replies=(Reply(calls=("look", "pay")), Reply(text="Never said.")), cancels_unowned=True),
    "session": Scene(replies=(Reply(calls=("pay",)), Reply(text="Remembered.")), in_session=True),
    "unstored": Scene(replies=(Reply(calls=("pay",)), Reply(text="Forgotten.")), is_stored=False),
    "whole": Scene(replies=(Reply(calls=("look",)), Reply(calls=("pay",)), Reply(text="In one piece.")), is_whole=True),
    "answer": Scene(replies=(Reply(text="At once."),), is_whole=True),
}


class SceneModel:
    """Plays a scene: the round is known by how many replies with calls the plan holds already.

    `settled` is awaited after each batch that is not the last, so that what is written in the background between
    two batches is written there every time. What a provider would refuse to read is told to `refuse`. `asked` counts
    what was asked, for all models that share it.
    """

    def __init__(
        self,
        scene: Scene,
        refuse: Callable[[str], None],
        settled: Callable[[], Awaitable[None]],
        ids: IdSource | None = None,
        asked: Counter[str] | None = None,
    ) -> None:
        self._scene = scene
        self._asked = Counter[str]() if asked is None else asked
        self._refuse = refuse
        self._settled = settled
        self._ids = self._source = ids or CountingIds(namespace=f"{os.getpid()}_")

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[Batch, None]:
        for problem in unpaired(plan.items):
            self._refuse(f"{run_id}: the upstream was sent: {problem}")
        self._ids = self._source.of(run_id, plan.fingerprint)
        number = step_of(plan.items)
        replies = self._scene.replies
        reply = replies[number] if number < len(replies) and plan.tool_choice.mode != "none" else FINAL
        self._asked[f"{run_id} {plan.fingerprint}"] += 1
        if self._scene.is_fickle and self._asked[f"{run_id} {plan.fingerprint}"] > 1:
            reply = _otherwise(reply)
        if reply.fails == "before":
            raise UpstreamTimeout("the upstream is silent")
        batches = self._batches(reply, number)
        for batch in batches[:-1]:
            yield batch
            await self._settled()
        yield batches[-1]

    def _batches(self, reply: Reply, number: int) -> list[Batch]:
        items = self._items(reply, number)
        batches: list[Batch] = []
        if reply.note:
            batches.append([Noted(note=Note(code="repaired", action="repaired", message="It was put right."))])
        for index, item in enumerate(items):
            batches += told(index, item)
        if reply.fails == "inside":
            batches[-1] = [Failed(error=ErrorInfo(code="upstream_broken_stream", message="It broke.", status=502))]
            return batches
        stop: Stop = "calls" if reply.calls and reply.stop == "done" else reply.stop
        batches[-1].append(Finished(stop=stop, usage=Usage(input_tokens=1, output_tokens=2)))
        return batches

    def _items(self, reply: Reply, number: int) -> list[AnyItem]:
        items: list[AnyItem] = []
        if reply.thought:
            items.append(ReasoningItem(id=self._ids.new("rs"), summary=(reply.thought,)))
        if reply.text:
            items.append(MessageItem(id=self._ids.new("msg"), role="assistant", content=(TextPart(text=reply.text),)))
        for place, name in enumerate(reply.calls):
            call_id = f"call_{place}" if self._scene.fixed_ids else self._ids.new("call")
            arguments = msgspec.json.encode({"step": number, "place": place}).decode()
            items.append(CallItem(id=self._ids.new("fc"), call_id=call_id, name=name, arguments=arguments))
        return items


def step_of(items: Sequence[AnyItem]) -> int:
    """Return how many rounds with calls stand in a plan since the last thing a person said."""
    steps = 0
    for item in items:
        if isinstance(item, MessageItem) and item.role == "user":
            steps = 0
        elif isinstance(item, CallItem):
            steps = max(steps, msgspec.json.decode(item.arguments)["step"] + 1)
    return steps


def told(index: int, item: AnyItem) -> list[Batch]:
    """Tell an item as a stream does: it begins, comes in two pieces, and ends."""
    match item:
        case MessageItem():
            text = "".join(part.text for part in item.content if isinstance(part, TextPart))
            begun = msgspec.structs.replace(item, content=())
            pieces = [TextDelta(index=index, text=half) for half in _halves(text)]
        case ReasoningItem():
            begun = msgspec.structs.replace(item, summary=())
            pieces = [ReasoningDelta(index=index, text=half, is_summary=True) for half in _halves(item.summary[0])]
        case CallItem():
            begun = msgspec.structs.replace(item, arguments="")
            pieces = [ArgumentsDelta(index=index, text=item.arguments)]
        case _:
            raise AssertionError(item)
    return [[ItemAdded(index=index, item=begun), pieces[0]], [*pieces[1:], ItemDone(index=index, item=item)]]


def _otherwise(reply: Reply) -> Reply:
    """Return a reply with other words of the same length, which begin as those do."""
    half, rest = _halves(reply.text)
    return msgspec.structs.replace(reply, text=half + rest.swapcase())


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def server_tools() -> list[ServerTool]:
    """Return the tools that Treadle runs here."""
    return [ServerTool(spec=ToolSpec(name=name), policy=policy) for name, policy in sorted(TOOLS.items())]


class Ledger:
    """A file of effects: a line is written when a tool does its work, and stays whatever happens to the process."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, effect: Effect) -> None:
        """Do the effect."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(effect) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[Effect]:
        """Return all effects so far."""
        if not self._path.exists():
            return []
        return [msgspec.json.decode(line, type=Effect) for line in self._path.read_bytes().splitlines()]


class SceneToolbox:
    """Runs the tools of the scenes: their work is a line in the ledger."""

    def __init__(self, ledger: Ledger, begun: Callable[[str], Awaitable[None]]) -> None:
        self._ledger = ledger
        self._begun = begun

    async def run(self, call: CallItem, context: CallContext) -> Outcome:
        self._ledger.write(Effect(context.run_id, call.call_id, call.name, context.idempotency_key))
        await self._begun(call.name)
        return Outcome(text=f"{call.name} did it", output_bytes=10)
