"""A stored run once more over HTTP: forked, proved, run again with its tools, exported in every form."""

from pathlib import Path

import pytest

from treadle.evals.scenario_from_run import scenario_of, write_scenario
from treadle.journal.jsonl_export import read_runs
from treadle.providers.cassettes.file_format import load_cassette
from treadle.server.app import App
from unit.server.api.conftest import PATH, get, post, ran, refused
from unit.server.conftest import OpenApp
from unit.server.held import HeldModel


async def test_a_run_is_forked_from_any_of_its_rounds(app: App) -> None:
    """The new run has what was said before the round, and goes on by itself."""
    run_id = await ran(app)
    visit = await post(app, f"{PATH}/{run_id}/fork", {"round": 2})
    forked = visit.json()["id"]
    assert (visit.status, visit.headers["location"]) == (201, f"{PATH}/{forked}")
    await get(app, f"{PATH}/{forked}/events")
    tree = (await get(app, f"{PATH}/{forked}/trace")).json()
    assert (tree["run"]["status"], len(tree["trace"]["rounds"])) == ("completed", 1)
    assert [note["code"] for note in tree["trace"]["notes"]] == ["forked"]


async def test_a_run_is_forked_from_its_beginning_unless_told(app: App) -> None:
    """An empty body is enough."""
    run_id = await ran(app)
    forked = (await post(app, f"{PATH}/{run_id}/fork")).json()["id"]
    await get(app, f"{PATH}/{forked}/events")
    assert len((await get(app, f"{PATH}/{forked}/trace")).json()["trace"]["rounds"]) == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"round": 9}, 400),
        ({"round": 0}, 400),
        ({"round": "x"}, 400),
        ({"rounds": 1}, 400),
    ],
)
async def test_a_fork_that_cannot_be_is_refused(open_app: OpenApp, body: dict[str, object], status: int) -> None:
    """A round it does not have, a field that is none; and nothing is started."""
    async with open_app() as app:
        run_id = await ran(app)
        assert (await post(app, f"{PATH}/{run_id}/fork", body)).status == status
        assert len((await get(app, PATH)).json()["runs"]) == 1


async def test_a_replay_proves_that_a_run_takes_the_same_way(app: App) -> None:
    """Nothing is asked, no tool runs, and no new run is made."""
    run_id = await ran(app)
    proof = (await post(app, f"{PATH}/{run_id}/replay")).json()
    assert (proof["run"], proof["is_same"], proof["problem"]) == (run_id, True, None)
    assert (proof["rounds"], proof["calls"]) == (2, 1)
    assert len((await get(app, PATH)).json()["runs"]) == 1


async def test_the_tools_of_a_run_run_again_in_a_new_one(app: App) -> None:
    """The model says what it said."""
    run_id = await ran(app)
    visit = await post(app, f"{PATH}/{run_id}/replay", {"live_tools": True})
    again = visit.json()["id"]
    await get(app, f"{PATH}/{again}/events")
    trees = [(await get(app, f"{PATH}/{each}/trace")).json()["trace"]["rounds"] for each in (run_id, again)]
    assert visit.status == 201
    assert [each["text"] for each in trees[0]] == [each["text"] for each in trees[1]]
    assert trees[1][0]["calls"][0]["state"] == "done"


@pytest.mark.parametrize("deed", ["fork", "replay", "export?format=cassette"])
async def test_what_needs_an_end_waits_for_it(open_app: OpenApp, deed: str) -> None:
    """A run that goes on is neither forked nor proved nor exported as something that plays."""
    async with open_app(HeldModel()) as app:
        run_id = (await post(app, PATH, {"input": "Hello"})).json()["id"]
        visit = await (get if "export" in deed else post)(app, f"{PATH}/{run_id}/{deed}")
        assert visit.status in (400, 409)
        assert "going on" in visit.json()["error"]["message"]


@pytest.mark.parametrize("deed", ["fork", "replay"])
async def test_a_server_that_leaves_starts_nothing(app: App, deed: str) -> None:
    """As with any other run."""
    run_id = await ran(app)
    app.service.is_draining = True
    visit = await post(app, f"{PATH}/{run_id}/{deed}", {"live_tools": True} if deed == "replay" else None)
    assert refused(visit)[:2] == (503, "shutting_down")


async def test_a_run_is_exported_as_its_journal(app: App) -> None:
    """The lines that `treadle export` writes, under a name of its own."""
    run_id = await ran(app)
    visit = await get(app, f"{PATH}/{run_id}/export")
    assert visit.headers["content-disposition"] == f'attachment; filename="{run_id}.jsonl"'
    [exported] = read_runs(visit.body.splitlines(keepends=True))
    assert exported.row.id == run_id


async def test_a_run_is_exported_as_a_cassette_that_can_be_played(app: App, tmp_path: Path) -> None:
    """One call for each round."""
    run_id = await ran(app)
    file = tmp_path / "run.jsonl"
    file.write_bytes((await get(app, f"{PATH}/{run_id}/export?format=cassette")).body)
    assert len(load_cassette(file, "x").calls) == 2


async def test_a_run_is_exported_as_a_scenario_where_one_can_be_written(app: App) -> None:
    """The room that writes scenarios is above the server and hands its pen down."""
    run_id = await ran(app)
    assert refused(await get(app, f"{PATH}/{run_id}/export?format=scenario")) == (404, "not_found", "format")
    app.service.write_scenario = lambda runs: write_scenario(scenario_of(runs))
    visit = await get(app, f"{PATH}/{run_id}/export?format=scenario")
    assert visit.headers["content-type"].startswith("application/toml")
    assert b"get_weather" in visit.body


async def test_another_form_of_export_is_refused(app: App) -> None:
    """By its field."""
    run_id = await ran(app)
    assert refused(await get(app, f"{PATH}/{run_id}/export?format=pdf")) == (400, "invalid_value", "format")
