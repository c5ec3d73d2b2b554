"""Workspaces in a store: who did what and why, decisions, expiry, versions that come back, a history that proves it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.core.errors import Conflict, Forbidden, LimitExceeded, NotFound, ProtocolError, TreadleError
from treadle.core.errors import WorkspaceConflict as Stale
from treadle.core.ids import CountingIds
from treadle.journal.sqlite.store import SqliteStore
from treadle.workspace.workspace_diff import Difference
from treadle.workspace.workspace_service import Consent, Workspaces
from treadle.workspace.workspace_state import REASON_CHARS_MAX, Change
from treadle.workspace.workspace_store import PERSON, PROGRAM, Author

MODEL = Author(actor="model", run_id="run_1", reason="it was said")
EVE = (Change(path="/facts/name", value="Eve"),)


class Clock:
    """A clock that the test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
async def desk(clock: Clock) -> AsyncIterator[Workspaces]:
    """Workspaces in memory, one of them called `card`."""
    store = SqliteStore(":memory:")
    await store.open()
    made = Workspaces(store, ids=CountingIds(), clock=clock, expires_s=60.0)
    await made.create("card", sections={"facts": {"name": "Ada"}, "draft": {"tags": []}})
    yield made
    await store.close()


async def facts(desk: Workspaces) -> dict[str, Any]:
    """Return the facts of the card."""
    return (await desk.get("card")).workspace.facts


async def test_every_change_says_who_why_in_which_run_and_what(desk: Workspaces) -> None:
    """The record that is kept is the record that is read."""
    author = Author(actor="model", who="demo", reason="a start", run_id="run_1", call_id="call_1")
    await desk.patch_draft("card", [Change(path="/draft/title", value="One")], author=author)
    record = (await desk.history("card", limit=1))[0]
    assert (record.version, record.kind, record.actor, record.who) == (1, "patched", "model", "demo")
    assert (record.reason, record.run_id, record.call_id, record.at) == ("a start", "run_1", "call_1", 1_000.0)
    assert record.diff == (Difference(path="/draft/title", after="One"),)


async def test_only_a_person_brings_facts_along_or_decides(desk: Workspaces) -> None:
    """Whoever else tries is refused, and nothing happens."""
    made = await desk.propose("card", EVE, author=MODEL)
    for author in (MODEL, PROGRAM):
        with pytest.raises(Forbidden):
            await desk.create("other", sections={"facts": {"a": 1}}, author=author)
        with pytest.raises(Forbidden):
            await desk.confirm("card", made.proposal.id, Consent(version=0), author=author)
        with pytest.raises(Forbidden):
            await desk.reject("card", made.proposal.id, author=author)
        with pytest.raises(Forbidden):
            await desk.restore("card", 0, author=author)
    assert await facts(desk) == {"name": "Ada"}
    assert await desk.find("other") is None


async def test_a_person_takes_all_some_or_their_own(desk: Workspaces) -> None:
    """Whole, in part by number, or edited."""
    both = (*EVE, Change(path="/facts/age", value=36))
    for consent, expected in (
        (Consent(version=0), {"name": "Eve", "age": 36}),
        (Consent(version=1, only=(1,)), {"name": "Eve", "age": 37}),
        (Consent(version=2, changes=(Change(path="/facts/age", op="delete"),)), {"name": "Eve"}),
    ):
        changes = both if consent.version == 0 else (*EVE, Change(path="/facts/age", value=36 + consent.version))
        made = await desk.propose("card", changes, author=MODEL)
        await desk.confirm("card", made.proposal.id, consent)
        assert await facts(desk) == expected
        assert (await desk.standing("card", made.proposal.id)).status == "confirmed"


@pytest.mark.parametrize(
    ("consent", "error"),
    [
        (Consent(version=1), Stale),
        (Consent(version=0, sha256="0" * 64), Stale),
        (Consent(version=1, changes=EVE), Stale),
        (Consent(version=0, only=()), ProtocolError),
        (Consent(version=0, only=(1,)), ProtocolError),
        (Consent(version=0, only=(-1,)), ProtocolError),
        (Consent(version=0, only=(0,), changes=EVE), ProtocolError),
        (Consent(version=0, changes=()), ProtocolError),
        (Consent(version=0, changes=(Change(path="/draft/x", value=1),)), ProtocolError),
    ],
)
async def test_a_wrong_consent_changes_nothing(desk: Workspaces, consent: Consent, error: type[TreadleError]) -> None:
    """The proposal stays open."""
    made = await desk.propose("card", EVE, author=MODEL)
    with pytest.raises(error):
        await desk.confirm("card", made.proposal.id, consent)
    assert await facts(desk) == {"name": "Ada"}
    assert (await desk.standing("card", made.proposal.id)).status == "open"


async def test_what_is_read_is_what_is_confirmed(desk: Workspaces) -> None:
    """The review names the version and the hash that the consent takes back."""
    made = await desk.propose("card", EVE, author=MODEL)
    review = await desk.review("card", made.proposal.id)
    assert review.diff == (Difference(path="/facts/name", before="Ada", after="Eve"),)
    assert (review.is_stale, review.obstacle) == (False, None)
    await desk.confirm("card", made.proposal.id, Consent(version=review.facts_version, sha256=review.sha256))
    with pytest.raises(Conflict, match="confirmed already"):
        await desk.review("card", made.proposal.id)


async def test_a_lock_put_on_later_is_shown_before_the_decision(desk: Workspaces) -> None:
    """And stops it."""
    made = await desk.propose("card", EVE, author=MODEL)
    await desk.lock("card", "/facts")
    assert "`/facts` is in the way" in str((await desk.review("card", made.proposal.id)).obstacle)
    with pytest.raises(Stale, match="`/facts` is in the way"):
        await desk.confirm("card", made.proposal.id, Consent(version=0))


async def test_a_proposal_that_nobody_decides_expires(desk: Workspaces, clock: Clock) -> None:
    """That is no person's no; it makes room, and can be proposed anew."""
    made = await desk.propose("card", EVE, author=MODEL)
    clock.now += 61.0
    with pytest.raises(Conflict, match="is expired already"):
        await desk.confirm("card", made.proposal.id, Consent(version=0))
    assert (await desk.standing("card", made.proposal.id)).status == "expired"
    again = await desk.propose("card", EVE, author=MODEL)
    assert again.proposal.id != made.proposal.id
    assert [each.status for each in await desk.standings("card")] == ["open", "expired"]
    assert (await desk.audit("card")).problems == ()


async def test_what_is_over_is_not_listed_as_open_anywhere(desk: Workspaces, clock: Clock) -> None:
    """Also in the list of all workspaces."""
    await desk.create("other")
    await desk.propose("card", EVE, author=MODEL)
    clock.now += 30.0
    fresh = await desk.propose("other", EVE, author=MODEL)
    clock.now += 31.0
    assert [each.proposal.id for each in await desk.standings(status="open")] == [fresh.proposal.id]
    assert [each.status for each in await desk.standings()] == ["open", "expired"]


async def test_a_decision_wakes_who_waits(desk: Workspaces) -> None:
    """Whoever waits for another one goes on waiting."""
    made = await desk.propose("card", EVE, author=MODEL)
    waiting = asyncio.create_task(desk.wait_decision("card", made.proposal.id, 20.0))
    await asyncio.sleep(0)
    await desk.reject("card", made.proposal.id, author=Author(actor="person", reason="no"))
    ended = await waiting
    assert ended.decision is not None
    assert (ended.status, ended.decision.reason) == ("rejected", "no")
    with pytest.raises(NotFound):
        await desk.wait_decision("card", "none", 1.0)


async def test_a_version_comes_back_as_a_new_one(desk: Workspaces) -> None:
    """Chosen sections only; facts that come back are a new version of them, so open proposals of those are stale."""
    await desk.patch_draft("card", [Change(path="/draft/title", value="One")])
    first = await desk.propose("card", EVE, author=MODEL)
    await desk.confirm("card", first.proposal.id, Consent(version=0))
    waiting = await desk.propose("card", [Change(path="/facts/name", value="Zoe")], author=MODEL)
    elsewhere = await desk.propose("card", [Change(path="/facts/age", value=36)], author=MODEL)
    draft_only = await desk.restore("card", 0, sections=("draft",))
    assert (draft_only.held.workspace.draft, draft_only.held.workspace.facts) == ({"tags": []}, {"name": "Eve"})
    assert draft_only.held.workspace.facts_version == 1
    whole = await desk.restore("card", 1, author=Author(actor="person", reason="back"))
    assert (whole.held.workspace.facts, whole.record.restored, whole.record.reason) == ({"name": "Ada"}, 1, "back")
    assert (await desk.review("card", waiting.proposal.id)).is_stale
    assert not (await desk.review("card", elsewhere.proposal.id)).is_stale
    with pytest.raises(Stale, match="does not differ"):
        await desk.restore("card", 1)
    with pytest.raises(ProtocolError, match="at least one"):
        await desk.restore("card", 0, sections=())
    assert await desk.diff("card", 1) == ()
    assert (await desk.audit("card")).problems == ()


async def test_a_reason_and_a_name_are_bounded(desk: Workspaces) -> None:
    """And a text that no JSON can hold is mended rather than lost."""
    change = [Change(path="/draft/x", value=1)]
    for author in (Author(actor="person", reason="x" * (REASON_CHARS_MAX + 1)), Author(actor="person", who="x" * 201)):
        with pytest.raises(LimitExceeded):
            await desk.patch_draft("card", change, author=author)
    taken = await desk.patch_draft("card", change, author=Author(actor="person", reason="a\ud800b"))
    assert taken.record.reason == "a?b"
    with pytest.raises(ProtocolError, match="not JSON"):
        await desk.patch_draft("card", [Change(path="/draft/x", value="\ud800")], author=PERSON)


async def test_names_are_checked(desk: Workspaces) -> None:
    """A name is taken once, is not blank and not endless."""
    for name in (" ", "x" * 201):
        with pytest.raises(ProtocolError):
            await desk.create(name)
    with pytest.raises(Conflict, match="there is a workspace 'card' already"):
        await desk.create("card")
    assert (await desk.update("card", name="card")).row.name == "card"


paths = st.sampled_from(["/facts", "/facts/a", "/facts/a/0", "/facts/b", "/facts/b/-"])
values = st.sampled_from([1, None, "x", {}, {"b": 1}, [1, 2]])
operations = st.sampled_from(["set", "delete", "append", "insert"])
edits = st.lists(st.builds(Change, path=paths, op=operations, value=values), min_size=1, max_size=3)
steps = st.tuples(
    st.sampled_from(["patch", "propose", "confirm", "reject", "lock", "unlock", "restore", "expire"]), edits, paths
)


async def play(desk: Workspaces, clock: Clock, step: Any) -> None:
    """Take one step of a story, or none when it is refused."""
    name, changes, path = step
    in_draft = [Change(path=each.path.replace("/facts", "/draft", 1), op=each.op, value=each.value) for each in changes]
    held = await desk.get("story")
    some = held.workspace.proposals[0].id if held.workspace.proposals else "none"
    try:
        match name:
            case "patch":
                await desk.patch_draft("story", in_draft, author=MODEL)
            case "propose":
                await desk.propose("story", changes, author=MODEL)
            case "confirm":
                await desk.confirm("story", some, Consent(version=held.workspace.facts_version))
            case "reject":
                await desk.reject("story", some)
            case "lock":
                await desk.lock("story", path)
            case "unlock":
                await desk.unlock("story", path)
            case "restore":
                await desk.restore("story", held.row.version // 2)
            case _:
                clock.now += 61.0
                await desk.standings("story")
    except TreadleError:
        pass


@given(st.lists(steps, max_size=14))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_history_replays_to_the_same_state(story: list[Any]) -> None:
    """Every version that was seen can be made again, and the chain leads to the newest."""

    async def main() -> None:
        store, clock = SqliteStore(":memory:"), Clock()
        await store.open()
        desk = Workspaces(store, ids=CountingIds(), clock=clock, expires_s=60.0)
        await desk.create("story", sections={"facts": {"a": [0]}, "draft": {"a": [0]}})
        seen = {0: (await desk.get("story")).workspace}
        for step in story:
            await play(desk, clock, step)
            held = await desk.get("story")
            seen[held.row.version] = held.workspace
        for version, workspace in seen.items():
            assert await desk.at("story", version) == workspace
        assert (await desk.audit("story")).problems == ()
        await store.close()

    asyncio.run(main())
