"""The evaluations on this machine: read from their folder, whatever else lies there, and by nothing but its names."""

from pathlib import Path

import pytest

from treadle.config import ServerSection
from treadle.evals.results.result_folder import RunFolder
from treadle.evals.results.sample_rows import SampleRow
from unit.server.api.conftest import get, refused
from unit.server.api.scored import write
from unit.server.conftest import OpenApp

PATH = "/treadle/v1/evals"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs, and things that are none."""
    place = tmp_path / "runs"
    write(place, "1-old", 100.0, "pass")
    write(place, "2-new", 200.0, "pass", "fail", "broken")
    (place / "empty").mkdir()
    (place / "note.txt").write_text("no run")
    return place


async def test_runs_are_listed_newest_first_with_what_they_came_to(open_app: OpenApp, folder: Path) -> None:
    """What is no run is left out."""
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        runs = (await get(app, PATH)).json()["runs"]
    assert [(run["id"], run["name"], run["models"]) for run in runs] == [
        ("2-new", "new", ["m"]),
        ("1-old", "old", ["m"]),
    ]
    assert (runs[0]["outcomes"], runs[0]["cost_usd"]) == ({"pass": 1, "fail": 1, "broken": 1}, 1.5)


async def test_a_run_is_shown_with_its_samples(open_app: OpenApp, folder: Path) -> None:
    """In the order they were played, each with its verdicts."""
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        detail = (await get(app, f"{PATH}/2-new")).json()
    assert detail["run"]["started_at"] == 200.0
    assert [(each["scenario"], each["outcome"]) for each in detail["samples"]] == [
        ("s0", "pass"),
        ("s1", "fail"),
        ("s2", "broken"),
    ]
    assert detail["samples"][1]["verdicts"] == [{"grader": "state", "passed": False, "reason": "/foo"}]


async def test_a_sample_is_shown_with_what_happened_in_it(open_app: OpenApp, folder: Path) -> None:
    """Its runs as trees, and its world before and after; one without a transcript has none."""
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        detail = (await get(app, f"{PATH}/2-new/samples/s1/x.1")).json()
        bare = (await get(app, f"{PATH}/2-new/samples/s2/x.2")).json()
    [trace] = detail["runs"]
    assert (trace["question"], trace["rounds"][0]["text"]) == ("Set foo.", "Done.")
    assert trace["rounds"][0]["calls"][0]["name"] == "draft.patch"
    assert (detail["before"], detail["after"]) == ({"foo": ""}, {"foo": "bar"})
    assert (bare["sample"]["outcome"], bare["runs"]) == ("broken", [])


async def test_damaged_files_hide_themselves_and_nothing_else(open_app: OpenApp, folder: Path) -> None:
    """A cut line, a file that is no JSON, a transcript of another shape."""
    with (folder / "2-new" / "samples.jsonl").open("ab") as out:
        out.write(b'{"key":"cut')
    (folder / "1-old" / "run.json").write_bytes(b"\xff")
    next((folder / "2-new" / "transcripts").iterdir()).write_bytes(b"[]")
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        runs = (await get(app, PATH)).json()["runs"]
        keys = [each["key"] for each in (await get(app, f"{PATH}/2-new")).json()["samples"]]
        shown = [(await get(app, f"{PATH}/2-new/samples/{key}")).status for key in keys]
    assert [(run["id"], run["outcomes"].get("pass")) for run in runs] == [("2-new", 1), ("1-old", 1)]
    assert (len(keys), shown) == (3, [200] * 3)


@pytest.mark.parametrize(
    "path", ["/x", "/..", "/%2e%2e", "/empty", "/note.txt", "/2-new/samples/nothing", "/2-new/samples/../../run.json"]
)
async def test_nothing_outside_the_runs_can_be_named(open_app: OpenApp, folder: Path, path: str) -> None:
    """Not the folder above, not a file beside them, no sample that is not listed."""
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        assert refused(await get(app, f"{PATH}{path}"))[:2] == (404, "not_found")


async def test_a_folder_that_is_not_there_has_no_runs(open_app: OpenApp, tmp_path: Path) -> None:
    """Most machines have none."""
    async with open_app(server=ServerSection(evals=str(tmp_path / "none"))) as app:
        assert (await get(app, PATH)).json() == {"runs": [], "has_more": False}


async def test_runs_are_listed_page_by_page(open_app: OpenApp, folder: Path) -> None:
    """Each page names the run after which the next one goes on."""
    for number in range(3, 6):
        write(folder, f"{number}-more", number * 100.0, "pass")
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        first = (await get(app, f"{PATH}?limit=2")).json()
        second = (await get(app, f"{PATH}?limit=2&before=4-more")).json()
        last = (await get(app, f"{PATH}?limit=2&before=2-new")).json()
    pages = [([run["id"] for run in page["runs"]], page["has_more"]) for page in (first, second, last)]
    assert pages == [(["5-more", "4-more"], True), (["3-more", "2-new"], True), (["1-old"], False)]


@pytest.mark.parametrize(("query", "param"), [("limit=0", "limit"), ("limit=x", "limit"), ("before=none", "before")])
async def test_a_page_that_cannot_be_is_refused(open_app: OpenApp, folder: Path, query: str, param: str) -> None:
    """The answer names what was wrong."""
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        visit = await get(app, f"{PATH}?{query}")
    assert (visit.status, visit.json()["error"]["param"]) == (400, param)


async def test_samples_are_read_again_only_when_they_changed(
    open_app: OpenApp, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that is looked at often costs no reading; a run that goes on is counted as far as it is."""
    opened: list[Path] = []
    whole = Path.read_bytes

    def noted(file: Path) -> bytes:
        """Read a file, and note which."""
        opened.append(file)
        return whole(file)

    monkeypatch.setattr(Path, "read_bytes", noted)
    async with open_app(server=ServerSection(evals=str(folder))) as app:
        await get(app, PATH)
        opened.clear()
        await get(app, PATH)
        assert opened == []
        RunFolder(folder / "2-new").add(SampleRow(key="s9/x.9", scenario="s9", outcome="pass"), None)
        runs = (await get(app, PATH)).json()["runs"]
    assert opened == [folder / "2-new" / "samples.jsonl"]
    assert runs[0]["outcomes"] == {"pass": 2, "fail": 1, "broken": 1}
