"""A guest's open handles: its conversations and answers, under numbers that are never reused.

Holds state and its limits only; it neither runs models nor accesses a guest's memory.
"""

from typing import Any

import msgspec

from treadle.core.items import AnyItem, CallItem
from treadle.core.tool_definitions import ToolSpec
from treadle.wasm.cchat_abi import FIRST_FD
from treadle.wasm.cchat_parameters import KNOWN, CchatParameter


class GuestTool(msgspec.Struct, frozen=True, kw_only=True):
    """A guest function that the model may call: a slot of its table, or an export if the offset is negative."""

    spec: ToolSpec
    offset: int


class GuestChat:
    """One conversation of a guest."""

    def __init__(self) -> None:
        self.items: list[AnyItem] = []
        self.tools: dict[str, GuestTool] = {}
        self.open_calls: dict[str, CallItem] = {}
        self.metrics = b"{}"
        self._values: dict[str, Any] = {}
        self._upstream: dict[str, msgspec.Raw] = {}

    def set(self, parameter: CchatParameter) -> None:
        """Store a setting."""
        if parameter.upstream:
            self._upstream[parameter.key] = parameter.value
        else:
            self._values[parameter.key] = msgspec.json.decode(parameter.value)

    def get(self, key: str) -> Any:
        """Return one of Treadle's own settings, or its default."""
        return self._values.get(key, KNOWN[key].default)

    def chosen(self, key: str) -> Any:
        """Return one of Treadle's own settings only if the guest set it."""
        return self._values.get(key)

    @property
    def upstream(self) -> dict[str, msgspec.Raw]:
        """Return the settings that are sent to the provider."""
        return dict(self._upstream)


class GuestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a send; it can be received repeatedly until closed."""

    body: bytes
    metrics: bytes


class Handles:
    """The handles of one guest, numbered from 1000."""

    def __init__(self, open_max: int) -> None:
        self._open_max = open_max
        self._open: dict[int, GuestChat | GuestAnswer] = {}
        self._next = FIRST_FD

    @property
    def is_full(self) -> bool:
        """Return whether the limit of open handles is reached."""
        return len(self._open) >= self._open_max

    def open(self, thing: GuestChat | GuestAnswer) -> int:
        """Open a handle and return its number."""
        fd, self._next = self._next, self._next + 1
        self._open[fd] = thing
        return fd

    def get(self, fd: int) -> GuestChat | GuestAnswer | None:
        """Return the object of a handle, or None."""
        return self._open.get(fd)

    def chat(self, fd: int) -> GuestChat | None:
        """Return the conversation of a handle, or None."""
        found = self._open.get(fd)
        return found if isinstance(found, GuestChat) else None

    def close(self, fd: int) -> bool:
        """Close a handle; False if it was not open."""
        return self._open.pop(fd, None) is not None

    def was_open(self, fd: int) -> bool:
        """Return whether the number was ever assigned."""
        return FIRST_FD <= fd < self._next
