"""Applications with a run in them to look at, and short ways to ask."""

from typing import Any

import msgspec

from treadle import tool
from treadle.server.app import App
from unit.server.visit import JSON_TYPE, LOCAL, Visit

PATH = "/treadle/v1/runs"


@tool(effect="read")
def get_price(article: str) -> float:
    """Tell a price."""
    return 12.5


async def get(app: App, path: str) -> Visit:
    """Read something."""
    return await Visit(app, "GET", path).run()


async def post(app: App, path: str, body: Any = None) -> Visit:
    """Change something."""
    data = b"" if body is None else msgspec.json.encode(body)
    return await Visit(app, "POST", path, headers=[LOCAL, JSON_TYPE], body=data).run()


async def ran(app: App, question: str = "What is the weather in Paris?", **more: Any) -> str:
    """Run a question to its end and return the run."""
    run_id: str = (await post(app, PATH, {"input": question, **more})).json()["id"]
    await get(app, f"{PATH}/{run_id}/events")
    return run_id


def refused(visit: Visit) -> tuple[int, str, str | None]:
    """Return status, code and field of a refusal."""
    error = visit.json()["error"]
    return visit.status, error["code"], error["param"]
