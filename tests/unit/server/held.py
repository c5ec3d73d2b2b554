"""A model that says the beginning of an answer and then waits for the test."""

import asyncio
from collections.abc import AsyncGenerator

from treadle.core.events import Finished, ItemAdded, ItemDone, ModelEvent, TextDelta
from treadle.core.items import MessageItem, TextPart
from treadle.core.plan import Plan


class HeldModel:
    """Streams `Hello`, waits for `released`, and ends with ` there.`; `closed` tells that its stream was closed."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.released = asyncio.Event()
        self.closed = asyncio.Event()

    async def stream(self, plan: Plan, run_id: str) -> AsyncGenerator[list[ModelEvent], None]:
        """Play the answer."""
        try:
            yield [ItemAdded(index=0, item=MessageItem(role="assistant")), TextDelta(index=0, text="Hello")]
            self.asked.set()
            await self.released.wait()
            item = MessageItem(role="assistant", content=(TextPart(text="Hello there."),))
            yield [TextDelta(index=0, text=" there."), ItemDone(index=0, item=item), Finished(stop="done")]
        finally:
            self.closed.set()
