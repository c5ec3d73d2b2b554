"""`treadle run`: one turn for scripts. The answer goes to stdout, all else to stderr, the outcome is the exit code.

Loads no screen, and so no prompt_toolkit, which costs a quarter of a second.
"""

import argparse
import asyncio
import contextlib
import math
import shlex
import sys
from collections.abc import Coroutine, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.cli import command_base as command
from treadle.cli.commands.chat_command import add_session_flags
from treadle.core.errors import ConfigError, Conflict, RequestError, TreadleError
from treadle.core.events import (
    ApprovalRequested,
    ArgumentsDelta,
    ReasoningDelta,
    RoundStarted,
    RunEvent,
    TextDelta,
    ToolStarted,
)
from treadle.terminal.conversation.attachments import join_prompt, message_of, read_piped
from treadle.terminal.conversation.usage_totals import Spending
from treadle.terminal.rendering.progress_line import ticking
from treadle.terminal.rendering.run_output import WRITERS, RunOutput
from treadle.terminal.rendering.stdout_capture import PrintedLines, own_stdout

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.core.items import MessageItem
    from treadle.terminal.conversation.conversation import Conversation
    from treadle.terminal.conversation.interrupts import Interrupts
    from treadle.terminal.permissions.permission_policy import PermissionPolicy

NOBODY = "nobody can be asked in `treadle run`; --policy or --yes says what may run"
EPILOG = f"""\
Standard input, when it is a pipe or a file, is added to the prompt, and so are files that are named. Nobody can be
asked here, so a call that needs approval is denied, unless it only reads or --policy allows it.
`--output text` shows control characters as symbols; json and jsonl keep the text exact.

examples:
  treadle run "what is the weather in Paris?"
  treadle -p "add 2 and 3" --output json
  treadle run "list the python files" --output jsonl
  git diff | treadle run -m MODEL "write a commit message"
  treadle run "what is wrong here?" main.py screenshot.png
  treadle run -c "and in French?"
  treadle run "who wrote this?" paper.txt --schema author.json

{command.EXIT_CODES}"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("prompt", nargs="?", help="what to ask")
    parser.add_argument("files", nargs="*", metavar="FILE", help="texts and pictures to send along")
    parser.add_argument(
        "-p",
        "--prompt",
        dest="prompt_flag",
        metavar="TEXT",
        nargs="?",
        const="",
        help="the prompt, as a flag; without a text, standard input is the prompt",
    )
    parser.add_argument(
        "--output",
        choices=tuple(WRITERS),
        default="text",
        help="text as it streams (default), one JSON object at the end, or one event a line",
    )
    parser.add_argument("--schema", metavar="FILE", help="a JSON Schema that the answer must follow")
    parser.add_argument("--last-message", metavar="FILE", help="write the answer into this file too")
    parser.add_argument("--max-turns", type=_positive, metavar="N", help="rounds (model calls) at most")
    parser.add_argument("--max-cost", type=_amount, metavar="USD", help="stop when it has cost more than this")
    parser.add_argument("--timeout", type=_amount, metavar="S", help="seconds for the whole turn")
    parser.add_argument("--ephemeral", action="store_true", help="keep nothing of it")
    parser.add_argument(
        "--policy", choices=("plan", "ask", "auto-edit", "trust"), help="what runs unasked (default: terminal.policy)"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="approve everything: --policy trust")
    add_session_flags(parser)
    command.add_server_flags(parser)
    command.add_model_flag(parser)
    command.add_record_flag(parser)
    command.add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Run one prompt."""
    prompt, files = args.prompt, list(args.files)
    args.policy = "trust" if args.yes else args.policy
    if args.prompt_flag:
        files = [prompt, *files] if prompt is not None else files
        prompt = args.prompt_flag
    elif files and not any(Path(file).exists() for file in files):
        whole = shlex.quote(" ".join([prompt, *files]))
        raise RequestError("the prompt is more than one word", param="prompt", hint=f"quote it: treadle run {whole}")
    settings = _limited(args, command.terminal_settings(args))
    whole = join_prompt(prompt, read_piped())
    if not whole:
        raise RequestError("nothing to ask", param="prompt", hint='treadle run "your question", or pipe text into it')
    prompt = message_of(whole, files)
    from treadle.terminal.conversation.interrupts import run_interruptible

    command.quiet_logs()
    with own_stdout() as out:
        writer = WRITERS[args.output](out, sys.stderr)
        return run_interruptible(lambda interrupts: _Turn(args, settings, writer).run(interrupts, prompt))


def _limited(args: argparse.Namespace, settings: "Settings") -> "Settings":
    """Return the settings with the limits of the flags. Raises: ConfigError."""
    if args.server and args.ephemeral:
        raise ConfigError("--ephemeral is for this process: a server keeps what it is set to keep", param="--ephemeral")
    if args.ephemeral and (args.continues or args.resume or args.fork):
        raise ConfigError("--ephemeral keeps nothing, so nothing can be gone on with", param="--ephemeral")
    if args.max_turns is not None:
        limits = msgspec.structs.replace(settings.limits, max_iterations=args.max_turns)
        settings = msgspec.structs.replace(settings, limits=limits)
    if args.ephemeral:
        store = msgspec.structs.replace(settings.store, persistence="off")
        settings = msgspec.structs.replace(settings, store=store)
    return settings


def _positive(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (value := int(text)) >= 1:
            return value
    raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")


def _amount(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (value := float(text)) < math.inf:
            return value
    raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")


class _Turn:
    """One turn: sends the prompt, follows the events, decides approvals, and enforces the limits of the flags."""

    def __init__(self, args: argparse.Namespace, settings: "Settings", writer: RunOutput) -> None:
        self._args = args
        self._settings = settings
        self._writer = writer
        self._tasks: set[asyncio.Future[None]] = set()
        self._spending = Spending(args.max_cost)
        self._following = asyncio.Timeout(None)
        self._fault: TreadleError | None = None

    async def run(self, interrupts: "Interrupts", prompt: "MessageItem") -> int:
        """Run the turn and return the exit code. Raises: TreadleError; JSON output contains it already."""
        try:
            return await self._answer(interrupts, prompt)
        except TreadleError as error:
            self._writer.fail(error.operator_info)
            raise

    async def _answer(self, interrupts: "Interrupts", prompt: "MessageItem") -> int:
        from treadle.terminal.conversation.conversation import Conversation
        from treadle.terminal.conversation.open_conversation import make_policy, opened_host

        interrupts.watch()
        args, settings, writer = self._args, self._settings, self._writer
        schema = self._schema()
        prints = PrintedLines(writer.printed)
        with contextlib.redirect_stdout(prints):
            async with opened_host(args, settings, writer.progress) as host:
                folder = settings.tools.local.root
                conversation = Conversation(host, command.asked_model(args, settings), folder=folder)
                conversation.schema = schema
                await self._enter(conversation)
                policy = make_policy(settings.terminal.policy, folder)
                conversation.cancel_failed = self._leave_running
                interrupts.guard(conversation)
                with ticking(writer.tick), self._deadline(conversation):
                    await self._follow(conversation, policy, prompt)
                if writer.ended is not None:
                    writer.cost = await host.cost(conversation.run_id or "", conversation.model, writer.ended.usage)
            prints.finish()
        self._check(schema)
        writer.finish()
        self._leave_message()
        return interrupts.exit_code if interrupts.is_terminated else writer.exit_code

    def _schema(self) -> msgspec.Raw | None:
        if self._args.schema is None:
            return None
        from treadle.terminal.conversation.json_schema_answer import read_schema

        return read_schema(self._args.schema)

    async def _enter(self, conversation: "Conversation") -> None:
        args = self._args
        if args.continues:
            await conversation.resume_last()
        elif args.resume or args.fork:
            await conversation.resume(args.resume or args.fork)
        if args.fork:
            await conversation.fork()

    async def _follow(self, conversation: "Conversation", policy: "PermissionPolicy", prompt: "MessageItem") -> None:
        has_begun = False
        try:
            async with self._following, contextlib.aclosing(conversation.send(prompt)) as events:
                async for event in events:
                    if not has_begun:
                        self._writer.begin(conversation.session, conversation.model)
                        has_begun = True
                    self._writer.write(event)
                    self._handle_event(conversation, policy, event)
        except TimeoutError:
            if self._fault is None:
                raise
            raise self._fault from None
        finally:
            for task in self._tasks:
                task.cancel()

    def _handle_event(self, conversation: "Conversation", policy: "PermissionPolicy", event: RunEvent) -> None:
        match event:
            case ApprovalRequested() if not event.is_deferred:
                self._spawn(self._decide(conversation, policy, event))
            case RoundStarted() if self._args.max_turns is not None and event.round > self._args.max_turns + 1:
                self._stop(conversation, "max_turns")  # a remote server has its own limits, so ours are enforced here
            case RoundStarted() | ToolStarted() if self._spending.is_limited:
                self._spawn(self._count_cost(conversation))
            case TextDelta() | ReasoningDelta() | ArgumentsDelta() if self._spending.is_limited:
                if self._spending.add(event.text, partial(conversation.host.estimate, conversation.model)):
                    self._stop(conversation, "max_cost")
            case _:
                pass

    async def _decide(self, conversation: "Conversation", policy: "PermissionPolicy", event: ApprovalRequested) -> None:
        """Decide by policy; a call that would need a person is denied, and the exit code shows it."""
        from treadle.terminal.conversation.host_interface import CallDecision
        from treadle.terminal.permissions.permission_policy import question_of

        host = conversation.host
        if policy.sandbox is None:
            policy.sandbox = await host.sandbox()
        decision = policy.decide(question_of(event, conversation.folder))
        refusal = CallDecision(approve=False, by="policy ask", reason=NOBODY)
        # A server that cannot run commands read-only refuses to: then it is as if nothing had agreed.
        for answer in (decision or refusal, refusal):
            try:
                await host.decide(event.approval_id, answer)
            except TreadleError as error:
                self._writer.note(f"the question about {event.call.name} was not answered: {error.message}")
                if isinstance(error, Conflict):
                    return  # somebody else answered it
                if answer.arguments is not None:
                    continue
                # The run would wait for an answer that cannot come from here.
                self._writer.error = error.operator_info
                conversation.cancel()
            return

    def _leave_running(self, error: TreadleError) -> None:
        """End the command although its run goes on: the server did not let it be cancelled."""
        info = error.operator_info
        message = f"the run could not be cancelled, and goes on at {self._args.server}: {error.message}"
        hint = info.hint or "cancel it in the console, or with a key of that server: --key-env"
        self._fault = TreadleError(message, code=info.code, hint=hint)
        self._following.reschedule(asyncio.get_running_loop().time())

    async def _count_cost(self, conversation: "Conversation") -> None:
        """Stop the run when its finished rounds exceed the cost limit; an unknown cost cannot be limited."""
        from treadle.terminal.conversation.usage_totals import usage_of

        assert conversation.run_id is not None
        usage = usage_of(await conversation.host.run_entries(conversation.run_id))
        if usage is None:
            return  # no round has ended yet
        cost = await conversation.host.cost(conversation.run_id, conversation.model, usage)
        if cost is None and self._spending.is_limited:
            self._writer.note(f"--max-cost: what {conversation.model} costs is not known ([[price]] names it)")
            self._spending.is_limited = False
        elif cost is not None and self._spending.settle(cost):
            self._stop(conversation, "max_cost")

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, conversation: "Conversation", limit: str) -> None:
        self._writer.limit = limit
        conversation.cancel()

    @contextlib.contextmanager
    def _deadline(self, conversation: "Conversation") -> Generator[None]:
        if self._args.timeout is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(self._args.timeout, self._stop, conversation, "timeout")
        try:
            yield
        finally:
            timer.cancel()

    def _check(self, schema: msgspec.Raw | None) -> None:
        """Validate the answer against the schema."""
        ended = self._writer.ended
        if schema is not None and ended is not None and ended.status == "completed":
            from treadle.terminal.conversation.json_schema_answer import fault_of

            self._writer.error = fault_of(self._writer.text, schema)

    def _leave_message(self) -> None:
        if self._args.last_message is not None:
            Path(self._args.last_message).write_text(self._writer.text, encoding="utf-8", errors="replace")
