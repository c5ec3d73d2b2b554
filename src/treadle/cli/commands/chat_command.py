"""`treadle chat`: a conversation in the terminal, drawn inline so that the scrollback stays.

This module opens it: which Treadle, which conversation, which face. The loop is in `talk/chat`, drawing in `terminal/`
and `inline/`, the slash commands in `slash/`.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, TextIO

from treadle.cli import command_base as command
from treadle.core.errors import RequestError
from treadle.terminal.rendering.stdout_capture import capture_prints, own_stdout
from treadle.terminal.rendering.styles import THEMES, detect_style

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.terminal.conversation.chat_loop import ChatLoop
    from treadle.terminal.conversation.interrupts import Interrupts
    from treadle.terminal.editor.screen_interface import ChatScreen
    from treadle.terminal.rendering.styles import TextStyle

QUIT_S = 1.0
EPILOG = """\
keys: Enter sends, Alt-Enter or Ctrl-J starts a new line, Ctrl-C stops the turn (or clears the line), Ctrl-D leaves.
What is typed during a turn is sent after it. /help lists the commands and all keys.
Without a terminal (or with TERM=dumb, or --plain) it is a plain loop, one line each, with numbered choices.

examples:
  treadle                      the demo model, no key needed
  treadle chat -m gpt-5        a model of a configured upstream
  treadle chat --tools my.py   with your own @tool functions
  treadle -c                   go on with the last conversation of this folder
  treadle -r "trip to Lyon"    go on with the conversation of that name
  treadle --server https://treadle.example.org --key-env TREADLE_KEY   the same screen, at a Treadle elsewhere"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    add_session_flags(parser)
    parser.add_argument(
        "--policy", choices=("plan", "ask", "auto-edit", "trust"), help="what runs unasked (default: terminal.policy)"
    )
    parser.add_argument("--plain", action="store_true", help="plain lines and numbered choices, for screen readers")
    parser.add_argument("--no-animations", action="store_true", help="show text only when its block is finished")
    parser.add_argument("--theme", choices=tuple(THEMES), help="colours (default: terminal.theme)")
    command.add_server_flags(parser)
    command.add_model_flag(parser)
    command.add_config_flags(parser)


def add_session_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose a conversation."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-c", "--continue", dest="continues", action="store_true", help="go on with the last one of this folder"
    )
    which.add_argument("-r", "--resume", metavar="SESSION", help="go on with this one, by its id or name")
    which.add_argument("--fork", metavar="SESSION", help="go on from this one under another name")


def run(args: argparse.Namespace) -> int:
    """Run the chat."""
    from treadle.terminal.conversation.interrupts import run_interruptible

    settings = command.terminal_settings(args)
    command.quiet_logs()
    with own_stdout() as out:
        return run_interruptible(lambda interrupts: _chat(interrupts, settings, args, out))


async def _chat(interrupts: "Interrupts", settings: "Settings", args: argparse.Namespace, out: TextIO) -> int:
    from treadle.terminal.conversation.chat_loop import ChatLoop
    from treadle.terminal.conversation.conversation import Conversation
    from treadle.terminal.conversation.open_conversation import make_policy, opened_host
    from treadle.terminal.rendering.run_renderer import RunRenderer
    from treadle.terminal.rendering.tool_results import FoldedResults
    from treadle.terminal.slash_commands.command_registry import COMMANDS

    interrupts.watch()
    terminal = settings.terminal
    is_plain = args.plain or terminal.plain or not sys.stdin.isatty()
    text_style = detect_style(out, os.environ, theme=args.theme or terminal.theme, is_plain=is_plain)
    root = settings.tools.local.root
    face = _make_screen(settings, text_style, out, is_animated=terminal.animations and not args.no_animations)
    shown = terminal.preview_lines if terminal.fold == "on" else terminal.fold_lines
    screen = RunRenderer(face, text_style, folds=FoldedResults(preview_lines=shown, full_lines=terminal.fold_lines))
    listeners: list[Callable[[str], None]] = []
    with capture_prints(screen.printed):
        opening = opened_host(args, settings, lambda text: [listen(text) for listen in listeners])
        async with _opened(face) as leaving, opening as host:
            conversation = Conversation(host, command.asked_model(args, settings), folder=root)
            policy = make_policy(terminal.policy, root)
            chat = ChatLoop(conversation, face, screen, policy, COMMANDS, root)
            listeners.append(chat.activity.progress)
            interrupts.guard(chat)
            interrupts.leave = chat.leave
            interrupts.idle = _PressTwice(screen.print_line).press
            face.serve(chat)
            await _begin(chat, args)
            leaving.cancel()
            if not interrupts.is_terminated:
                await chat.run()
            await face.close()
    return interrupts.exit_code if interrupts.is_terminated else command.OK


@contextlib.asynccontextmanager
async def _opened(face: "ChatScreen") -> "AsyncGenerator[asyncio.Future[None], None]":
    """Open the screen before the rest is loaded, so that a person can type at once. Leaving cancels the loading."""
    await face.open()
    opening, leaving = asyncio.current_task(), asyncio.ensure_future(face.left())
    assert opening is not None
    leaving.add_done_callback(lambda done: None if done.cancelled() else opening.cancel())
    try:
        yield leaving
    finally:
        leaving.cancel()
        await face.close()


async def _begin(chat: "ChatLoop", args: argparse.Namespace) -> None:
    """Print the greeting, and the messages of a continued conversation. Raises: TreadleError."""
    conversation, host = chat.conversation, chat.conversation.host
    where = f" at {host.place}" if host.place else ""
    model = f", model {conversation.model}" if conversation.model else ""
    chat.screen.print_line(f"Treadle{where}{model}. /help lists the commands, Ctrl-D leaves.")
    if (args.continues or args.resume or args.fork) and not host.is_persistent:
        raise RequestError("nothing is kept here: store.persistence is off", param="resume")
    if args.continues:
        await chat.resumed(await conversation.resume_last())
    elif args.resume or args.fork:
        entries = await conversation.resume(args.resume or args.fork)
        if args.fork:
            await conversation.fork()
        await chat.resumed(entries)


def _make_screen(settings: "Settings", text_style: "TextStyle", out: TextIO, *, is_animated: bool) -> "ChatScreen":
    """Return the best face that standard input and output allow."""
    if not text_style.rich or sys.platform == "win32":
        from treadle.terminal.editor.plain_mode import PlainScreen

        return PlainScreen(sys.stdin.fileno(), out)
    from treadle.config.loader import data_directory
    from treadle.terminal.editor.input_buffer import open_history
    from treadle.terminal.editor.screen_app import InlineScreen
    from treadle.terminal.editor.tab_completion import Completions
    from treadle.terminal.slash_commands.command_registry import COMMANDS

    keeps = settings.store.persistence == "on"
    history = open_history(data_directory(os.environ) / "chat_history" if keeps else None)
    names = {name: slash.summary for name, slash in COMMANDS.items()}
    words = {"/policy": ("plan", "ask", "auto-edit"), "/theme": tuple(THEMES)}
    root = os.path.realpath(settings.tools.local.root)
    completer = Completions(names, words, root, lambda: history.get_strings()[::-1])
    return InlineScreen(out, text_style, history=history, completer=completer, is_animated=is_animated)


class _PressTwice:
    """Handles Ctrl-C on an idle plain line: the first one warns, a second one soon after leaves."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._at = float("-inf")

    def press(self) -> bool:
        """Return whether the program continues."""
        now = time.monotonic()
        is_second = now - self._at <= QUIT_S
        self._at = now
        if not is_second:
            self._say("Ctrl-C again to quit, or Ctrl-D")
        return not is_second
