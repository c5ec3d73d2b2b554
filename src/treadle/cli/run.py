"""`treadle run`: one turn for scripts. The answer on stdout, everything else on stderr, the outcome as exit code.

Loads no screen: neither prompt_toolkit nor rich, which together cost half a second.
"""

import argparse
import contextlib
import os
import stat
import sys
from typing import TYPE_CHECKING

from treadle.canon.errors import LimitExceeded, RequestError
from treadle.cli import command
from treadle.cli.terminal.output import WRITERS, Writer
from treadle.cli.terminal.prints import Prints, own_stdout
from treadle.cli.terminal.waiting import ticking

if TYPE_CHECKING:
    from treadle.cli.session import Interrupts
    from treadle.config import Settings

STDIN_BYTES_MAX = 8_388_608
EPILOG = f"""\
Standard input, when it is a pipe or a file, is added to the prompt. Nobody can be asked here, so a tool that needs
approval is denied. `--output text` shows control characters as symbols; json and jsonl keep the text exact.

examples:
  treadle run "what is the weather in Paris?"
  treadle -p "add 2 and 3" --output json
  treadle run "list the python files" --output jsonl
  git diff | treadle run -m MODEL "write a commit message"

{command.EXIT_CODES}"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.epilog = EPILOG
    parser.add_argument("prompt", nargs="?", help="what to ask")
    parser.add_argument("-p", "--prompt", dest="prompt_flag", metavar="TEXT", help="the same, as a flag")
    parser.add_argument(
        "--output",
        choices=tuple(WRITERS),
        default="text",
        help="text as it streams (default), one JSON object at the end, or one event a line",
    )
    command.add_model_flag(parser)
    command.add_record_flag(parser)
    command.add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Answer one prompt."""
    if args.prompt is not None and args.prompt_flag is not None:
        raise RequestError("there are two prompts", param="prompt", hint="give one, in quotes")
    settings = command.terminal_settings(args)
    prompt = join_prompt(args.prompt if args.prompt is not None else args.prompt_flag, read_piped())
    if not prompt:
        raise RequestError("nothing to ask", param="prompt", hint='treadle run "your question", or pipe text into it')
    from treadle.cli.session import run_interruptible

    command.quiet_logs()
    with own_stdout() as out:
        writer = WRITERS[args.output](out, sys.stderr)
        return run_interruptible(lambda interrupts: _turn(interrupts, settings, prompt, writer))


def join_prompt(prompt: str | None, piped: str) -> str:
    """Put the piped text below the prompt, marked as input; either may be missing."""
    asked = (prompt or "").strip()
    if not piped.strip():
        return asked
    return f"{asked}\n\n<input>\n{piped.rstrip()}\n</input>" if asked else piped.strip()


def read_piped() -> str:
    """Return what a pipe or a file feeds into standard input; nothing from a terminal or /dev/null.

    Raises: LimitExceeded.
    """
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""
    raw = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(raw) > STDIN_BYTES_MAX:
        raise LimitExceeded(f"standard input is larger than {STDIN_BYTES_MAX} bytes", param="stdin")
    return raw.decode("utf-8", "replace")


async def _turn(interrupts: "Interrupts", settings: "Settings", prompt: str, writer: Writer) -> int:
    from treadle.cli.session import Session
    from treadle.runtime import Runtime

    interrupts.watch()
    prints = Prints(writer.printed)
    with contextlib.redirect_stdout(prints):
        async with Runtime(settings) as runtime:
            session = Session(runtime, settings.model)
            interrupts.guard(session)
            with ticking(writer.tick):
                async with contextlib.aclosing(session.send(prompt)) as events:
                    async for event in events:
                        writer.write(event)
        prints.finish()
    writer.finish()
    return interrupts.exit_code if interrupts.is_terminated else writer.exit_code
