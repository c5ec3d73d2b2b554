"""Workspaces on every store: dense versions, one winner, whole commits, decisions made once, nothing left behind."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from store.sample import SetClock
from treadle.core.errors import Conflict, NotFound, WorkspaceConflict
from treadle.core.ids import CountingIds
from treadle.journal.journal_interface import SessionRow, Store
from treadle.journal.workspaces_interface import DECIDED, MOVED, ChangeRow, ProposalRow, WorkspaceRow
from treadle.workspace.workspace_service import Consent, Workspaces
from treadle.workspace.workspace_state import Change
from treadle.workspace.workspace_store import PERSON, SNAPSHOT_EVERY, Author

MODEL = Author(actor="model", who="demo", run_id="run_1")
RACERS = 20


def raw(value: Any) -> msgspec.Raw:
    """Return a value as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def row(number: str = "1", /, **fields: Any) -> WorkspaceRow:
    """Return a workspace."""
    made = WorkspaceRow(id=f"ws_{number}", created_at=1.0, updated_at=1.0, state=raw({"draft": {}}), sha256="0")
    return msgspec.structs.replace(made, **fields)


def change(version: int = 0, **fields: Any) -> ChangeRow:
    """Return a version of `ws_1`."""
    made = ChangeRow(workspace_id="ws_1", version=version, record=raw({"version": version}), sha256=f"{version}")
    return msgspec.structs.replace(made, **fields)


def proposal(status: Any = "open", **fields: Any) -> ProposalRow:
    """Return a proposal to `ws_1`."""
    decision = None if status == "open" else raw({"kind": status})
    made = ProposalRow(
        id="prop_1",
        workspace_id="ws_1",
        proposal=raw({"id": "prop_1"}),
        created_at=2.0,
        status=status,
        decision=decision,
    )
    return msgspec.structs.replace(made, **fields)


def next_row(version: int, **fields: Any) -> WorkspaceRow:
    """Return `ws_1` at a version."""
    return row(version=version, sha256=f"{version}", updated_at=1.0 + version, **fields)


def versions(rows: Sequence[ChangeRow]) -> list[int]:
    """Return the numbers of the versions."""
    return [each.version for each in rows]


@pytest.fixture
def desk(store: Store, clock: SetClock) -> Workspaces:
    """The workspaces of each kind of store."""
    return Workspaces(store, ids=CountingIds(), clock=clock)


async def test_a_workspace_is_found_as_it_was_kept(store: Store) -> None:
    """By id, by name and by session; large and odd values too."""
    await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0, name="s"))
    state = raw({"draft": {"text": "x" * 200_000, "nul": "a\x00b", "emoji": "🪡", "odd": "\ufdd0"}})
    kept = row(name="Käthe's", session_id="sess_1", state=state)
    await store.workspaces.create(kept, change(snapshot=state))
    for found in (
        await store.workspaces.find("ws_1"),
        await store.workspaces.find("Käthe's", key_id=""),
        await store.workspaces.find_of_session("sess_1"),
    ):
        assert found == kept
    assert await store.workspaces.find("ws_1", key_id="other") is None
    assert await store.workspaces.find("") is None
    assert await store.workspaces.snapshot("ws_1", 7) == change(snapshot=state)


async def test_ids_names_and_sessions_are_taken_once(store: Store) -> None:
    """A second one is a conflict, and a session that is not there is not found; neither leaves anything behind."""
    await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0, name="s"))
    await store.workspaces.create(row(name="one", session_id="sess_1"), change())
    for taken in (row(), row("2", name="one"), row("2", session_id="sess_1")):
        with pytest.raises(Conflict):
            await store.workspaces.create(taken, change(workspace_id=taken.id))
    with pytest.raises(NotFound):
        await store.workspaces.create(row("2", session_id="none"), change(workspace_id="ws_2"))
    assert [each.id for each in await store.workspaces.page()] == ["ws_1"]


async def test_of_two_commits_for_one_version_one_is_done(store: Store) -> None:
    """The other is told where the workspace stands, and nothing of it is there."""
    await store.workspaces.create(row(), change())
    await store.workspaces.commit(next_row(1), change(1), [proposal()], base=0)
    with pytest.raises(WorkspaceConflict, match="at version 1, not at 0") as caught:
        await store.workspaces.commit(next_row(1), change(1), [proposal(id="prop_2")], base=0)
    assert caught.value.info.code == MOVED
    assert await store.workspaces.find_proposal("prop_2") is None
    assert versions(await store.workspaces.changes("ws_1")) == [0, 1]
    with pytest.raises(NotFound):
        await store.workspaces.commit(row("none", version=1), change(1, workspace_id="ws_none"), base=0)


async def test_a_commit_is_there_whole_or_not_at_all(store: Store) -> None:
    """A proposal that is decided already takes the state and the change back with it."""
    await store.workspaces.create(row(), change())
    await store.workspaces.commit(next_row(1), change(1), [proposal()], base=0)
    await store.workspaces.commit(next_row(2), change(2), [proposal("rejected")], base=1)
    with pytest.raises(Conflict) as caught:
        await store.workspaces.commit(next_row(3), change(3), [proposal("confirmed")], base=2)
    assert caught.value.info.code == DECIDED
    assert await store.workspaces.find("ws_1") == next_row(2)
    assert versions(await store.workspaces.changes("ws_1")) == [0, 1, 2]
    found = await store.workspaces.find_proposal("prop_1")
    assert found is not None
    assert (found.status, found.decision) == ("rejected", raw({"kind": "rejected"}))


async def test_a_call_makes_one_change(store: Store) -> None:
    """The same call of the same run is found, and cannot be kept twice; another workspace is not concerned."""
    await store.workspaces.create(row(), change())
    made = change(1, run_id="run_1", call_id="c" * 5_000)
    await store.workspaces.commit(next_row(1), made, base=0)
    assert await store.workspaces.find_call("ws_1", "run_1", "c" * 5_000) == made
    assert await store.workspaces.find_call("ws_1", "run_2", "c" * 5_000) is None
    with pytest.raises(Conflict):
        await store.workspaces.commit(next_row(2), change(2, run_id="run_1", call_id="c" * 5_000), base=1)


async def test_history_is_read_from_both_ends(store: Store) -> None:
    """In order above a version, newest first below one, and snapshots only where they are asked for."""
    await store.workspaces.create(row(), change(snapshot=raw({})))
    for version in range(1, 6):
        snapshot = raw({"at": version}) if version == 3 else None
        await store.workspaces.commit(next_row(version), change(version, snapshot=snapshot), base=version - 1)
    assert versions(await store.workspaces.changes("ws_1", after=1, limit=2)) == [2, 3]
    assert versions(await store.workspaces.latest_changes("ws_1", before=None, limit=2)) == [5, 4]
    assert versions(await store.workspaces.latest_changes("ws_1", before=2, limit=9)) == [1, 0]
    assert {each.snapshot for each in await store.workspaces.changes("ws_1")} == {None}
    for version, kept_at in ((2, 0), (3, 3), (9, 3)):
        found = await store.workspaces.snapshot("ws_1", version)
        assert found is not None
        assert found.version == kept_at


async def test_pages_of_workspaces_follow_each_other(store: Store) -> None:
    """The one changed last comes first; whoever asks for what follows nothing is told."""
    for name, at in (("1", 1.0), ("2", 3.0), ("3", 2.0)):
        await store.workspaces.create(row(name, updated_at=at), change(workspace_id=f"ws_{name}"))
    assert [each.id for each in await store.workspaces.page(2)] == ["ws_2", "ws_3"]
    assert [each.id for each in await store.workspaces.page(2, before="ws_3")] == ["ws_1"]
    assert await store.workspaces.page(key_id="other") == []
    with pytest.raises(NotFound):
        await store.workspaces.page(before="none")


async def test_decisions_wait_until_a_model_has_heard_them(store: Store) -> None:
    """An open proposal is no news; a decided one is, once."""
    await store.workspaces.create(row(), change())
    await store.workspaces.commit(next_row(1), change(1), [proposal()], base=0)
    assert await store.workspaces.untold("ws_1") == []
    await store.workspaces.commit(next_row(2), change(2), [proposal("rejected")], base=1)
    assert [each.id for each in await store.workspaces.untold("ws_1")] == ["prop_1"]
    await store.workspaces.mark_told(["prop_1", "unknown"])
    assert await store.workspaces.untold("ws_1") == []
    assert [each.status for each in await store.workspaces.proposals(status="rejected")] == ["rejected"]
    assert await store.workspaces.proposals(workspace_id="ws_1", status="open") == []


async def test_a_name_and_a_session_can_be_given_and_taken_away(store: Store) -> None:
    """What is None stays; a deleted session leaves the workspace alone."""
    await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0, name="s"))
    await store.workspaces.create(row(), change())
    named = await store.workspaces.update("ws_1", name="one", session_id="sess_1")
    assert (named.name, named.session_id) == ("one", "sess_1")
    assert (await store.workspaces.update("ws_1", name="two")).session_id == "sess_1"
    await store.delete_session("sess_1", with_runs=False)
    found = await store.workspaces.find("two")
    assert found is not None
    assert found.session_id is None
    with pytest.raises(NotFound):
        await store.workspaces.update("none", name="x")


async def test_a_deleted_workspace_leaves_nothing(store: Store) -> None:
    """Neither changes nor proposals; a second deletion says that there was none."""
    await store.workspaces.create(row(), change())
    await store.workspaces.commit(next_row(1), change(1), [proposal()], base=0)
    assert await store.workspaces.delete("ws_1")
    assert not await store.workspaces.delete("ws_1")
    assert await store.workspaces.changes("ws_1") == []
    assert await store.workspaces.find_proposal("prop_1") is None


async def test_racing_patches_are_all_taken_one_after_the_other(desk: Workspaces) -> None:
    """Each racer finds what the one before left; the history is dense and leads to the state."""
    held = await desk.create("race", sections={"draft": {"list": []}})
    patches = [
        desk.patch_draft(held.row.id, [Change(path="/draft/list", op="append", value=number)], author=MODEL)
        for number in range(RACERS)
    ]
    await asyncio.gather(*patches)
    after = await desk.get("race")
    assert after.row.version == RACERS
    assert sorted(after.workspace.draft["list"]) == list(range(RACERS))  # type: ignore[arg-type]
    assert (await desk.audit("race")).problems == ()


async def test_of_racers_for_one_version_one_wins(desk: Workspaces) -> None:
    """Who names the version they have seen is told when another was first."""
    held = await desk.create()
    change_of = [[Change(path="/draft/winner", value=number)] for number in range(RACERS)]
    ended = await asyncio.gather(
        *(desk.patch_draft(held.row.id, each, base=0) for each in change_of), return_exceptions=True
    )
    losers = [each for each in ended if isinstance(each, WorkspaceConflict)]
    assert len(losers) == RACERS - 1
    assert {each.info.code for each in losers} == {MOVED}
    assert (await desk.get(held.row.id)).row.version == 1


async def test_of_racing_deciders_one_decides(desk: Workspaces) -> None:
    """A proposal is confirmed or rejected once, however many try at the same moment."""
    held = await desk.create(sections={"facts": {"name": "Ada"}})
    made = await desk.propose(held.row.id, [Change(path="/facts/name", value="Eve")], author=MODEL)
    deeds = [
        desk.confirm(held.row.id, made.proposal.id, Consent(version=0))
        if number % 2
        else desk.reject(held.row.id, made.proposal.id)
        for number in range(RACERS)
    ]
    ended = await asyncio.gather(*deeds, return_exceptions=True)
    refused = [each for each in ended if isinstance(each, Conflict)]
    assert len(refused) == RACERS - 1
    assert {each.info.code for each in refused} == {DECIDED}
    assert (await desk.get(held.row.id)).row.version == 2
    assert (await desk.audit(held.row.id)).problems == ()


async def test_every_version_can_be_made_again(desk: Workspaces) -> None:
    """Across snapshots: each version is what it was when it was the newest."""
    held = await desk.create(sections={"draft": {"n": 0}, "facts": {"a": 1}}, locks=["/facts/a"])
    seen = [held.workspace]
    for number in range(1, SNAPSHOT_EVERY + 4):
        taken = await desk.patch_draft(held.row.id, [Change(path="/draft/n", value=number)], author=MODEL)
        seen.append(taken.held.workspace)
    for version in (0, 1, SNAPSHOT_EVERY - 1, SNAPSHOT_EVERY, SNAPSHOT_EVERY + 3):
        assert await desk.at(held.row.id, version) == seen[version]
    with pytest.raises(NotFound, match=f"no version {SNAPSHOT_EVERY + 4}"):
        await desk.at(held.row.id, SNAPSHOT_EVERY + 4)
    with pytest.raises(NotFound, match="no version -1"):
        await desk.at(held.row.id, -1)


async def test_a_changed_state_is_found_by_the_audit(desk: Workspaces, store: Store) -> None:
    """Whoever writes past the rules leaves a state that its history does not lead to."""
    held = await desk.create(sections={"facts": {"name": "Ada"}})
    await desk.patch_draft(held.row.id, [Change(path="/draft/x", value=1)], author=PERSON)
    now = await desk.get(held.row.id)
    forged = msgspec.structs.replace(now.workspace, facts={"name": "Eve"}, version=2)
    record = raw({"version": 2, "kind": "patched", "actor": "person"})
    await store.workspaces.commit(
        msgspec.structs.replace(now.row, state=raw(forged), version=2),
        change(2, workspace_id=held.row.id, record=record),
        base=1,
    )
    problems = (await desk.audit(held.row.id)).problems
    assert problems == ("version 2: its hash does not fit",)


async def test_the_workspaces_of_two_keys_do_not_meet(desk: Workspaces) -> None:
    """Not by id, by name, by proposal, by session or in a list; who has no key to mind sees all."""
    ada, eve = desk.of("ada"), desk.of("eve")
    hers = await ada.create("card", sections={"facts": {"name": "Ada"}})
    other = await eve.create("card", sections={"facts": {"name": "Eve"}})
    made = await ada.propose("card", [Change(path="/facts/name", value="A.")], author=MODEL)
    assert (await ada.get("card")).row.id == hers.row.id
    assert (await eve.get("card")).row.id == other.row.id
    for work in (
        eve.get(hers.row.id),
        desk.get(hers.row.id),
        eve.standing(hers.row.id, made.proposal.id),
        eve.standing("card", made.proposal.id),
        eve.confirm("card", made.proposal.id, Consent(version=0)),
        eve.patch_draft(hers.row.id, [Change(path="/draft/x", value=1)]),
        eve.delete(hers.row.id),
        eve.history(hers.row.id),
    ):
        with pytest.raises(NotFound):
            await work
    assert [each.key_id for each in await eve.page()] == ["eve"]
    assert await eve.standings() == []
    assert [each.proposal.id for each in await ada.standings()] == [made.proposal.id]
    everybody = desk.of(None)
    assert {each.key_id for each in await everybody.page()} == {"ada", "eve"}
    assert [each.proposal.id for each in await everybody.standings()] == [made.proposal.id]
    assert (await everybody.get(hers.row.id)).workspace.facts == {"name": "Ada"}


async def test_a_decision_wakes_who_waits_under_any_view(desk: Workspaces) -> None:
    """The desks of all keys are one process's."""
    held = await desk.of("ada").create("card", sections={"facts": {"name": "Ada"}})
    made = await desk.of("ada").propose("card", [Change(path="/facts/name", value="A.")], author=MODEL)
    waiting = asyncio.create_task(desk.of("ada").wait_decision("card", made.proposal.id, 30.0))
    await asyncio.sleep(0)
    await desk.of(None).reject(held.row.id, made.proposal.id)
    assert (await asyncio.wait_for(waiting, 10)).status == "rejected"
