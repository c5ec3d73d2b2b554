"""What a guest has open: its conversations and the answers it got, behind numbers that are never used twice.

Only state and its bounds are here; nothing asks a model and nothing touches a guest's memory.
"""

from typing import Any

import msgspec

from treadle.core.items import AnyItem, CallItem
from treadle.core.tool_definitions import ToolSpec
from treadle.wasm.cchat_abi import FIRST_FD
from treadle.wasm.cchat_parameters import KNOWN, CchatParameter


class GuestTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the guest that the model may call: a slot of its table, or an export for a negative offset."""

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
        """Take a setting."""
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
        """Return the settings that are the model's."""
        return dict(self._upstream)


class GuestAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a send gave; it can be received again and again until it is closed."""

    body: bytes
    metrics: bytes


class Handles:
    """The numbers of a guest, from 1000 up."""

    def __init__(self, open_max: int) -> None:
        self._open_max = open_max
        self._open: dict[int, GuestChat | GuestAnswer] = {}
        self._next = FIRST_FD

    @property
    def is_full(self) -> bool:
        """Tell whether no more can be opened."""
        return len(self._open) >= self._open_max

    def open(self, thing: GuestChat | GuestAnswer) -> int:
        """Give it a number."""
        fd, self._next = self._next, self._next + 1
        self._open[fd] = thing
        return fd

    def get(self, fd: int) -> GuestChat | GuestAnswer | None:
        """Return what is open under a number."""
        return self._open.get(fd)

    def chat(self, fd: int) -> GuestChat | None:
        """Return the conversation under a number."""
        found = self._open.get(fd)
        return found if isinstance(found, GuestChat) else None

    def close(self, fd: int) -> bool:
        """Close a number; False if it was not open."""
        return self._open.pop(fd, None) is not None

    def was_open(self, fd: int) -> bool:
        """Tell whether the number was ever given out."""
        return FIRST_FD <= fd < self._next
