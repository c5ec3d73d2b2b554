"""`treadle wasm`: run a guest, call one of its tools, inspect, create and build guests."""

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.core.errors import TreadleError
from treadle.terminal.rendering.sanitize import clean

if TYPE_CHECKING:
    from treadle.config import Settings
    from treadle.terminal.conversation.interrupts import Interrupts
    from treadle.wasm.execution.session_program import ProgramEnded
    from treadle.wasm.execution.thread_messages import GuestOutput
    from treadle.wasm.guest_pool import GuestModule

EPILOG = """\
A guest is a WASM module that owns conversations (docs/wasm.md). What it prints goes to stdout, its log to stderr.

examples:
  treadle wasm new hello.wat                  begin a guest that needs no compiler
  treadle wasm new hello.c                    begin a guest in C; .ts is AssemblyScript, .js and .py are components
  treadle wasm build hello.c                  make hello.wasm of it (needs pip install ziglang)
  treadle wasm check hello.wasm               what it imports and exports, and whether it would run
  treadle wasm run hello.wasm -m demo         run it
  treadle wasm call words.wasm count_words '{"text": "one two"}'     call a tool of a tool guest

exit codes of run: the guest's own, as far as it fits; 1 when it was stopped, 2 usage, 130 cancelled"""
EXIT_CODE_MAX = 125
_GRANTS = (
    ("--read", "DIR", "let it read this folder: HOST or HOST:/GUEST; it then runs in a process of its own"),
    ("--write", "DIR", "let it read and write this folder, likewise"),
    ("--env", "NAME", "let it see this variable of the environment, likewise"),
    ("--arg", "TEXT", "an argument of its command line, likewise"),
)


def describe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    run_guest = actions.add_parser("run", help="run a guest")
    run_guest.add_argument("guest", metavar="GUEST", help="a .wasm or .wat file, or the name of a [[guest]]")
    run_guest.add_argument("--isolation", choices=("thread", "process"), help="where it runs (default: as configured)")
    run_guest.add_argument("--grant", metavar="TOOL", action="append", default=[], help="let it offer this server tool")
    for flag, metavar, what in _GRANTS:
        run_guest.add_argument(flag, metavar=metavar, action="append", default=[], help=what)
    command.add_json_flag(run_guest)
    command.add_model_flag(run_guest)
    command.add_config_flags(run_guest)
    call = actions.add_parser("call", help="call one tool of a tool guest")
    call.add_argument("guest", metavar="GUEST", help="a .wasm or .wat file, or the name of a [[guest]]")
    call.add_argument("tool", metavar="TOOL", help="the tool")
    call.add_argument("arguments", metavar="ARGUMENTS", nargs="?", default="{}", help="its arguments as JSON")
    command.add_json_flag(call)
    command.add_config_flags(call)
    check = actions.add_parser("check", help="say what a guest is and whether it would run")
    check.add_argument("guest", metavar="FILE", help="a .wasm or .wat file")
    command.add_json_flag(check)
    new = actions.add_parser("new", help="write a first guest to start from")
    new.add_argument("file", metavar="FILE", type=Path, help="what to write: NAME.c, .wat, .ts, .js or .py")
    new.add_argument("--tools", action="store_true", help="a tool guest instead of a session guest")
    build = actions.add_parser("build", help="build a guest from C, AssemblyScript, JavaScript or Python")
    build.add_argument("file", metavar="FILE", type=Path, help="the .c, .ts, .js or .py file")
    build.add_argument("-o", "--output", metavar="FILE", type=Path, help="where to (default: FILE with .wasm)")


def run(args: argparse.Namespace) -> int:
    """Run the action."""
    match args.action:
        case "run":
            return _run(args)
        case "call":
            from treadle.cli.wasm_call import call_tool

            settings = command.read_flags(args).settings
            return call_tool(settings, args.guest, args.tool, args.arguments, as_json=args.json)
        case "check":
            from treadle.cli.wasm_check import check

            return check(args.guest, as_json=args.json)
        case "new":
            from treadle.cli.wasm_guest_kit import new

            return new(args.file, is_tools=args.tools)
        case _:
            from treadle.cli.wasm_guest_kit import build

            return build(args.file, args.output)


def _run(args: argparse.Namespace) -> int:
    from treadle.cli.commands.run_command import read_piped
    from treadle.config.cross_checks import check_model
    from treadle.terminal.conversation.interrupts import run_interruptible
    from treadle.wasm.engine.wasmtime_engine import load_wasmtime

    load_wasmtime()
    settings = command.read_flags(args).settings
    check_model(settings)
    command.quiet_logs()
    stdin = read_piped().encode("utf-8", "replace")
    return run_interruptible(lambda interrupts: _session(interrupts, settings, args, stdin))


async def _session(interrupts: "Interrupts", settings: "Settings", args: argparse.Namespace, stdin: bytes) -> int:
    from treadle.runtime import Parts, Runtime

    interrupts.watch()
    async with Runtime(settings, parts=Parts(is_attended=False)) as runtime:
        module = _module(settings, args)
        output: list[GuestOutput] = []
        on_output = output.append if args.json else show
        ended = await runtime.guests.run(module, stdin=stdin, on_output=on_output)
        await asyncio.sleep(0)
    return _report(module, ended, output, as_json=args.json)


def _module(settings: "Settings", args: argparse.Namespace) -> "GuestModule":
    """Return the configured guest of that name, else the file as a guest."""
    import os

    import msgspec

    from treadle.runtime import guest_limits, guest_modules
    from treadle.wasm.engine.wasi_grants import GrantWords, read_grant
    from treadle.wasm.guest_pool import GuestModule

    module = next((each for each in guest_modules(settings, os.environ) if each.name == args.guest), None)
    if module is None:
        module = GuestModule(
            name=Path(args.guest).stem,
            path=args.guest,
            isolation=settings.guests.isolation,
            engine=settings.guests.engine,
            limits=guest_limits(settings, is_tool=False),
        )
    arguments = (module.name, *args.arg) if args.arg else ()
    words = GrantWords(read=tuple(args.read), write=tuple(args.write), env=tuple(args.env), args=arguments)
    wasi = read_grant(words, os.environ) or module.wasi
    return msgspec.structs.replace(
        module,
        isolation=args.isolation or ("process" if wasi else module.isolation),
        wasi=wasi,
        grants=(*module.grants, *args.grant),
        model=args.model or module.model,
    )


def show(output: "GuestOutput") -> None:
    """Print what a guest prints, and its log on stderr."""
    from treadle.wasm.execution.thread_messages import LEVELS

    if output.stream == "log":
        print(f"[{LEVELS[output.level]}] {clean(output.text)}", file=sys.stderr)
    else:
        stream = sys.stdout if output.stream == "stdout" else sys.stderr
        stream.write(clean(output.text))
        stream.flush()


def _report(module: "GuestModule", ended: "ProgramEnded", output: "list[GuestOutput]", *, as_json: bool) -> int:
    import msgspec

    if as_json:
        document = {"guest": module.name, **msgspec.to_builtins(ended), "said": output}
        command.print_json(document)
    if ended.stop is not None:
        if not as_json:
            command.report(TreadleError(f"{module.name} was stopped ({ended.stop.code}): {ended.stop.message}"))
        return command.ERROR
    code = ended.exit_code or 0
    return code if 0 <= code <= EXIT_CODE_MAX else command.ERROR if code < 0 else command.OK
