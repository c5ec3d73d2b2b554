"""Calls one tool of a WASM guest as a run would: with checked arguments, in a fresh instance, within its limits."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli import command_base as command
from treadle.core.errors import NotFound
from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext, Outcome
from treadle.terminal.rendering.sanitize import clean
from treadle.tools import ToolRegistry, ToolRunner
from treadle.wasm.engine.compiler import Compiler
from treadle.wasm.execution.thread_messages import GuestOutput
from treadle.wasm.guest_pool import GuestModule, GuestPool
from treadle.wasm.tool_modules import ToolGuest

if TYPE_CHECKING:
    from treadle.config import Settings


def call_tool(settings: "Settings", guest: str, tool: str, arguments: str, *, as_json: bool) -> int:
    """Call a tool and print the result that a model would get.

    Raises: NotFound, ConfigError, BadGuest.
    """
    outcome = asyncio.run(_call(settings, _module(settings, guest), tool, arguments))
    if as_json:
        command.print_json(outcome)
    else:
        print(clean(outcome.text))
    return command.ERROR if outcome.is_error else command.OK


def _module(settings: "Settings", guest: str) -> GuestModule:
    """Return the configured tool guest of that name, else the file as one."""
    from treadle.runtime import guest_limits, guest_modules

    configured = (each for each in guest_modules(settings, os.environ) if each.kind == "tools")
    found = next((each for each in configured if each.name == guest), None)
    return found or GuestModule(
        name=Path(guest).stem,
        path=guest,
        kind="tools",
        isolation=settings.guests.isolation,
        engine=settings.guests.engine,
        limits=guest_limits(settings, is_tool=True),
    )


async def _call(settings: "Settings", module: GuestModule, tool: str, arguments: str) -> Outcome:
    from treadle.runtime import SystemClock
    from treadle.runtime.toolset import compiled_folder

    quarters = GuestPool(Compiler(compiled_folder(settings, os.environ)))
    registry = ToolRegistry(ToolGuest(quarters, module, on_output=_show).tools())
    if registry.get(tool) is None:
        known = ", ".join(each.name for each in registry.tools())
        raise NotFound(f"{module.name} has no tool {tool!r}", param="tool", hint=f"there is {known}")
    runner = ToolRunner(registry, clock=SystemClock())
    try:
        item = CallItem(call_id="call_1", name=tool, arguments=arguments)
        return await runner.run(item, CallContext(run_id="", call_id="call_1"))
    finally:
        runner.close()
        await quarters.close()


def _show(said: GuestOutput) -> None:
    from treadle.cli.commands.wasm_command import show

    show(said)
