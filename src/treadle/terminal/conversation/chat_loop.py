"""The loop of `treadle chat`: reads input, runs turns and shows them, and handles keys and slash commands."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import msgspec

from treadle.core.errors import TreadleError
from treadle.core.events import RunEnded, RunEvent, ToolFinished
from treadle.core.items import text_message
from treadle.core.journal_entries import Entry
from treadle.terminal.conversation.conversation import Conversation
from treadle.terminal.conversation.usage_totals import Totals, cost_text, time_text, tokens_text
from treadle.terminal.conversation.user_shell import Shell
from treadle.terminal.editor.screen_interface import ChatScreen
from treadle.terminal.permissions.ask_user import Asker
from treadle.terminal.permissions.permission_policy import MODES, PermissionPolicy
from treadle.terminal.rendering.approval_card import file_reader
from treadle.terminal.rendering.event_messages import plural
from treadle.terminal.rendering.progress_line import Activity
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.streaming_markdown import warm

NEWS_S = 1.0
"""How often an idle chat checks whether its conversation was continued elsewhere."""
SLOW_S = 1.0
"""After so long a command inside the chat can be stopped like a turn."""
RECALLED_MAX = 200
PROPOSES = "facts.propose"


class Slash(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command. `is_instant` runs at once, even during a turn; `takes` describes its argument."""

    summary: str
    do: "Callable[[ChatLoop, str], Awaitable[None]]"
    takes: str = ""
    is_instant: bool = False


class ChatLoop:
    """Runs the chat; keys reach it through `Actions`."""

    def __init__(
        self,
        conversation: Conversation,
        face: ChatScreen,
        screen: RunRenderer,
        policy: PermissionPolicy,
        commands: Mapping[str, Slash],
        root: str,
    ) -> None:
        self.conversation = conversation
        self.face = face
        self.screen = screen
        self.policy = policy
        self.commands = commands
        self.root = root
        self.shell = Shell(root)
        self.activity = Activity()
        self.totals = Totals()
        self.is_over = False
        reader = file_reader(root) if not conversation.host.place else _unreadable
        self._asker = Asker(conversation.host, policy, face, screen, reader, root)
        self._shared = ""
        self._doing: set[asyncio.Future[None]] = set()
        self._slow: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        """Run until the person leaves."""
        self._spawn(self._find_sandbox())
        if self.screen.text_style.rich:
            self._spawn(asyncio.to_thread(warm))
        while not self.is_over and (text := await self._next()) is not None:
            await self.take(text)
        for task in self._doing:
            task.cancel()

    async def take(self, text: str) -> None:
        """Handle one input: `!!`, a `!` command, a slash command or a message."""
        text = text.strip()
        if not text:
            return
        # A terminal with line editing by the system shows the input itself.
        if not self.face.echoes:
            self.screen.print_prompt(text)
        if text == "!!":
            self._share()
        elif text.startswith("!"):
            await self._run_shell(text[1:].strip())
        elif text.startswith("/"):
            await self.command(text)
        else:
            await self.turn(text)

    async def turn(self, text: str) -> None:
        """Send a message and show the run."""
        # Output shared by `!!` goes with one message only.
        whole, self._shared = self._shared + text, ""
        await self.follow(self.conversation.send(text_message("user", whole)))

    async def follow(self, events: AsyncGenerator[RunEvent, None]) -> RunEnded | None:
        """Show a run until its end, and decide its pending calls."""
        ended: RunEnded | None = None
        self.totals.begin()
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    self.activity.follow(event)
                    self.screen.show(event)
                    self._asker.follow(event)
                    if isinstance(event, ToolFinished) and event.call.name == PROPOSES and not event.result.is_error:
                        self.screen.print_line("  /facts shows what is proposed, /confirm makes it fact", "dim")
                    ended = event if isinstance(event, RunEnded) else ended
        except TreadleError as error:
            self.screen.error(error.operator_info)
        finally:
            # Also when the turn is cancelled: an open question would keep the keys.
            await self._asker.close()
        cost = None if ended is None else await self._cost(ended)
        self.totals.end(ended, cost)
        if ended is not None:
            self.screen.status(self._words(ended, cost), ended)
        return ended

    async def _cost(self, ended: RunEnded) -> float | None:
        conversation = self.conversation
        return await conversation.host.cost(conversation.run_id or "", conversation.model, ended.usage)

    def _words(self, ended: RunEnded, cost: float | None) -> list[str]:
        words = [self.conversation.model, plural(ended.rounds, "round"), plural(ended.calls, "call")]
        words.append(tokens_text(ended.usage))
        words += [] if cost is None else [cost_text(cost)]
        return [*words, time_text(self.totals.last_s)]

    async def command(self, text: str) -> None:
        """Run a slash command."""
        from treadle.config.error_messages import nearest

        name, _, argument = text.partition(" ")
        slash = self.commands.get(name)
        if slash is None:
            near = nearest(name.lstrip("/"), [known.lstrip("/") for known in self.commands], cutoff=0.7)
            meant = f"did you mean /{near}?" if near else "/help lists the commands"
            self.screen.print_line(f"there is no command {name}; {meant}")
            return
        try:
            await self._while_wanted(slash.do(self, argument.strip()))
        except TreadleError as error:
            self.screen.error(error.operator_info)

    async def _while_wanted(self, work: Awaitable[None]) -> None:
        """Run a command; once it is slow, Ctrl-C cancels it instead of leaving the chat."""
        task = asyncio.ensure_future(work)
        timer = asyncio.get_running_loop().call_later(SLOW_S, self._slow.append, task)
        try:
            await asyncio.wait({task})
            if task.cancelled():
                self.screen.print_line("stopped", "dim")
            else:
                task.result()
        finally:
            timer.cancel()
            task.cancel()
            if task in self._slow:
                self._slow.remove(task)

    async def resumed(self, entries: list[Entry]) -> None:
        """Show earlier messages, and follow a run that has not ended."""
        if len(entries) > RECALLED_MAX:
            self.screen.print_line(
                f"… {plural(len(entries) - RECALLED_MAX, 'earlier message')} (/export has all)", "dim"
            )
        self.screen.recall(entries[-RECALLED_MAX:])
        session = self.conversation.session
        self.screen.print_line(f"— resumed: {session.name if session else ''} —", "dim")
        await self._show_news("this turn was interrupted, or is going on elsewhere; here is what comes of it")

    async def _next(self) -> str | None:
        """Wait for input, and show runs that others start in this conversation until then."""
        reading = asyncio.ensure_future(self.face.read())
        try:
            while not (await asyncio.wait({reading}, timeout=NEWS_S))[0]:
                await self._show_news("said elsewhere:")
            return reading.result()
        finally:
            reading.cancel()

    async def _show_news(self, words: str) -> None:
        try:
            news = await self.conversation.news()
            if news is None:
                return
            self.screen.print_line(f"— {words}", "dim")
            self.screen.print_prompt(await self.conversation.first_prompt(news.id))
        except TreadleError:
            return  # the next check follows in NEWS_S
        await self.follow(self.conversation.watch(news.id))

    async def _run_shell(self, command: str) -> None:
        if not command:
            self.screen.print_line(
                "!COMMAND runs a command as you; !! adds what the last one wrote to your next message"
            )
            return
        self.totals.begin()
        try:
            code = await self.shell.run(command, lambda line: self.screen.print_line(f"  {line}" if line else " "))
        except OSError as error:
            self.screen.print_line(f"✗ {error.strerror or error}", "error")
            return
        finally:
            self.totals.end(None, None)
        self.screen.print_line(f"  exit {code}; the model has not seen this (!! adds it to your next message)", "dim")

    def _share(self) -> None:
        if not self.shell.command:
            self.screen.print_line("no command was run yet: !COMMAND")
            return
        self._shared = (
            f"<shell command={msgspec.json.encode(self.shell.command).decode()}>\n{self.shell.output}</shell>\n"
        )
        self.screen.print_line(f"what `{self.shell.command}` wrote goes with your next message", "dim")

    async def _find_sandbox(self) -> None:
        with contextlib.suppress(TreadleError):
            self.policy.sandbox = await self.conversation.host.sandbox()
            self.face.refresh()

    def _spawn(self, work: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(work)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    # The methods of `Actions`.

    @property
    def is_running(self) -> bool:
        """Return whether a turn, a shell command or a slow slash command is running."""
        return self.conversation.is_running or self.shell.is_running or bool(self._slow)

    def cancel(self) -> None:
        """Stop the turn."""
        self.interrupt()

    def leave(self) -> None:
        """End the chat after the turn, without asking for more."""
        self.is_over = True

    def interrupt(self) -> None:
        """Stop the shell command, the turn, or the slow slash command."""
        if self.shell.is_running:
            self.shell.stop()
        elif self.conversation.is_running or not self._slow:
            self.conversation.cancel()
        else:
            self._slow[-1].cancel()

    def status_line(self) -> str:
        """Return policy, sandbox, model, tokens, cost, time, and which conversation this is."""
        level = self.policy.sandbox
        words = [self.policy.mode]
        words += [f"sandbox L{level}"] if level is not None else []
        words += [self.conversation.model or "its default model"]
        if self.totals.turns:
            words += [tokens_text(self.totals.usage), cost_text(self.totals.cost), time_text(self.totals.seconds)]
        words += [self.conversation.host.place] if self.conversation.host.place else []
        session = self.conversation.session
        return " " + " · ".join([*words, session.name if session else "/help"])

    def activity_line(self) -> str:
        """Return what the turn waits for, and for how long."""
        if not self.is_running:
            return ""
        what = f"{self.shell.command} runs" if self.shell.is_running else self.activity.words
        if not self.conversation.is_running and self._slow:
            return f"… {what} (Ctrl-C stops)"
        return f"… {what}, {self.totals.seconds:.0f} s (Ctrl-C stops)"

    def press(self, action: str) -> None:
        """Run the action of a key."""
        match action:
            case "policy":
                mode = self.policy.cycle()
                self.screen.print_line(f"policy {mode}: {MODES[mode]}", "dim")
            case "unfold":
                self.screen.unfold()
            case "earlier":
                self._spawn(self._offer_earlier())
            case _:
                raise AssertionError(action)

    async def _offer_earlier(self) -> None:
        """Go back one more turn, in a fork, and put its prompt into the editor."""
        try:
            text = await self.conversation.step_back()
        except TreadleError as error:
            self.screen.print_line(error.message)
            return
        self.screen.print_line("— back to before this message; the conversation goes on in a fork —", "dim")
        self.face.offer(text)

    def is_instant(self, text: str) -> bool:
        """Return whether a command runs at once, even during a turn."""
        slash = self.commands.get(text.strip().partition(" ")[0])
        return slash is not None and slash.is_instant

    def do_now(self, text: str) -> None:
        """Run such a command."""
        self.screen.print_prompt(text)
        self._spawn(self.command(text.strip()))


def _unreadable(path: str) -> str | None:
    """Return why files of another machine cannot be read from here."""
    return None
