"""The workspace: atomic patches, locks that hold, and facts that only a person's fresh confirmation changes."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import Forbidden, LimitExceeded, NotFound, ProtocolError, TreadleError, WorkspaceConflict
from treadle.core.json import canonical_json
from treadle.workspace.json_pointer import find_at
from treadle.workspace.proposals import confirm, propose, reject
from treadle.workspace.workspace_state import (
    CHANGES_MAX,
    LOCKS_MAX,
    PROPOSALS_MAX,
    REASON_CHARS_MAX,
    SECTION_BYTES_MAX,
    Actor,
    Change,
    Proposal,
    Workspace,
    WorkspaceRecord,
    lock,
    patch_draft,
    show,
    unlock,
)

START = Workspace(facts={"name": "Ada"}, draft={"title": "", "tags": ["a", "b"]})


def proposal(**values: Any) -> Proposal:
    """Return a proposal to rename Ada, with some of it replaced."""
    return Proposal(
        **{"id": "p1", "changes": (Change(path="/facts/name", value="Eve"),), "reason": "", "base_version": 0, **values}
    )


def test_a_patch_of_the_draft_is_a_new_version_with_its_record() -> None:
    """The new workspace has the change, the old one has not, and the record says who did what."""
    change = Change(path="/draft/title", value="One")
    workspace, record = patch_draft(START, [change], actor="model")
    assert workspace == msgspec.structs.replace(START, draft={"title": "One", "tags": ["a", "b"]}, version=1)
    assert record == WorkspaceRecord(version=1, kind="patched", actor="model", changes=(change,))
    assert START.draft == {"title": "", "tags": ["a", "b"]}


def test_a_patch_applies_all_of_its_changes_or_none() -> None:
    """A bad last change leaves nothing of the first ones."""
    changes = [Change(path="/draft/title", value="One"), Change(path="/draft/none/x", value=1)]
    with pytest.raises(ProtocolError, match="there is nothing at `/draft/none`"):
        patch_draft(START, changes, actor="model")
    assert START.get("/draft/title") == ""


def test_the_operations_set_delete_append_and_insert() -> None:
    """Each operation does what its name says, one after the other."""
    changes = [
        Change(path="/draft/tags", op="append", value="c"),
        Change(path="/draft/tags/0", op="delete"),
        Change(path="/draft/title", op="delete"),
    ]
    assert patch_draft(START, changes, actor="person").workspace.draft == {"tags": ["b", "c"]}


def test_what_a_caller_keeps_of_a_value_cannot_change_the_workspace() -> None:
    """Values are copied in."""
    value = {"deep": [1]}
    workspace, record = patch_draft(START, [Change(path="/draft/x", value=value)], actor="model")
    value["deep"].append(2)
    assert workspace.get("/draft/x") == {"deep": [1]}
    assert record.changes[0].value == {"deep": [1]}


@pytest.mark.parametrize("path", ["/facts/name", "/ui/panel", "/locks/0", "/version", "", "/drafts"])
def test_the_draft_is_the_only_thing_a_patch_reaches(path: str) -> None:
    """Facts, locks and versions cannot be patched."""
    with pytest.raises(ProtocolError) as caught:
        patch_draft(START, [Change(path=path, value="x")], actor="person")
    assert caught.value.info.code == "invalid_pointer"


@pytest.mark.parametrize("value", ["text", None, [1]])
def test_the_draft_stays_an_object(value: Any) -> None:
    """The whole draft can be replaced, but only by another object."""
    assert patch_draft(START, [Change(path="/draft", value={})], actor="model").workspace.draft == {}
    with pytest.raises(ProtocolError, match="the draft must stay an object"):
        patch_draft(START, [Change(path="/draft", value=value)], actor="model")
    with pytest.raises(ProtocolError, match="the draft must stay an object"):
        patch_draft(START, [Change(path="/draft", op="delete")], actor="model")


def test_ui_state_changes_beside_the_draft() -> None:
    """What is shown is state too, with records of its own kind."""
    workspace, record = show(START, [Change(path="/ui/panel", value="cast")], actor="program")
    assert (workspace.ui, workspace.version, record.kind) == ({"panel": "cast"}, 1, "shown")


LOCKED = [
    ("/draft/title", Change(path="/draft/title", value="x")),
    ("/draft/title", Change(path="/draft/title", op="delete")),
    ("/draft/title", Change(path="/draft", value={})),
    ("/draft/tags", Change(path="/draft/tags", op="append", value="c")),
    ("/draft/tags", Change(path="/draft/tags/0", value="x")),
    ("/draft/tags/1", Change(path="/draft/tags/0", op="delete")),
    ("/draft/new", Change(path="/draft/new", value=1)),
]


@pytest.mark.parametrize(("path", "change"), LOCKED)
@pytest.mark.parametrize("actor", ["model", "person"])
def test_a_locked_value_does_not_change_and_the_error_names_the_lock(path: str, change: Change, actor: Actor) -> None:
    """Neither directly, nor through a parent, nor by moving it in its array; unlocking is the only way."""
    held = lock(START, path, actor="person").workspace
    with pytest.raises(WorkspaceConflict) as caught:
        patch_draft(held, [change], actor=actor)
    assert caught.value.message == f"the lock `{path}` is in the way: its value would change"
    assert (caught.value.info.code, caught.value.info.param) == ("workspace_locked", path)
    free = unlock(held, path, actor="person").workspace
    assert patch_draft(free, [change], actor=actor).workspace.version == 3


def test_a_lock_does_not_mistake_true_for_one() -> None:
    """Python's `True == 1` is no reason to let a locked value change its type."""
    held = lock(Workspace(draft={"n": 1}), "/draft/n", actor="person").workspace
    with pytest.raises(WorkspaceConflict):
        patch_draft(held, [Change(path="/draft/n", value=True)], actor="model")


def test_only_a_person_unlocks() -> None:
    """Anyone may lock; the model cannot release what holds it."""
    held, record = lock(START, "/draft/title", actor="model")
    assert record == WorkspaceRecord(version=1, kind="locked", actor="model", path="/draft/title")
    with pytest.raises(Forbidden, match="only a person can unlock a path"):
        unlock(held, "/draft/title", actor="model")
    with pytest.raises(NotFound, match="there is no lock `/draft/tags`"):
        unlock(held, "/draft/tags", actor="person")


def test_locking_twice_holds_once() -> None:
    """A lock is a path in a set."""
    once = lock(START, "/draft/title", actor="person").workspace
    assert lock(once, "/draft/title", actor="person").workspace.locks == ("/draft/title",)


@pytest.mark.parametrize("path", ["", "/locks", "/proposals", "draft"])
def test_a_lock_lies_in_facts_draft_or_ui(path: str) -> None:
    """There is nothing else that could be held."""
    with pytest.raises(ProtocolError):
        lock(START, path, actor="person")


def test_a_proposal_leaves_the_facts_until_a_person_confirms_it() -> None:
    """Propose, then confirm on the version shown: only then the fact changes."""
    proposed, record = propose(START, proposal(reason="her name"), actor="model")
    assert proposed.facts == {"name": "Ada"}
    assert (record.kind, record.actor, record.proposal_id, record.reason) == ("proposed", "model", "p1", "her name")
    confirmed, record = confirm(proposed, "p1", 0, actor="person")
    assert confirmed == msgspec.structs.replace(START, facts={"name": "Eve"}, version=2, facts_version=1)
    assert record == WorkspaceRecord(
        version=2,
        kind="confirmed",
        actor="person",
        proposal_id="p1",
        changes=(Change(path="/facts/name", value="Eve"),),
    )


@pytest.mark.parametrize("actor", ["model", "program"])
def test_nobody_but_a_person_decides_a_proposal(actor: Actor) -> None:
    """The model can only propose."""
    proposed = propose(START, proposal(), actor="model").workspace
    with pytest.raises(Forbidden, match="only a person can confirm a proposal"):
        confirm(proposed, "p1", 0, actor=actor)
    with pytest.raises(Forbidden, match="only a person can reject a proposal"):
        reject(proposed, "p1", actor=actor)


def test_a_draft_patched_meanwhile_does_not_make_a_proposal_stale() -> None:
    """Only the facts count: the model goes on editing while the person thinks."""
    proposed = propose(START, proposal(), actor="model").workspace
    patched = patch_draft(proposed, [Change(path="/draft/title", value="x")], actor="model").workspace
    assert confirm(patched, "p1", 0, actor="person").workspace.facts == {"name": "Eve"}


def test_a_stale_confirmation_is_a_conflict() -> None:
    """Two proposals on the same facts: the second cannot be merged after the first."""
    first = propose(START, proposal(), actor="model").workspace
    both = propose(first, proposal(id="p2", changes=(Change(path="/facts/age", value=36),)), actor="model").workspace
    moved = confirm(both, "p1", 0, actor="person").workspace
    for version in (0, 1):
        with pytest.raises(WorkspaceConflict) as caught:
            confirm(moved, "p2", version, actor="person")
        assert "made for version 0 of the facts" in caught.value.message
        assert "they are at version 1" in caught.value.message
    with pytest.raises(WorkspaceConflict):
        propose(moved, proposal(id="p3", base_version=0), actor="model")


def test_a_person_must_have_seen_the_very_facts_the_proposal_was_made_for() -> None:
    """A version that the person guessed is not enough."""
    proposed = propose(START, proposal(), actor="model").workspace
    with pytest.raises(WorkspaceConflict):
        confirm(proposed, "p1", 1, actor="person")


def test_a_rejected_proposal_is_gone_and_the_facts_stay() -> None:
    """Rejecting works on stale proposals too, once."""
    proposed = propose(START, proposal(), actor="model").workspace
    rejected, record = reject(proposed, "p1", actor="person", reason="wrong")
    assert rejected == msgspec.structs.replace(START, version=2)
    assert (record.kind, record.proposal_id, record.reason) == ("rejected", "p1", "wrong")
    with pytest.raises(NotFound, match="there is no open proposal `p1`"):
        reject(rejected, "p1", actor="person")
    with pytest.raises(NotFound, match="there is no open proposal `p1`"):
        confirm(rejected, "p1", 0, actor="person")


def test_a_lock_on_a_fact_stops_proposal_and_confirmation() -> None:
    """A person who locked a fact unlocks it before it changes, also when the lock came after the proposal."""
    locked = lock(START, "/facts/name", actor="person").workspace
    with pytest.raises(WorkspaceConflict, match="the lock `/facts/name` is in the way"):
        propose(locked, proposal(), actor="model")
    later = lock(propose(START, proposal(), actor="model").workspace, "/facts/name", actor="person").workspace
    with pytest.raises(WorkspaceConflict, match="the lock `/facts/name` is in the way"):
        confirm(later, "p1", 0, actor="person")


def test_a_proposal_that_cannot_be_applied_is_refused_at_once() -> None:
    """The person is never shown what could not be confirmed."""
    for path in ("/draft/title", "/facts/none/deep"):
        with pytest.raises(ProtocolError):
            propose(START, proposal(changes=(Change(path=path, value=1),)), actor="model")


OVER = [
    lambda: patch_draft(START, [Change(path="/draft/x", value=1)] * (CHANGES_MAX + 1), actor="model"),
    lambda: patch_draft(START, [Change(path="/draft/x", value="x" * SECTION_BYTES_MAX)], actor="model"),
    lambda: propose(START, proposal(reason="x" * (REASON_CHARS_MAX + 1)), actor="model"),
    lambda: propose(
        Workspace(proposals=tuple(proposal(id=f"p{n}") for n in range(PROPOSALS_MAX))),
        proposal(id="one more"),
        actor="model",
    ),
    lambda: lock(Workspace(locks=tuple(f"/draft/{n}" for n in range(LOCKS_MAX))), "/draft/x", actor="model"),
]


@pytest.mark.parametrize("deed", OVER)
def test_everything_is_bounded(deed: Any) -> None:
    """Changes, bytes, proposals, locks and reasons have a limit that is named when it is hit."""
    with pytest.raises(LimitExceeded):
        deed()


@pytest.mark.parametrize("value", [object(), {1: {2: object()}}, [print]], ids=["object", "nested", "function"])
def test_a_value_that_is_not_json_is_refused(value: Any) -> None:
    """A Python object has no place in a document."""
    with pytest.raises(ProtocolError, match="a value is not JSON"):
        patch_draft(START, [Change(path="/draft/x", value=value)], actor="model")


def test_no_change_is_refused_and_so_is_a_second_proposal_of_the_same_id() -> None:
    """Both are mistakes of the caller that must not pass silently."""
    with pytest.raises(ProtocolError, match="there is nothing to change"):
        patch_draft(START, [], actor="model")
    with pytest.raises(ProtocolError, match="a proposal `p1` is open already"):
        propose(propose(START, proposal(), actor="model").workspace, proposal(), actor="model")


def test_a_workspace_and_its_records_survive_json() -> None:
    """What a store writes it can read back, values and all."""
    workspace, record = propose(START, proposal(), actor="model")
    assert msgspec.json.decode(msgspec.json.encode(workspace), type=Workspace) == workspace
    assert msgspec.json.decode(msgspec.json.encode(record), type=WorkspaceRecord) == record


paths = st.sampled_from(["/facts", "/facts/a", "/facts/a/b", "/facts/list", "/facts/list/0", "/facts/list/1"])
values = st.sampled_from([1, True, None, "x", {}, {"b": 1}, [], [1, 2]])
changes = st.builds(Change, path=paths, op=st.sampled_from(["set", "delete", "append"]), value=values)
STEPS = ("patch", "propose", "confirm", "reject", "lock", "unlock")
steps = st.tuples(st.sampled_from(STEPS), st.lists(changes, min_size=1, max_size=3), paths, st.integers(0, 3))


def in_draft(path: str) -> str:
    """Return the same place in the draft."""
    return path.replace("/facts", "/draft", 1)


def play(workspace: Workspace, step: tuple[str, list[Change], str, int], number: int) -> Workspace:
    """Make one step, or none when it is refused."""
    name, edits, path, version = step
    edited = [msgspec.structs.replace(edit, path=in_draft(edit.path)) for edit in edits]
    fresh = Proposal(id=f"p{number}", changes=tuple(edits), reason="", base_version=version)
    some = workspace.proposals[0].id if workspace.proposals else "none"
    deeds: dict[str, Any] = {
        "patch": lambda: patch_draft(workspace, edited, actor="model"),
        "propose": lambda: propose(workspace, fresh, actor="model"),
        "confirm": lambda: confirm(workspace, some, version, actor="person"),
        "reject": lambda: reject(workspace, some, actor="person"),
        "lock": lambda: lock(workspace, in_draft(path) if version else path, actor="person"),
        "unlock": lambda: unlock(workspace, path, actor="person"),
    }
    try:
        return deeds[name]().workspace
    except TreadleError:
        return workspace


@given(st.lists(steps, max_size=12))
def test_whatever_happens_locks_hold_and_stale_confirmations_never_merge(story: list[Any]) -> None:
    """Over random stories: locked values stay, facts move only by a fresh confirmation, versions only grow."""
    workspace = Workspace(facts={"a": {"b": 0}, "list": [0, 1]}, draft={"a": {"b": 0}, "list": [0, 1]})
    for number, step in enumerate(story):
        after = play(workspace, step, number)
        for path in workspace.locks:
            old, new = find_at(workspace.document(), path), find_at(after.document(), path)
            assert old is new or canonical_json(old) == canonical_json(new)
        if after.facts != workspace.facts:
            fresh = workspace.proposals[0].base_version
            assert step[0] == "confirm"
            assert step[3] == fresh == workspace.facts_version == after.facts_version - 1
        assert after.version == workspace.version + (after is not workspace)
        workspace = after
