"""Treadle keeps a tool-calling loop turning: any client, any model, tools run safely, every step kept.

`from treadle import Runtime, tool` is where a program starts. Names are imported when they are first used, so that
a command that needs few of them starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treadle.moved_modules import install

if TYPE_CHECKING:
    from treadle.config import Settings, load_settings
    from treadle.core.errors import TreadleError
    from treadle.core.events import RunEnded, RunEvent, RunStarted, TextDelta, ToolFinished, ToolStarted
    from treadle.core.usage import Usage
    from treadle.runtime import Runtime
    from treadle.tools import Tool, ToolContext, file, image, tool

__all__ = [
    "RunEnded",
    "RunEvent",
    "RunStarted",
    "Runtime",
    "Settings",
    "TextDelta",
    "Tool",
    "ToolContext",
    "ToolFinished",
    "ToolStarted",
    "TreadleError",
    "Usage",
    "file",
    "image",
    "load_settings",
    "tool",
]

_HOME = {
    "RunEnded": "treadle.core.events",
    "RunEvent": "treadle.core.events",
    "RunStarted": "treadle.core.events",
    "Runtime": "treadle.runtime",
    "Settings": "treadle.config",
    "TextDelta": "treadle.core.events",
    "Tool": "treadle.tools",
    "ToolContext": "treadle.tools",
    "ToolFinished": "treadle.core.events",
    "ToolStarted": "treadle.core.events",
    "TreadleError": "treadle.core.errors",
    "Usage": "treadle.core.usage",
    "file": "treadle.tools",
    "image": "treadle.tools",
    "load_settings": "treadle.config",
    "tool": "treadle.tools",
}

install()


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'treadle' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
