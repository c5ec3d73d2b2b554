"""GET /treadle/v1/runs/{id}/trace: a run as a tree, while it goes on and when it has ended."""

from treadle.server.app import App
from unit.server.api.conftest import PATH, get, post, ran, refused
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel


async def test_a_run_that_ended_is_a_tree(app: App) -> None:
    """With the run itself, its question, and its rounds down to the calls."""
    run_id = await ran(app)
    visit = await get(app, f"{PATH}/{run_id}/trace")
    tree = visit.json()
    assert (visit.status, visit.headers["cache-control"]) == (200, "no-store")
    assert (tree["run"]["id"], tree["run"]["status"]) == (run_id, "completed")
    assert tree["run"]["question"] == tree["trace"]["question"] == "What is the weather in Paris?"
    first, second = tree["trace"]["rounds"]
    assert [(call["name"], call["state"]) for call in first["calls"]] == [("get_weather", "done")]
    assert (first["number"], second["number"], second["calls"]) == (1, 2, [])
    assert tree["now"] >= tree["run"]["ended_at"]


async def test_a_run_that_goes_on_is_a_tree_too(open_app: OpenApp) -> None:
    """Its open model call is going."""
    model = HeldModel()
    async with open_app(model) as app:
        run_id = (await post(app, PATH, {"input": "Hello"})).json()["id"]
        tree = (await get(app, f"{PATH}/{run_id}/trace")).json()
        assert (tree["run"]["status"], [each["state"] for each in tree["trace"]["rounds"]]) == ("running", ["going"])


async def test_a_run_that_is_not_there_has_no_tree(app: App) -> None:
    """It is refused by name."""
    assert refused(await get(app, f"{PATH}/run_x/trace"))[:2] == (404, "not_found")
