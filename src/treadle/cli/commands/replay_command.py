"""`treadle replay`: replay a stored run to verify it, or fork it at a round with another model or live tools."""

import argparse
import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from treadle.cli import command_base as command
from treadle.cli.commands.diff_command import sandbox_of
from treadle.core.errors import NotFound, RequestError
from treadle.core.json import write_json
from treadle.terminal.rendering.run_output import WRITERS, RunOutput
from treadle.terminal.rendering.stdout_capture import own_stdout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from treadle.config import Settings
    from treadle.core.journal_entries import Entry
    from treadle.journal.journal_interface import RunRow
    from treadle.runs import RunHandle
    from treadle.runtime import Runtime
    from treadle.terminal.conversation.interrupts import Interrupts

LAST = "last"
EPILOG = f"""\
Without a flag nothing is asked and no tool runs: the loop is driven through its journal and must come to the very same
entries and events. --live-tools makes a new run in which the model says what it said and the tools really run;
--model makes a new run that goes on from just before --from-round with another model. Both are journalled like any
other run; `treadle diff` compares them with the first one.

examples:
  treadle replay last
  treadle replay run_0123456789abcdef01234567 --live-tools
  treadle replay last --model MODEL --from-round 2

exit codes: 0 the same way, or the new run is done; 1 it took another way, or an error; 2 usage or configuration
{command.EXIT_CODES}"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    parser.add_argument("run", help="the id of a run or response, or `last` for the newest one")
    parser.add_argument("--live-tools", action="store_true", help="run the tools again, in a new run")
    parser.add_argument("-m", "--model", metavar="NAME", dest="other_model", help="go on with another model, as a fork")
    parser.add_argument(
        "--from-round", metavar="N", type=int, help="fork just before this round (default: the first one)"
    )
    command.add_json_flag(parser)
    command.add_config_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Replay a run."""
    forks = args.other_model is not None or args.from_round is not None
    if args.live_tools and forks:
        raise RequestError("a fork runs tools anyway", param="--live-tools", hint="leave it out")
    settings = command.terminal_settings(args)
    from treadle.terminal.conversation.interrupts import run_interruptible

    command.quiet_logs()
    with own_stdout() as out:
        return run_interruptible(lambda interrupts: _replay(interrupts, settings, args, out))


async def _replay(interrupts: "Interrupts", settings: "Settings", args: argparse.Namespace, out: TextIO) -> int:
    from treadle.runtime import Parts, Runtime

    interrupts.watch()
    async with Runtime(settings, parts=Parts(is_attended=False)) as runtime:
        row = await _find(runtime, args.run)
        if args.live_tools:
            handle = await runtime.runs.rerun_tools(row)
        elif args.other_model is not None or args.from_round is not None:
            handle = await runtime.runs.fork(
                row, round_number=1 if args.from_round is None else args.from_round, model=args.other_model
            )
        else:
            return await _prove(runtime, row, out, is_json=args.json)
        return await _follow(handle, WRITERS["json" if args.json else "text"](out, sys.stderr))


async def _find(runtime: "Runtime", wanted: str) -> "RunRow":
    """Return the run that is meant.

    Raises: NotFound.
    """
    if wanted == LAST:
        rows = await runtime.store.list_runs(limit=1)
        if not rows:
            raise NotFound("there is no run yet", hint="make one: treadle run “hello”")
        return rows[0]
    row = await runtime.store.find_run(wanted)
    if row is None:
        raise NotFound(f"there is no run {wanted!r}", param="run", hint="`treadle replay last` takes the newest one")
    return row


async def _prove(runtime: "Runtime", row: "RunRow", out: TextIO, *, is_json: bool) -> int:
    proof = await runtime.runs.verify_replay(row)
    ran = _ran(await runtime.store.entries(row.id))
    if is_json:
        shown = {"run": row.id, "same": proof.is_same, **_numbers(proof), "sandboxes": ran}
        out.write(write_json(shown).decode() + "\n")
    elif proof.is_same:
        out.write(
            f"{row.id}: the same way again, byte for byte: {proof.rounds} rounds, {proof.calls} calls, "
            f"{proof.entries} entries, {proof.events} events\n"
        )
        if ran:
            out.write(f"tools ran in: {', '.join(f'{where} ({count})' for where, count in ran.items())}\n")
    else:
        out.write(f"{row.id}: another way: {proof.problem}\n")
    return command.OK if proof.is_same else command.ERROR


def _ran(entries: "Sequence[Entry]") -> dict[str, int]:
    """Count tool results by where the tools ran."""
    words = (sandbox_of(entry) for entry in entries if entry.kind == "tool_result" and not entry.is_input)
    return dict(sorted(Counter(word for word in words if word).items()))


def _numbers(proof: object) -> dict[str, object]:
    return {name: getattr(proof, name) for name in ("rounds", "calls", "entries", "events", "problem")}


async def _follow(handle: "RunHandle", writer: RunOutput) -> int:
    async with contextlib.aclosing(handle.events()) as events:
        async for batch in events:
            for numbered in batch:
                writer.write(numbered.event)
    await handle.wait()
    writer.finish()
    if writer.exit_code == command.OK:
        print(f"new run: {handle.run_id}", file=sys.stderr)
    return writer.exit_code
