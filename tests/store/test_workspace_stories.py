"""Workspaces under random stories and racing writers, on every store, and by two processes on one database."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from postgres import postgres_server
from store.sample import SetClock
from treadle.core.errors import Conflict, TreadleError, WorkspaceConflict
from treadle.core.ids import CountingIds
from treadle.journal.journal_interface import Store
from treadle.journal.postgres.store import PostgresStore
from treadle.journal.sqlite.store import SqliteStore
from treadle.journal.store_url import PostgresAddress
from treadle.journal.workspaces_interface import DECIDED, MOVED
from treadle.workspace.json_pointer import find_at
from treadle.workspace.workspace_diff import equal
from treadle.workspace.workspace_service import Consent, Workspaces
from treadle.workspace.workspace_state import Change, Workspace
from treadle.workspace.workspace_store import Author

MODEL = Author(actor="model", who="demo", run_id="run_1")
STEPS = 60
RACERS = 16
PLACES = ("/a", "/a/b", "/a/b/0", "/list", "/list/0", "/list/1", "/new")
VALUES: tuple[Any, ...] = (0, 1, True, None, "x", {}, {"b": 1}, [], [1, 2], {"b": [0]})
OPERATIONS: Any = ("set", "set", "set", "delete", "append", "insert")
DEEDS = ("patch", "patch", "propose", "propose", "confirm", "confirm", "reject", "lock", "unlock", "restore", "expire")
Pair = tuple[Workspaces, Workspaces]


class Story:
    """Random steps on one workspace, some of them refused; all versions that were seen are kept."""

    def __init__(self, desk: Workspaces, clock: SetClock, seed: int) -> None:
        self._desk = desk
        self._clock = clock
        self._random = random.Random(seed)
        self.seen: dict[int, Workspace] = {}
        self.refused = 0

    async def begin(self) -> None:
        """Make the workspace."""
        start: dict[str, Any] = {"a": {"b": [0]}, "list": [0, 1]}
        held = await self._desk.create("story", sections={"facts": start, "draft": start})
        self.seen[0] = held.workspace

    async def step(self) -> None:
        """Try something, and check what it did."""
        before = (await self._desk.get("story")).workspace
        deed = self._random.choice(DEEDS)
        try:
            await self._do(deed, before)
        except TreadleError:
            self.refused += 1
        after = (await self._desk.get("story")).workspace
        self.seen[after.version] = after
        if deed not in ("unlock", "restore"):
            for path in before.locks:
                assert equal(find_at(before.document(), path), find_at(after.document(), path))
        if after.facts != before.facts:
            assert deed in ("confirm", "restore")
        assert after.version >= before.version

    def _changes(self, section: str) -> list[Change]:
        pick = self._random.choice
        count = self._random.randint(1, 2)
        return [Change(path=f"/{section}{pick(PLACES)}", op=pick(OPERATIONS), value=pick(VALUES)) for _ in range(count)]

    async def _do(self, deed: str, now: Workspace) -> None:
        desk, path = self._desk, f"/{self._random.choice(('facts', 'draft'))}{self._random.choice(PLACES)}"
        some = self._random.choice(now.proposals).id if now.proposals else "none"
        match deed:
            case "patch":
                await desk.patch_draft("story", self._changes("draft"), author=MODEL)
            case "propose":
                await desk.propose("story", self._changes("facts"), author=MODEL)
            case "confirm":
                await desk.confirm("story", some, Consent(version=now.facts_version - self._random.randint(0, 1)))
            case "reject":
                await desk.reject("story", some)
            case "lock":
                await desk.lock("story", path)
            case "unlock":
                await desk.unlock("story", self._random.choice(now.locks or (path,)))
            case "restore":
                await desk.restore("story", self._random.randint(0, now.version))
            case _:
                self._clock.now += 61.0
                await desk.standings("story")


@pytest.mark.parametrize("seed", range(3))
async def test_any_story_can_be_told_again_from_its_history(store: Store, clock: SetClock, seed: int) -> None:
    """Locked values stay, facts move by a person alone, and every version that was seen is what its history gives."""
    desk = Workspaces(store, ids=CountingIds(), clock=clock, expires_s=60.0)
    story = Story(desk, clock, seed)
    await story.begin()
    for _ in range(STEPS):
        await story.step()
    assert len(story.seen) > STEPS // 4
    assert story.refused
    for version, workspace in story.seen.items():
        assert await desk.at("story", version) == workspace
    assert (await desk.audit("story")).problems == ()
    records = await desk.history("story", limit=10 * STEPS)
    assert [record.version for record in reversed(records)] == list(range(len(records)))


async def test_proposals_that_touch_different_paths_do_not_make_each_other_stale(store: Store, clock: SetClock) -> None:
    """Of three that were made on the same facts two are confirmed, one after the other; the third touches the same."""
    desk = Workspaces(store, ids=CountingIds(), clock=clock)
    await desk.create("card", sections={"facts": {"name": "Ada", "tags": ["a", "b"], "home": {"city": "Oslo"}}})

    async def propose(*changes: Change) -> str:
        return (await desk.propose("card", changes, author=MODEL)).proposal.id

    name = await propose(Change(path="/facts/name", value="Eve"))
    city = await propose(Change(path="/facts/home/city", value="Bergen"), Change(path="/facts/age", value=36))
    first = await propose(Change(path="/facts/tags/0", op="delete"))
    second = await propose(Change(path="/facts/tags/1", value="c"))
    home = await propose(Change(path="/facts/home", value={}))
    await desk.confirm("card", name, Consent(version=0))
    review = await desk.review("card", city)
    assert (review.is_stale, review.obstacle, [each.path for each in review.diff]) == (
        False,
        None,
        ["/facts/home/city", "/facts/age"],
    )
    await desk.confirm("card", city, Consent(version=0))
    await desk.confirm("card", first, Consent(version=2))
    for proposal, path in ((second, "/facts/tags"), (home, "/facts/home/city")):
        review = await desk.review("card", proposal)
        assert (review.is_stale, review.obstacle) == (True, f"it is stale: {path} was changed since it was made")
        with pytest.raises(WorkspaceConflict, match=f"there was a change of {path}$"):
            await desk.confirm("card", proposal, Consent(version=3))
    assert [each.path for each in (await desk.review("card", second)).three_way] == ["/facts/tags/1"]
    held = await desk.get("card")
    assert held.workspace.facts == {"name": "Eve", "tags": ["b"], "home": {"city": "Bergen"}, "age": 36}
    assert (held.workspace.facts_version, (await desk.audit("card")).problems) == (3, ())


async def test_an_expired_proposal_is_not_reported_as_open(store: Store, clock: SetClock) -> None:
    """Asked for by itself, too, and by who waits for the decision."""
    desk = Workspaces(store, ids=CountingIds(), clock=clock, expires_s=60.0)
    await desk.create("card", sections={"facts": {"name": "Ada"}})
    made = await desk.propose("card", [Change(path="/facts/name", value="Eve")], author=MODEL)
    clock.now += 61.0
    assert (await desk.wait_decision("card", made.proposal.id, 0.0)).status == "expired"
    assert (await desk.standing("card", made.proposal.id)).status == "expired"


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """The workspaces of two processes on one database."""
    address = PostgresAddress(postgres_server().url()) if request.param == "postgres" else None
    stores: list[SqliteStore | PostgresStore] = [
        SqliteStore(str(tmp_path / "shared.db")) if address is None else PostgresStore(address) for _ in range(2)
    ]
    for store in stores:
        await store.open()
    left, right = (Workspaces(store, ids=CountingIds(namespace=name)) for store, name in zip(stores, "lr", strict=True))
    yield left, right
    for store in stores:
        await store.close()
    if address is not None:
        await postgres_server().empty(address.shown)


async def test_of_writers_in_two_processes_one_wins(pair: Pair) -> None:
    """Who names the version they have seen loses to who was first; nothing of theirs is there."""
    held = await pair[0].create()
    racers = [
        pair[number % 2].patch_draft(held.row.id, [Change(path="/draft/winner", value=number)], base=0)
        for number in range(RACERS)
    ]
    ended = await asyncio.gather(*racers, return_exceptions=True)
    losers = [each for each in ended if isinstance(each, WorkspaceConflict)]
    assert (len(losers), {each.info.code for each in losers}) == (RACERS - 1, {MOVED})
    [winner] = [number for number, each in enumerate(ended) if not isinstance(each, BaseException)]
    for desk in pair:
        now = await desk.get(held.row.id)
        assert (now.row.version, now.workspace.draft) == (1, {"winner": winner})


async def test_of_deciders_in_two_processes_one_decides(pair: Pair) -> None:
    """The others are told what was decided."""
    held = await pair[0].create(sections={"facts": {"name": "Ada"}})
    made = await pair[0].propose(held.row.id, [Change(path="/facts/name", value="Eve")], author=MODEL)
    deeds = [
        pair[number % 2].confirm(held.row.id, made.proposal.id, Consent(version=0))
        if number % 3
        else pair[number % 2].reject(held.row.id, made.proposal.id)
        for number in range(RACERS)
    ]
    ended = await asyncio.gather(*deeds, return_exceptions=True)
    refused = [each for each in ended if isinstance(each, Conflict)]
    assert (len(refused), {each.info.code for each in refused}) == (RACERS - 1, {DECIDED})
    now = await pair[1].get(held.row.id)
    decided = (await pair[0].standing(held.row.id, made.proposal.id)).status
    assert now.workspace.facts == {"name": "Eve" if decided == "confirmed" else "Ada"}
    assert (now.row.version, (await pair[1].audit(held.row.id)).problems) == (2, ())


async def test_confirmations_on_the_same_facts_have_one_winner(pair: Pair) -> None:
    """Of two proposals that were read on one version of the facts one is confirmed, and the other is stale."""
    held = await pair[0].create(sections={"facts": {"name": "Ada"}})
    made = [
        await desk.propose(held.row.id, [Change(path="/facts/name", value=name)], author=MODEL)
        for desk, name in zip(pair, ("Eve", "Zoe"), strict=True)
    ]
    ended = await asyncio.gather(
        *(
            desk.confirm(held.row.id, each.proposal.id, Consent(version=0))
            for desk, each in zip(pair, made, strict=True)
        ),
        return_exceptions=True,
    )
    [stale] = [each for each in ended if isinstance(each, BaseException)]
    assert isinstance(stale, WorkspaceConflict)
    assert stale.info.code == "workspace_conflict"
    now = await pair[0].get(held.row.id)
    assert (now.workspace.facts_version, len(now.workspace.proposals)) == (1, 1)


async def test_racing_writers_leave_one_dense_history(pair: Pair) -> None:
    """Who names no version finds what the one before left: all are taken, and none is lost."""
    held = await pair[0].create(sections={"draft": {"list": []}})
    racers = [
        pair[number % 2].patch_draft(held.row.id, [Change(path="/draft/list", op="append", value=number)], author=MODEL)
        for number in range(RACERS)
    ]
    await asyncio.gather(*racers)
    for desk in pair:
        now = await desk.get(held.row.id)
        assert (now.row.version, sorted(now.workspace.draft["list"])) == (RACERS, list(range(RACERS)))  # type: ignore[arg-type]
        assert (await desk.audit(held.row.id)).problems == ()
