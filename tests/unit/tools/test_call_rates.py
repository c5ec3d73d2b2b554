"""How often a tool may be called: by one key, in the last minute."""

import pytest

from treadle.core.errors import ToolError
from treadle.core.items import CallItem
from treadle.core.tool_definitions import CallContext
from treadle.tools import ToolRegistry, ToolRunner, tool
from treadle.tools import call_rates as rates
from treadle.tools.call_rates import CallRates


def test_calls_over_the_rate_are_refused_until_the_minute_is_over() -> None:
    """The window slides, and a call that was refused does not count."""
    counted = CallRates()
    for now in (0.0, 10.0):
        counted.take("get", 2, "", now)
    for now in (11.0, 59.0):
        with pytest.raises(ToolError, match="2 times a minute") as caught:
            counted.take("get", 2, "", now)
        assert caught.value.info.code == "rate_limited"
    counted.take("get", 2, "", 60.0)
    with pytest.raises(ToolError, match="again in 10 s"):
        counted.take("get", 2, "", 60.0)


def test_keys_and_tools_are_counted_apart() -> None:
    """One key cannot use up another's calls; 0 is without bound."""
    counted = CallRates()
    for tool_name, key in (("get", "a"), ("get", "b"), ("put", "a")):
        counted.take(tool_name, 1, key, 0.0)
    with pytest.raises(ToolError):
        counted.take("get", 1, "b", 1.0)
    for _ in range(1_000):
        counted.take("free", 0, "a", 0.0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many keys the one that was quiet longest is forgotten."""
    monkeypatch.setattr(rates, "WINDOWS_MAX", 2)
    counted = CallRates()
    for key in ("a", "b", "c"):
        counted.take("get", 1, key, 0.0)
    counted.take("get", 1, "a", 0.0)
    with pytest.raises(ToolError):
        counted.take("get", 1, "c", 0.0)


class Clock:
    """Stands still."""

    def monotonic(self) -> float:
        """Return the same moment."""
        return 5.0

    async def sleep(self, seconds: float) -> None:
        """Never wait."""


async def test_the_runner_keeps_to_the_rate_of_each_key() -> None:
    """The model reads that the tool was not run, and when it can be again; bad arguments use nothing up."""
    ran: list[int] = []

    @tool(effect="read", rate_per_min=1)
    def get(n: int) -> int:
        """Get something."""
        ran.append(n)
        return n

    runner = ToolRunner(ToolRegistry([get]), clock=Clock())

    async def call(arguments: str, key: str) -> str:
        item = CallItem(call_id="c", name="get", arguments=arguments)
        return (await runner.run(item, CallContext(run_id="r", key_id=key))).text

    assert "invalid_arguments" in await call("{}", "a")
    assert await call('{"n":1}', "a") == "1"
    assert '"rate_limited"' in await call('{"n":2}', "a")
    assert await call('{"n":3}', "b") == "3"
    assert ran == [1, 3]
    runner.close()
