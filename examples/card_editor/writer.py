"""A model that needs no provider: it reads the draft, fills what is empty, and proposes the name it was told.

What it does is a script: the same prompt on the same card always gives the same calls.
"""

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

from cards import FIELDS

from treadle.core.events import ModelEvent
from treadle.core.ids import IdSource
from treadle.core.items import MessageItem, ResultItem, text_of
from treadle.core.plan import Plan
from treadle.providers.fakes.reply_rendering import sent_reply, write_frames
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.providers.provider_model import decode, open_call

NAMED = re.compile(r"\b(?:called|named)\s+([A-Z][\w'-]*)")
WORDS = {
    "description": "{idea}",
    "personality": "Calm, exact, and fond of their craft.",
    "scenario": "You meet them at their work.",
    "first_mes": "*looks up* Come in. What do you need?",
}


class Writer:
    """Fits the model port of Treadle's engine."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids

    def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Yield the events of the reply to this plan."""
        call = open_call("chat", plan, self._ids, "writer")
        frames = write_frames(
            sent_reply(reply_to(plan), call.adapted), model=plan.model, protocol="chat", tools=call.adapted.plan.tools
        )

        async def send() -> AsyncGenerator[bytes, None]:
            for frame in frames:
                yield frame

        return decode(send(), call.decoder, call.notes)


def reply_to(plan: Plan) -> Reply:
    """Decide what to say: read first, then write, then tell."""
    start = max(i for i, item in enumerate(plan.items) if isinstance(item, MessageItem) and item.role == "user")
    prompt = plan.items[start]
    assert isinstance(prompt, MessageItem)
    idea = text_of(prompt.content).strip()
    results = [item for item in plan.items[start + 1 :] if isinstance(item, ResultItem)]
    if not results:
        return Reply(calls=(_call(len(plan.items), "state.get", path="/draft"),))
    if len(results) == 1:
        calls = _edits(idea, results[0], len(plan.items))
        if calls:
            return Reply(calls=calls)
    failed = [text_of(item.output) for item in results if item.is_error]
    said = f"This was refused: {failed[0]}" if failed else "I filled what was empty. Please look at it."
    return Reply(text=" ".join([*_heard(results), said]))


def _heard(results: list[ResultItem]) -> list[str]:
    """Return what people decided since, which comes as warnings with the results."""
    warnings = [each for item in results for each in json.loads(text_of(item.output)).get("warnings", ())]
    return [each for each in warnings if each.startswith("Proposal")]


def _edits(idea: str, read: ResultItem, seed: int) -> tuple[ReplyCall, ...]:
    draft = json.loads(text_of(read.output))["value"]
    changes = [
        {"path": f"/draft/{name}", "value": WORDS[name].format(idea=idea)}
        for name in FIELDS
        if name in WORDS and not draft.get(name)
    ]
    calls: list[ReplyCall] = []
    if changes:
        calls.append(_call(seed, "draft.patch", changes=changes, reason="these were empty"))
    if found := NAMED.search(idea):
        name = [{"path": "/facts/name", "value": found[1]}]
        calls.append(_call(seed + 1, "facts.propose", changes=name, reason="You named the character."))
        calls.append(_call(seed + 2, "ui.show", panel="proposals"))
    return tuple(calls)


def _call(number: int, name: str, **args: Any) -> ReplyCall:
    return ReplyCall(name=name, args=args, id=f"call_{number}")
