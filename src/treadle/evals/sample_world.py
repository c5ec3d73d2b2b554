"""A small world of things: files, orders, a phone that must be on, a long log, and work that never ends by itself."""

import asyncio
from typing import Any

from treadle.core.errors import ToolFailed
from treadle.core.tool_definitions import ToolPolicy
from treadle.evals.constant_tools import READ, WRITE, Named
from treadle.evals.scenario_file import ScenarioWorld
from treadle.workspace.json_pointer import Json

LONG_S = 60.0
_FILE = ("file:{path}",)


class Things:
    """What there is beside the workspace, and the tools that act on it. `release` ends what would never end."""

    def __init__(self, world: ScenarioWorld) -> None:
        self._files = dict(world.files)
        self._orders = dict(world.orders)
        self._phone_on = world.phone_on
        self._sent: list[Json] = []
        self._log_lines = world.log_lines
        self._shown = frozenset(
            name
            for name, is_there in (
                ("files", bool(world.files)),
                ("orders", bool(world.orders)),
                ("phone", not world.phone_on),
            )
            if is_there
        )
        self._released = asyncio.Event()

    def release(self) -> None:
        """Let the long tools end at once from now on."""
        self._released.set()

    def document(self) -> dict[str, Json]:
        """Return the things as `state` expectations see them: those that the scenario names, or that were touched."""
        whole: dict[str, Json] = {
            "files": dict(self._files),
            "orders": dict(self._orders),
            "phone": {"on": self._phone_on, "sent": list(self._sent)},
        }
        touched = {
            "files": bool(self._files),
            "orders": bool(self._orders),
            "phone": bool(self._sent) or not self._phone_on,
        }
        return {name: value for name, value in whole.items() if name in self._shown or touched[name]}

    def tools(self) -> Named:
        """Return the tools by name."""
        return {
            "file.read": (self._read, ToolPolicy(effect="read", parallel=True, resources=_FILE)),
            "file.write": (self._write, ToolPolicy(effect="write", parallel=True, resources=_FILE)),
            "orders.find": (self._find_order, READ),
            "orders.cancel": (self._cancel_order, WRITE),
            "phone.power": (self._power, WRITE),
            "phone.send": (self._send, WRITE),
            "log.read": (self._read_log, READ),
            "long.read": (self._long_read, ToolPolicy(effect="read", timeout_s=LONG_S)),
            "long.write": (self._long_write, ToolPolicy(effect="write", timeout_s=LONG_S)),
        }

    def _read(self, path: str) -> str:
        """Read a file."""
        if path not in self._files:
            raise ToolFailed(f"There is no file {path!r}.", code="not_found")
        return self._files[path]

    def _write(self, path: str, content: str) -> str:
        """Write a file, whole."""
        self._files[path] = content
        return f"{len(content)} characters written to {path}."

    def _find_order(self, customer: str) -> Any:
        """Find the open order of a customer; gives its id."""
        for order, owner in self._orders.items():
            if owner.casefold() == customer.casefold():
                return {"order_id": order, "customer": owner}
        raise ToolFailed(f"{customer!r} has no open order.", code="not_found")

    def _cancel_order(self, order_id: str) -> str:
        """Cancel an order by its id."""
        if order_id not in self._orders:
            raise ToolFailed(f"There is no order {order_id!r}.", code="not_found")
        del self._orders[order_id]
        return f"Order {order_id} is cancelled."

    def _power(self, on: bool) -> str:
        """Turn the phone on or off."""
        self._phone_on = on
        return f"The phone is {'on' if on else 'off'}."

    def _send(self, to: str, text: str) -> str:
        """Send a message with the phone."""
        if not self._phone_on:
            raise ToolFailed("The phone is off.", code="phone_off")
        self._sent.append({"to": to, "text": text})
        return f"Sent to {to}."

    def _read_log(self, start: int = 1, count: int = 1000) -> str:
        """Read lines of the log, `count` of them from line `start` on."""
        last = min(self._log_lines, start + count - 1)
        return "\n".join(f"line {number}: {'ERROR' if number == 417 else 'ok'}" for number in range(start, last + 1))

    async def _long_read(self) -> str:
        """Look for a long time; changes nothing."""
        await self._released.wait()
        return "looked"

    async def _long_write(self) -> str:
        """Work for a long time, and change something."""
        await self._released.wait()
        return "written"
