"""The list of runs: narrowed by what a run was and what was said in it, with what it was asked and what it cost."""

import pytest

from store.sample import run_row
from treadle.config.settings import Price
from treadle.server.api import run_routes as runs
from treadle.server.app import App
from unit.server.api.conftest import PATH, get, ran, refused
from unit.server.conftest import OpenApp
from unit.server.test_approvals import ask


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["sum", "weather"]),
        ("?tool=get_weather", ["weather"]),
        ("?tool=nothing", []),
        ("?model=demo", ["sum", "weather"]),
        ("?model=other", []),
        ("?text=PARIS", ["weather"]),
        ("?status=completed&text=add", ["sum"]),
        ("?status=waiting", []),
        ("?error=", []),
        ("?error=timeout", []),
        ("?since=1", ["sum", "weather"]),
        ("?since=99999999999", []),
        ("?text=", ["sum", "weather"]),
    ],
)
async def test_runs_are_narrowed_and_say_what_was_asked(app: App, query: str, names: list[str]) -> None:
    """Each filter alone and together with others; an empty text narrows nothing."""
    asked = {"What is the weather in Paris?": "weather", "Add 2 and 3": "sum"}
    for question in asked:
        await ran(app, question)
    page = (await get(app, f"{PATH}{query}")).json()
    assert [asked[run["question"]] for run in page["runs"]] == names
    assert not page["has_more"]


async def test_pages_of_runs_that_wait_are_full(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that go on without anybody between them make no page shorter."""
    monkeypatch.setattr(runs, "PAGE_MAX", 2)
    store = app.service.runtime.store
    for n in range(9):
        await store.start_run(run_row(str(n), key_id=""), [], owner="me", lease_s=60)
        if n % 4 == 0:
            await ask(store, f"apr_{n}", f"run_{n}", "a")
    pages = [(await get(app, f"{PATH}?status=waiting&limit=2{more}")).json() for more in ("", "&before=run_4")]
    assert [[run["id"] for run in page["runs"]] for page in pages] == [["run_8", "run_4"], ["run_0"]]
    assert [page["has_more"] for page in pages] == [True, False]
    assert {run["status"] for page in pages for run in page["runs"]} == {"waiting"}


async def test_a_page_ends_where_the_next_begins(app: App) -> None:
    """With filters as without."""
    runs = [await ran(app, f"Add {n} and 3") for n in range(3)]
    first = (await get(app, f"{PATH}?text=add&limit=2")).json()
    second = (await get(app, f"{PATH}?text=add&limit=2&before={first['runs'][-1]['id']}")).json()
    assert [run["id"] for run in (*first["runs"], *second["runs"])] == list(reversed(runs))
    assert (first["has_more"], second["has_more"]) == (True, False)


@pytest.mark.parametrize(
    ("query", "field"),
    [("status=done", "status"), ("since=soon", "since"), ("since=-1", "since"), (f"text={'x' * 501}", "text")],
)
async def test_a_filter_that_cannot_be_is_named(app: App, query: str, field: str) -> None:
    """In the envelope of this API."""
    visit = await get(app, f"{PATH}?{query}")
    assert (visit.status, refused(visit)[2]) == (400, field)


async def test_a_run_says_what_it_cost_where_that_is_known(open_app: OpenApp) -> None:
    """By the first price that matches; unknown is no zero."""
    prices = (Price(model="demo", input=1_000_000.0, output=0.0), Price(model="*", input=5.0, output=5.0))
    async with open_app(price=prices) as app:
        await ran(app)
        [run] = (await get(app, PATH)).json()["runs"]
        assert run["cost_usd"] == run["usage"]["input_tokens"] > 0
    async with open_app(price=(Price(model="other", input=1.0, output=1.0),)) as app:
        assert (await get(app, PATH)).json()["runs"][0]["cost_usd"] is None
