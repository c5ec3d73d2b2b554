"""What could not be carried: told in a header, and refused where a client asks for that."""

from typing import Any

import msgspec
import pytest

from treadle.config import LimitsSection, ToolsSection
from treadle.server.app import App
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel
from unit.server.visit import JSON_TYPE, LOCAL, Visit

TWICE = [{"type": "function", "name": "look", "description": text} for text in ("one", "other")]
"""Two tools of one name, of which only the second can be offered."""

STRICT = ("x-treadle-strict-fidelity", "true")
LAX = ("x-treadle-strict-fidelity", "false")


def _ask(app: App, *headers: tuple[str, str], **fields: Any) -> Visit:
    body = {"model": "demo", "input": "Hello", **fields}
    return Visit(app, "POST", "/v1/responses", headers=[LOCAL, JSON_TYPE, *headers], body=msgspec.json.encode(body))


async def _runs(app: App) -> int:
    return len((await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"])


@pytest.mark.parametrize("stream", [True, False])
async def test_what_was_dropped_is_named_in_a_header(app: App, stream: bool) -> None:
    """By number; a request that was carried whole is exact."""
    lossy, whole = await _ask(app, tools=TWICE, stream=stream).run(), await _ask(app, stream=stream).run()
    assert (lossy.status, lossy.headers["x-treadle-fidelity"]) == (200, "dropped=1")
    assert (whole.status, whole.headers["x-treadle-fidelity"]) == (200, "exact")


async def test_a_strict_request_that_loses_something_is_refused(app: App) -> None:
    """Before a run is made of it, with what was lost and where; one that loses nothing is answered."""
    visit = await _ask(app, STRICT, tools=TWICE).run()
    error = visit.json()["error"]
    assert (visit.status, error["code"], error["param"]) == (400, "unsupported_feature", "tools[1]")
    assert "look" in error["message"]
    assert await _runs(app) == 0
    assert (await _ask(app, STRICT).run()).status == 200


async def test_strictness_is_configured_and_a_request_may_differ(open_app: OpenApp) -> None:
    """The header wins over the setting, both ways."""
    async with open_app(strict_fidelity=True) as app:
        assert (await _ask(app, tools=TWICE).run()).status == 400
        assert (await _ask(app, LAX, tools=TWICE).run()).status == 200


async def test_what_only_the_run_finds_out_is_refused_too(open_app: OpenApp) -> None:
    """A server tool that does not fit is known when the run has been made; that run is then cancelled."""
    sections = {"limits": LimitsSection(tools_max=1), "tools": ToolsSection(load=("treadle.tools.demo_tools",))}
    async with open_app(HeldModel(), **sections) as app:
        visit = await _ask(app, STRICT).run()
        (run,) = (await Visit(app, "GET", "/treadle/v1/runs").run()).json()["runs"]
    assert (visit.status, visit.json()["error"]["code"]) == (400, "unsupported_feature")
    assert run["status"] == "cancelled"
