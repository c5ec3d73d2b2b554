"""One conversation: what is said becomes a run, each run goes on from the one before, and a turn can be cancelled.

Draws nothing and reads nothing. Where the runs are made is behind the `ConversationHost`.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from treadle.core.errors import ConfigError, Conflict, NotFound, TreadleError
from treadle.core.events import ENDED, ItemDone, RunEvent, RunStarted, ToolFinished
from treadle.core.items import AnyItem, MessageItem, text_message, text_of
from treadle.core.journal_entries import Entry
from treadle.terminal.conversation.host_interface import CallQuestion, ConversationHost, HostRunInfo, SessionInfo

NAME_CHARS_MAX = 60
NAMES_TRIED = 100
SESSIONS_LOOKED_AT = 200


class Conversation:
    """Keeps the thread. A session is made with the first thing said; where nothing is kept, the items are held here."""

    def __init__(self, host: ConversationHost, model: str, *, folder: str = "") -> None:
        if not model and not host.place:
            raise ConfigError(
                "which model? There is an upstream, but no default",
                param="default_model",
                hint="name one with -m NAME, or set default_model in treadle.toml",
            )
        self.host = host
        self.model = model
        self.folder = folder
        self.session: SessionInfo | None = None
        self.schema: msgspec.Raw | None = None
        self.run_id: str | None = None
        self.is_running = False
        self.cancel_failed: Callable[[TreadleError], None] = lambda _: None
        """Called when a turn could not be cancelled; its events go on then."""
        self._seen: str | None = None
        self._items: list[AnyItem] = []
        self._preface: tuple[AnyItem, ...] = ()
        self._is_cancelled = False
        self._cancelling: asyncio.Future[None] | None = None

    def forget(self) -> None:
        """Begin a new conversation."""
        self.session = self._seen = self.run_id = None
        self._items = []
        self._preface = ()

    def begin_with(self, text: str) -> None:
        """Begin a new conversation that knows this much of an older one."""
        self.forget()
        self._preface = (text_message("user", text),)

    def cancel(self) -> None:
        """Ask the turn that is going on to end; its events then end with a cancelled run."""
        self._is_cancelled = True
        if self.run_id is not None and self.is_running:
            self._cancelling = asyncio.ensure_future(self._cancel(self.run_id))

    async def _cancel(self, run_id: str) -> None:
        try:
            await self.host.cancel(run_id)
        except (NotFound, Conflict):
            return  # it has ended, and the events say how
        except TreadleError as error:
            self.cancel_failed(error)

    async def send(self, said: MessageItem) -> AsyncGenerator[RunEvent, None]:
        """Run one turn and yield its events.

        Raises: TreadleError, if the run could not be started.
        """
        self._is_cancelled, self.run_id = False, None
        self.is_running = True
        try:
            session = await self._enter(said) if self.host.keeps else None
            items = (*self._preface, said) if session else (*self._items, *self._preface, said)
            ask = CallQuestion(items=items, model=self.model, session_id=session and session.id, schema=self.schema)
            self.run_id = await self.host.start(ask)
            self._items += [] if session else [*self._preface, said]
            self._preface = ()
            async with aclosing(self._follow(self.run_id)) as events:
                async for event in events:
                    yield event
        finally:
            self.is_running = False

    async def watch(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run of this conversation that was begun elsewhere, or before.

        Raises: TreadleError.
        """
        self._is_cancelled, self.run_id = False, run_id
        self.is_running = True
        try:
            async with aclosing(self._follow(run_id)) as events:
                async for event in events:
                    yield event
        finally:
            self.is_running = False

    async def _follow(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        self._seen = run_id
        if self._is_cancelled:
            self.cancel()
        async with aclosing(self.host.events(run_id)) as events:
            async for event in events:
                self._note(event)
                yield event

    def _note(self, event: RunEvent) -> None:
        """Learn the model where the server chose it, and hold what was said where nobody else keeps it."""
        if isinstance(event, RunStarted):
            self.model = self.model or event.model
        if self.host.keeps:
            return
        match event:
            case ItemDone():
                self._items.append(event.item)
            case ToolFinished():
                self._items.append(event.result)
            case _:
                pass

    async def _enter(self, said: MessageItem) -> SessionInfo:
        """Return the session, made now if this is the first thing said."""
        if self.session is None:
            self.session = await self._create(name_of(text_of(said.content)))
        return self.session

    async def _create(self, name: str) -> SessionInfo:
        for number in range(1, NAMES_TRIED + 1):
            try:
                return await self.host.create_session(name if number == 1 else f"{name} ({number})", self.folder)
            except Conflict:
                continue
        raise Conflict(f"There are {NAMES_TRIED} sessions named {name!r} already.", param="name")

    async def resume(self, id_or_name: str) -> list[Entry]:
        """Go on with a kept conversation and return what was said in it; where there is none, with this one.

        Raises: NotFound.
        """
        session = await self.host.find_session(id_or_name)
        runs = await self.host.list_runs(1, session_id=session.id)
        said = await self.host.said(session.id)
        self.forget()
        self.session = session
        self._seen = runs[0].id if runs and runs[0].status in ENDED else session.head_run_id
        return said

    async def resume_last(self) -> list[Entry]:
        """Go on with the conversation of this folder that was used last.

        Raises: NotFound.
        """
        for info in await self.host.list_sessions(SESSIONS_LOOKED_AT):
            if info.folder == self.folder:
                return await self.resume(info.id)
        raise NotFound("there is no conversation of this folder yet", hint="treadle sessions lists those of others")

    async def fork(self, *, at: str | None = None) -> SessionInfo:
        """Go on under another name, from here or from just after an earlier run; the first one stays as it is.

        Raises: TreadleError.
        """
        session = self._kept()
        self.session = await self.host.fork_session(session.id, at=at)
        self._seen = self.session.head_run_id
        return self.session

    async def step_back(self, turns: int = 1) -> str:
        """Take back the last turns, in a fork; return what was said in the first of them.

        Raises: NotFound.
        """
        session = self._kept()
        chain = await self.chain(turns)
        if len(chain) < turns:
            raise NotFound("there is no such turn to go back to")
        first = chain[-1]
        said = await self._said_in(first.id)
        if first.previous_id is None:
            self.forget()
        else:
            self.session = await self.host.fork_session(session.id, at=first.previous_id)
            self._seen = self.session.head_run_id
        return said

    async def rename(self, name: str) -> SessionInfo:
        """Give the conversation another name.

        Raises: TreadleError.
        """
        self.session = await self.host.rename_session(self._kept().id, name)
        return self.session

    async def chain(self, limit: int) -> list[HostRunInfo]:
        """Return the last turns of this conversation, newest first, also those of the one it was forked from."""
        if self.session is None:
            return []
        head = (await self.host.find_session(self.session.id)).head_run_id
        chain: list[HostRunInfo] = []
        while head is not None and len(chain) < limit:
            chain.append(await self.host.find_run(head))
            head = chain[-1].previous_id
        return chain

    async def news(self) -> HostRunInfo | None:
        """Return the newest run of this conversation if it was begun elsewhere and has not been shown."""
        if self.session is None:
            return None
        runs = await self.host.list_runs(1, session_id=self.session.id)
        return runs[0] if runs and runs[0].id != self._seen else None

    async def said_first(self, run_id: str) -> str:
        """Return what a person said to begin a run."""
        return await self._said_in(run_id)

    async def _said_in(self, run_id: str) -> str:
        entries = await self.host.run_entries(run_id)
        own = [entry.content or "" for entry in entries if entry.is_input and entry.kind == "user"]
        return own[-1] if own else ""

    def _kept(self) -> SessionInfo:
        if self.session is None:
            raise NotFound("nothing was said yet in this conversation")
        return self.session


def name_of(text: str) -> str:
    """Return the name of a conversation that begins with this text: its first words, on one line."""
    line = " ".join(text.split())
    if len(line) <= NAME_CHARS_MAX:
        return line or "conversation"
    return f"{line[: NAME_CHARS_MAX - 1].rsplit(' ', 1)[0]}…"
