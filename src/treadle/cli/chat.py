"""`treadle chat`: a conversation in the terminal, inline, so that the scrollback stays.

This module is the loop between prompt, session and screen, and the slash commands; drawing is in `terminal/`.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TextIO

import msgspec

from treadle.canon.errors import TreadleError
from treadle.canon.events import RunEnded
from treadle.cli import command
from treadle.cli.terminal.look import look_of
from treadle.cli.terminal.prints import Prints, own_stdout
from treadle.cli.terminal.results import Folds
from treadle.cli.terminal.waiting import ticking

if TYPE_CHECKING:
    from treadle.cli.session import Interrupts, Session
    from treadle.cli.terminal.prompt import Prompt
    from treadle.cli.terminal.screen import Screen
    from treadle.config import Settings
    from treadle.runtime import Runtime

EPILOG = """\
keys: Enter sends, Alt-Enter or Ctrl-J starts a new line, Ctrl-C stops the turn (or clears the line), Ctrl-D leaves.
What is typed during a turn is sent after it. /help lists the commands.
Without a terminal (or with TERM=dumb) it is a plain loop, one line each.

examples:
  treadle                      the demo model, no key needed
  treadle chat -m gpt-5        a model of a configured upstream
  treadle chat --tools my.py   with your own @tool functions"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    command.add_model_flag(parser)
    command.add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Talk until the person leaves."""
    from treadle.cli.session import run_interruptible

    settings = command.terminal_settings(args)
    command.quiet_logs()
    with own_stdout() as out:
        return run_interruptible(lambda interrupts: _chat(interrupts, settings, out))


async def _chat(interrupts: "Interrupts", settings: "Settings", out: TextIO) -> int:
    from treadle.cli.session import Session
    from treadle.cli.terminal.prompt import make_prompt
    from treadle.cli.terminal.screen import Screen
    from treadle.runtime import Runtime

    interrupts.watch()
    look = look_of(out, os.environ)
    terminal = settings.terminal
    screen = Screen(out, look, folds=Folds(preview_lines=terminal.preview_lines, full_lines=terminal.fold_lines))
    with contextlib.redirect_stdout(Prints(screen.printed)):
        async with Runtime(settings) as runtime:
            session = Session(runtime, settings.model)
            interrupts.guard(session)
            prompt = make_prompt(look.rich, out, _names(), lambda: f" {session.model} · /help")
            screen.say(f"Treadle, model {session.model}. /help lists the commands, Ctrl-D leaves.")
            chat = Chat(runtime, session, screen)
            with prompt.between():
                while not interrupts.is_terminated and await chat.step(prompt):
                    pass
    return interrupts.exit_code if interrupts.is_terminated else command.OK


def _names() -> dict[str, str]:
    return {name: slash.summary for name, slash in COMMANDS.items()}


class Chat:
    """Reads, runs and shows, one turn after the other."""

    def __init__(self, runtime: "Runtime", session: "Session", screen: "Screen") -> None:
        self.runtime = runtime
        self.session = session
        self.screen = screen
        self.is_over = False

    async def step(self, prompt: "Prompt") -> bool:
        """Read one thing and do it; False when the person has left."""
        text = await prompt.read()
        if text is None:
            return False
        said = text.strip()
        if said.startswith("/"):
            await self._command(said)
        elif said:
            await self._turn(said)
        return not self.is_over

    async def _turn(self, said: str) -> None:
        began = time.monotonic()
        ended: RunEnded | None = None
        self.screen.begin()
        try:
            with ticking(self.screen.tick):
                async with contextlib.aclosing(self.session.send(said)) as events:
                    async for event in events:
                        self.screen.show(event)
                        ended = event if isinstance(event, RunEnded) else ended
        except TreadleError as error:
            self.screen.error(error.info)
        if ended is not None:
            self.screen.status(self.session.model, ended, time.monotonic() - began)

    async def _command(self, text: str) -> None:
        from treadle.config.problems import nearest

        name, _, argument = text.partition(" ")
        slash = COMMANDS.get(name)
        if slash is None:
            near = nearest(name.lstrip("/"), [known.lstrip("/") for known in COMMANDS], cutoff=0.7)
            meant = f"did you mean /{near}?" if near else "/help lists the commands"
            self.screen.say(f"there is no command {name}; {meant}")
            return
        await slash.do(self, argument.strip())


class Slash(msgspec.Struct, frozen=True, kw_only=True):
    """A command inside the chat."""

    summary: str
    do: Callable[[Chat, str], Awaitable[None]]


async def _help(chat: Chat, argument: str) -> None:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {slash.summary}" for name, slash in COMMANDS.items()]
    chat.screen.say("\n".join([*lines, EPILOG.split("\n")[0]]))


async def _tools(chat: Chat, argument: str) -> None:
    tools = chat.runtime.registry.tools()
    lines = [f"  {tool.name} ({tool.policy.effect}): {tool.spec.description.split(chr(10))[0]}" for tool in tools]
    chat.screen.say("\n".join(lines) or "no tools")


async def _model(chat: Chat, argument: str) -> None:
    if not argument:
        known = ", ".join(info.id for info in chat.runtime.router.models())
        chat.screen.say(f"model {chat.session.model}; known: {known or 'whatever the upstream serves'}")
        return
    try:
        command.check_model(msgspec.structs.replace(chat.runtime.settings, default_model=argument))
        chat.runtime.router.model_for(argument)
    except TreadleError as error:
        chat.screen.error(error.info)
        return
    chat.session.model = argument
    chat.screen.say(f"model {argument} from now on")


async def _new(chat: Chat, argument: str) -> None:
    chat.session.forget()
    chat.screen.say("a new conversation")


async def _full(chat: Chat, argument: str) -> None:
    chat.screen.unfold()


async def _quit(chat: Chat, argument: str) -> None:
    chat.is_over = True


COMMANDS: dict[str, Slash] = {
    "/help": Slash(summary="list the commands and keys", do=_help),
    "/tools": Slash(summary="list the tools that Treadle runs", do=_tools),
    "/model": Slash(summary="show the model, or change it: /model NAME", do=_model),
    "/full": Slash(summary="show more of a result that was folded", do=_full),
    "/new": Slash(summary="begin a new conversation", do=_new),
    "/quit": Slash(summary="leave", do=_quit),
}
