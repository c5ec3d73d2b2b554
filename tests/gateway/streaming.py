"""Streams a long answer into the real chat: `python -m gateway.streaming TOKENS RATE` in a terminal.

The conversation is a fake, everything that draws is real. Without a rate it streams as fast as it can.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator

from prompt_toolkit.history import InMemoryHistory

from treadle.core.events import RunEnded, RunEvent, RunStarted, TextDelta
from treadle.terminal.conversation.chat_loop import ChatLoop
from treadle.terminal.conversation.conversation import Conversation
from treadle.terminal.editor.screen_app import FRAME_S, InlineScreen
from treadle.terminal.editor.tab_completion import Completions
from treadle.terminal.permissions.permission_policy import PermissionPolicy
from treadle.terminal.permissions.remembered_permissions import Allowances
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle
from treadle.terminal.slash_commands.command_registry import COMMANDS
from unit.terminal.conversation.fake import FakeHost

TEXT = """\
the loop turns and every call gets a result before the model is asked again while the screen stays true
and nothing that was said is ever said twice"""
WORDS = TEXT.split()
BATCH = 25


def document(tokens: int) -> str:
    """Return a markdown text of about so many tokens: paragraphs, lists, code, tables, wide characters."""
    pieces, count, number = list[str](), 0, 0
    while count < tokens:
        number += 1
        text = _section(number)
        pieces.append(text)
        count += len(list(cut(text)))
    return "\n\n".join(pieces)


def _section(number: int) -> str:
    words = [WORDS[(number * 7 + step) % len(WORDS)] for step in range(40)]
    sentence = " ".join(words)
    match number % 5:
        case 0:
            return f"## Section {number}\n\n{sentence}."
        case 1:
            return "\n".join(f"- point {number}.{item} {' '.join(words[item : item + 9])}" for item in range(6))
        case 2:
            lines = [f"    value_{line} = call({number}, {line})  # {words[line]}" for line in range(12)]
            return "```python\ndef section():\n" + "\n".join(lines) + "\n```"
        case 3:
            rows = "\n".join(f"| {number} | {words[row]} | 表示 {row} |" for row in range(4))
            return f"| a | b | c |\n|---|---|---|\n{rows}"
        case _:
            return f"**{words[0]}** and `{words[1]}`, 日本語 {sentence} {sentence}."


def cut(text: str) -> Iterator[str]:
    """Cut a text into pieces of about the size of tokens."""
    for start in range(0, len(text), 4):
        yield text[start : start + 4]


class Streamer(FakeHost):
    """Answers with the document."""

    def __init__(self, text: str, rate: float) -> None:
        super().__init__(is_persistent=False)
        self._text, self._rate = text, rate

    async def events(self, run_id: str) -> AsyncGenerator[RunEvent, None]:
        """Stream it."""
        yield RunStarted(run_id=run_id, response_id="r", model="m", created_at=0.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number, piece in enumerate(cut(self._text)):
            yield TextDelta(index=0, text=piece)
            if self._rate:
                await asyncio.sleep(max(0.0, began + number / self._rate - loop.time()))
            elif number % BATCH == 0:
                await asyncio.sleep(0.002)
        yield RunEnded(status="completed", rounds=1)


async def signal(name: str) -> None:
    """Tell the terminal multiplexer around, if there is one, once the frame is drawn."""
    await asyncio.sleep(4 * FRAME_S)
    if "TMUX" in os.environ:
        await asyncio.to_thread(subprocess.run, ["tmux", "wait-for", "-S", name], check=True)


async def main(tokens: int, rate: float) -> None:
    """Say one thing, show the answer, then wait to be ended."""
    host = Streamer(document(tokens), rate)
    look = TextStyle(rich=True)
    completer = Completions({}, {}, os.getcwd(), list)
    face = InlineScreen(sys.stdout, look, history=InMemoryHistory(), completer=completer)
    screen = RunRenderer(face, look)
    chat = ChatLoop(
        Conversation(host, "m"), face, screen, PermissionPolicy("ask", Allowances("/")), COMMANDS, os.getcwd()
    )
    await face.open()
    face.serve(chat)
    await signal("began")
    await chat.take("stream")
    screen.print_line("streamed to its end")
    await signal("ended")
    await chat.run()
    await face.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
