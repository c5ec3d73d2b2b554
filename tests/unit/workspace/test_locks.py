"""Locks and what they cover: the value itself, all inside it, and all it is inside of."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from treadle.core.errors import ProtocolError, WorkspaceConflict
from treadle.core.json import canonical_json
from treadle.workspace.json_pointer import Json, find_at, read_pointer
from treadle.workspace.proposals import propose
from treadle.workspace.workspace_state import Actor, Change, Proposal, Workspace, lock, patch_draft

names = st.sampled_from(["a", "b", "c"])
documents: st.SearchStrategy[Json] = st.recursive(
    st.integers(0, 2), lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=12
)
objects = st.dictionaries(names, documents, max_size=3)
places = st.lists(names, min_size=1, max_size=4).map(lambda steps: "/" + "/".join(steps))
actors: st.SearchStrategy[Actor] = st.sampled_from(["model", "program", "person"])


def covers(one: str, other: str) -> bool:
    """Tell whether one place is the other, or inside it."""
    inner, outer = read_pointer(one), read_pointer(other)
    return inner[: len(outer)] == outer


def attempt(draft: dict[str, Json], locked: str, change: Change, actor: Actor) -> Workspace | None:
    """Patch a draft with a lock in it; None if the lock was in the way. What cannot be patched at all is not tried."""
    workspace = lock(Workspace(draft=draft), f"/draft{locked}", actor="person").workspace
    try:
        patch_draft(Workspace(draft=draft), [change], actor=actor)
    except ProtocolError:
        assume(False)
    refused: WorkspaceConflict | None = None
    try:
        return patch_draft(workspace, [change], actor=actor).workspace
    except WorkspaceConflict as error:
        refused = error
    assert (refused.info.code, refused.info.param) == ("workspace_locked", f"/draft{locked}")
    return None


@given(objects, places, places, documents, actors)
def test_a_place_beside_the_lock_is_free(
    draft: dict[str, Json], locked: str, path: str, value: Json, actor: Actor
) -> None:
    """What is neither inside the lock nor around it can change."""
    assume(not covers(path, locked) and not covers(locked, path))
    after = attempt(draft, locked, Change(path=f"/draft{path}", value=value), actor)
    assert after is not None
    assert canonical_json(find_at(after.document(), f"/draft{path}")) == canonical_json(value)


@given(objects, places, st.lists(names, max_size=2), documents, actors)
def test_what_is_inside_a_lock_is_held(
    draft: dict[str, Json], locked: str, steps: list[str], value: Json, actor: Actor
) -> None:
    """By whoever, at whatever depth; setting what is there already changes nothing and is no offence."""
    path = "/".join([locked, *steps])
    after = attempt(draft, locked, Change(path=f"/draft{path}", value=value), actor)
    old = find_at({"draft": draft}, f"/draft{path}")
    is_same = isinstance(old, dict | int) and canonical_json(old) == canonical_json(value)
    assert (after is None) is not is_same


@given(objects, st.lists(names, min_size=2, max_size=4), st.data(), actors)
def test_what_a_lock_is_inside_of_cannot_take_it_along(
    draft: dict[str, Json], steps: list[str], data: st.DataObject, actor: Actor
) -> None:
    """To replace or delete a parent is to change the child, unless the child comes out the same."""
    depth = data.draw(st.integers(1, len(steps) - 1))
    locked, parent = ("/" + "/".join(steps[:count]) for count in (len(steps), depth))
    value = data.draw(objects)
    before = find_at({"draft": draft}, f"/draft{locked}")
    after = attempt(draft, locked, Change(path=f"/draft{parent}", value=value), actor)
    kept = find_at({"new": value}, "/new/" + "/".join(steps[depth:]))
    is_same = _same(before, kept)
    assert (after is None) is not is_same


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict | int) and isinstance(other, dict | int):
        return canonical_json(one) == canonical_json(other)
    return one is other


@pytest.mark.parametrize("path", ["/facts/a", "/facts/a/b", "/facts"])
def test_a_lock_on_a_fact_covers_proposals_too(path: str) -> None:
    """A proposal for a locked fact, for a part of it or for all around it is refused when it is made."""
    workspace = lock(Workspace(facts={"a": {"b": 1}}), "/facts/a", actor="person").workspace
    proposal = Proposal(id="p1", changes=(Change(path=path, value={}),), reason="", base_version=0)
    with pytest.raises(WorkspaceConflict) as caught:
        propose(workspace, proposal, actor="model")
    assert caught.value.info.param == "/facts/a"
