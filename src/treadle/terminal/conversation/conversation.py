"""One conversation: each message starts a run that continues the one before, and a run can be cancelled.

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
    """Tracks the conversation. The first message creates the session; without a journal the items are held here."""

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
        """Cancel the running turn; its events then end with a cancelled run."""
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

    async def send(self, message: MessageItem) -> AsyncGenerator[RunEvent, None]:
        """Run one turn and yield its events.

        Raises: TreadleError, if the run could not be started.
        """
        self._is_cancelled, self.run_id = False, None
        self.is_running = True
        try:
            session = await self._enter(message) if self.host.is_persistent else None
            items = (*self._preface, message) if session else (*self._items, *self._preface, message)
            ask = CallQuestion(items=items, model=self.model, session_id=session and session.id, schema=self.schema)
            self.run_id = await self.host.start(ask)
            self._items += [] if session else [*self._preface, message]
            self._preface = ()
            async with aclosing(self._follow(self.run_id)) as events:
                async for event in events:
                    yield event
        finally:
            self.is_running = False

    async def watch(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of a run of this conversation that another client started, or that ran before.

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
        """Take over the model where the server chose it, and keep the items where no session does."""
        if isinstance(event, RunStarted):
            self.model = self.model or event.model
        if self.host.is_persistent:
            return
        match event:
            case ItemDone():
                self._items.append(event.item)
            case ToolFinished():
                self._items.append(event.result)
            case _:
                pass

    async def _enter(self, message: MessageItem) -> SessionInfo:
        """Return the session, creating it for the first message."""
        if self.session is None:
            self.session = await self._create(name_of(text_of(message.content)))
        return self.session

    async def _create(self, name: str) -> SessionInfo:
        for number in range(1, NAMES_TRIED + 1):
            try:
                return await self.host.create_session(name if number == 1 else f"{name} ({number})", self.folder)
            except Conflict:
                continue
        raise Conflict(f"There are {NAMES_TRIED} sessions named {name!r} already.", param="name")

    async def resume(self, id_or_name: str) -> list[Entry]:
        """Continue a stored conversation and return its messages; where there is none, with this one.

        Raises: NotFound.
        """
        session = await self.host.find_session(id_or_name)
        runs = await self.host.list_runs(1, session_id=session.id)
        entries = await self.host.session_entries(session.id)
        self.forget()
        self.session = session
        self._seen = runs[0].id if runs and runs[0].status in ENDED else session.head_run_id
        return entries

    async def resume_last(self) -> list[Entry]:
        """Continue the conversation of this folder that was used last.

        Raises: NotFound.
        """
        for info in await self.host.list_sessions(SESSIONS_LOOKED_AT):
            if info.folder == self.folder:
                return await self.resume(info.id)
        raise NotFound("there is no conversation of this folder yet", hint="treadle sessions lists those of others")

    async def fork(self, *, at: str | None = None) -> SessionInfo:
        """Continue under another name, from here or from just after an earlier run; the first one stays as it is.

        Raises: TreadleError.
        """
        session = self._stored_session()
        self.session = await self.host.fork_session(session.id, at=at)
        self._seen = self.session.head_run_id
        return self.session

    async def step_back(self, turns: int = 1) -> str:
        """Take back the last turns, in a fork; return the prompt of the first of them.

        Raises: NotFound.
        """
        session = self._stored_session()
        chain = await self.chain(turns)
        if len(chain) < turns:
            raise NotFound("there is no such turn to go back to")
        first = chain[-1]
        prompt = await self._prompt_of(first.id)
        if first.previous_id is None:
            self.forget()
        else:
            self.session = await self.host.fork_session(session.id, at=first.previous_id)
            self._seen = self.session.head_run_id
        return prompt

    async def rename(self, name: str) -> SessionInfo:
        """Rename the conversation.

        Raises: TreadleError.
        """
        self.session = await self.host.rename_session(self._stored_session().id, name)
        return self.session

    async def chain(self, limit: int) -> list[HostRunInfo]:
        """Return the last turns, newest first, including those of the conversation it was forked from."""
        if self.session is None:
            return []
        head = (await self.host.find_session(self.session.id)).head_run_id
        chain: list[HostRunInfo] = []
        while head is not None and len(chain) < limit:
            chain.append(await self.host.find_run(head))
            head = chain[-1].previous_id
        return chain

    async def news(self) -> HostRunInfo | None:
        """Return the newest run of this conversation if another client started it and it was not shown yet."""
        if self.session is None:
            return None
        runs = await self.host.list_runs(1, session_id=self.session.id)
        return runs[0] if runs and runs[0].id != self._seen else None

    async def first_prompt(self, run_id: str) -> str:
        """Return the prompt of a run."""
        return await self._prompt_of(run_id)

    async def _prompt_of(self, run_id: str) -> str:
        entries = await self.host.run_entries(run_id)
        own = [entry.content or "" for entry in entries if entry.is_input and entry.kind == "user"]
        return own[-1] if own else ""

    def _stored_session(self) -> SessionInfo:
        if self.session is None:
            raise NotFound("nothing was said yet in this conversation")
        return self.session


def name_of(text: str) -> str:
    """Return the name of a conversation that begins with this text: its first words, on one line."""
    line = " ".join(text.split())
    if len(line) <= NAME_CHARS_MAX:
        return line or "conversation"
    return f"{line[: NAME_CHARS_MAX - 1].rsplit(' ', 1)[0]}…"
