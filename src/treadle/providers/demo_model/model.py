"""The demo model: from a plan to a reply, streamed word by word through the real decoder.

The same plan always gives the same bytes. It pauses between words only to make streaming visible.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from treadle.core.events import Batches
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, CallItem, MessageItem, ResultItem, text_of
from treadle.core.plan import Plan
from treadle.core.usage import Usage
from treadle.protocols.protocol_registry import CHAT, ProtocolName
from treadle.protocols.translation.adapt_plan import Adapted
from treadle.providers.demo_model.answer_text import answer, ask_for, introduce
from treadle.providers.demo_model.tool_selection import choose
from treadle.providers.fakes.reply_rendering import sent_reply, write_frames
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.providers.provider_model import decode, open_call

NAME = "demo"


class DemoModel:
    """A model without a provider. `delay_s` is the pause between two pieces of its stream."""

    def __init__(
        self,
        ids: IdSource,
        *,
        delay_s: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        protocol: ProtocolName = CHAT,
    ) -> None:
        self._ids = ids
        self._delay_s = delay_s
        self._sleep = sleep
        self._protocol: ProtocolName = protocol

    def stream(self, plan: Plan, run_id: str) -> Batches:
        """Yield the events of the reply to this plan, a batch for each frame."""
        call = open_call(self._protocol, plan, self._ids.of(run_id, plan.fingerprint), NAME)
        return decode(self._send(plan, call.adapted), call.decoder, call.notes)

    async def _send(self, plan: Plan, adapted: Adapted) -> AsyncGenerator[bytes, None]:
        reply = sent_reply(reply_to(plan), adapted)
        for frame in write_frames(reply, model=plan.model, protocol=self._protocol, tools=adapted.plan.tools):
            yield frame
            if self._delay_s > 0:
                await self._sleep(self._delay_s)


def reply_to(plan: Plan) -> Reply:
    """Return the reply: the calls that the last prompt asks for and that were not made yet, else an answer."""
    start = _last_prompt(plan)
    prompt = plan.items[start] if start is not None else None
    text = text_of(prompt.content) if isinstance(prompt, MessageItem) else ""
    since = plan.items[start + 1 :] if start is not None else plan.items
    made = [item for item in since if isinstance(item, CallItem)]
    results = [item for item in since if isinstance(item, ResultItem)]
    chosen = choose(text, plan.tools, plan.tool_choice)
    wanted = chosen.calls
    if plan.options.parallel_tool_calls is False:
        wanted = wanted[len(made) : len(made) + 1]
    elif made or results:
        wanted = ()
    if wanted:
        return _with_usage(plan, Reply(calls=_with_ids(plan, wanted)))
    if results:
        by_id = {call.call_id: call for call in made}
        answer_text = answer([(by_id.get(result.call_id), result) for result in results])
    elif chosen.tool is not None:
        answer_text = ask_for(chosen.tool, chosen.missing)
    else:
        answer_text = introduce(plan.tools, may_call=plan.tool_choice.mode != "none")
    return _with_usage(plan, _bounded(plan, answer_text))


def _last_prompt(plan: Plan) -> int | None:
    places = (number for number in range(len(plan.items) - 1, -1, -1) if _is_prompt(plan.items[number]))
    return next(places, None)


def _is_prompt(item: AnyItem) -> bool:
    return isinstance(item, MessageItem) and item.role == "user"


def _with_ids(plan: Plan, calls: tuple[ReplyCall, ...]) -> tuple[ReplyCall, ...]:
    """Number the calls over the whole conversation, so that ids in it are unique."""
    before = sum(1 for item in plan.items if isinstance(item, CallItem))
    return tuple(
        msgspec.structs.replace(call, id=f"call_demo_{number}") for number, call in enumerate(calls, before + 1)
    )


def _bounded(plan: Plan, text: str) -> Reply:
    """Cut the text at the plan's bound on output, counting words as tokens."""
    bound = plan.options.max_output_tokens
    if bound is None or len(text.split()) <= bound:
        return Reply(text=text)
    return Reply(text=" ".join(text.split()[:bound]), finish="length")


def _with_usage(plan: Plan, reply: Reply) -> Reply:
    output_words = len(reply.text.split()) + sum(1 + len(call.arguments.split()) for call in reply.calls)
    return msgspec.structs.replace(
        reply, usage=Usage(input_tokens=sum(map(_words, plan.items)), output_tokens=output_words, estimated=True)
    )


def _words(item: AnyItem) -> int:
    match item:
        case MessageItem():
            return len(text_of(item.content).split())
        case ResultItem():
            return len(text_of(item.output).split())
        case CallItem():
            return 1 + len(item.arguments.split())
        case _:
            return 0
