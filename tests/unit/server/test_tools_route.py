"""/treadle/v1/tools: each tool with its effective policy and who said so, and what was turned off."""

from typing import Any

from treadle.config import ToolsSection
from treadle.config.settings import LocalSection, PolicySection, ToolRule
from unit.server.conftest import OpenApp
from unit.server.visit import Visit

RULES = (
    ToolRule(match=("get_weather",), retries=2, approval="always"),
    ToolRule(match=("convert",), enabled=False, name="no games"),
)


async def listed(open_app: OpenApp, path: str = "/treadle/v1/tools", **tools: Any) -> Visit:
    """Ask an application with these settings of tools."""
    async with open_app(tools=ToolsSection(**tools), policy=PolicySection()) as app:
        return await Visit(app, "GET", path).run()


async def test_a_policy_comes_with_the_reason_of_each_field(open_app: OpenApp) -> None:
    """Declared, by a rule, or by default; whether a person is asked, and where it runs."""
    found = (await listed(open_app, rule=RULES)).json()
    weather = next(tool for tool in found["tools"] if tool["spec"]["name"] == "get_weather")
    assert (weather["policy"]["retries"], weather["needs_approval"], weather["sandbox"]) == (2, True, "none")
    assert weather["why"]["retries"] == weather["why"]["approval"] == "[[tools.rule]] #1"
    assert (weather["why"]["effect"], weather["why"]["egress"]) == ("declared", "default")
    assert set(weather["why"]) == set(weather["policy"])


async def test_what_a_rule_takes_away_is_listed_apart(open_app: OpenApp) -> None:
    """It is offered to nobody, and it is said who took it away."""
    found = (await listed(open_app, rule=RULES)).json()
    assert found["off"] == [{"name": "convert", "source": "python", "why": "no games"}]
    assert "convert" not in [tool["spec"]["name"] for tool in found["tools"]]
    everything_off = (await listed(open_app, enabled=False)).json()
    assert everything_off["tools"] == []


async def test_one_tool_is_found_by_its_name(open_app: OpenApp) -> None:
    """One that is not there, or off, is 404 with the nearest names."""
    one = (await listed(open_app, "/treadle/v1/tools/get_weather", rule=RULES)).json()
    assert (one["spec"]["name"], one["why"]["retries"]) == ("get_weather", "[[tools.rule]] #1")
    for name in ("get_wether", "convert"):
        visit = await listed(open_app, f"/treadle/v1/tools/{name}", rule=RULES)
        assert (visit.status, name in visit.json()["error"]["message"]) == (404, True)
    hint = (await listed(open_app, "/treadle/v1/tools/get_wether", rule=RULES)).json()["error"]
    assert "get_weather" in str(hint)


async def test_local_tools_name_their_sandbox(open_app: OpenApp, tmp_path: Any) -> None:
    """File tools are held below their root; what runs a program has the level that was found."""
    local = LocalSection(enabled=("file_read", "grep"), root=str(tmp_path))
    found = (await listed(open_app, local=local)).json()["tools"]
    words = {tool["spec"]["name"]: tool["sandbox"] for tool in found}
    assert words["file_read"] == "root"
    assert words["grep"] in ("L0", "L1", "L2")
