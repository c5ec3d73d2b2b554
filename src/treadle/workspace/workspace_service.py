"""The workspace service: creates, reads, changes, reviews and audits workspaces, with a clock, ids and a store.

The rules of the steps are in `workspace_state`, `proposals` and `versions`. A caller that names the version it has read
gets a conflict if that is no longer current. Nothing here depends on a protocol or a model.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from treadle.core.errors import Conflict, LimitExceeded, NotFound, ProtocolError, WorkspaceConflict
from treadle.core.ids import IdSource
from treadle.journal.journal_interface import Store
from treadle.journal.workspaces_interface import DECIDED, ProposalStatus, WorkspaceRow
from treadle.workspace import proposals
from treadle.workspace import versions as history
from treadle.workspace import workspace_state as state
from treadle.workspace.json_pointer import Json, find_at
from treadle.workspace.proposal_review import Review, review
from treadle.workspace.workspace_audit import WorkspaceFinding, audit
from treadle.workspace.workspace_diff import Difference, compare
from treadle.workspace.workspace_state import (
    LOCKS_MAX,
    SECTIONS,
    Change,
    Proposal,
    Section,
    Workspace,
    WorkspaceRecord,
    WorkspaceStep,
)
from treadle.workspace.workspace_store import (
    KEY_ID,
    NAME_CHARS_MAX,
    PERSON,
    PROGRAM,
    Author,
    ProposalStanding,
    StoredWorkspace,
    Taken,
    WorkspaceHistory,
    record_of,
    snapshot_of,
    standing_of,
    stored_of,
)

WORKSPACE = "ws"
PROPOSAL = "prop"
POLL_S = 0.5
"""How often to check for a decision by another process."""
EXPIRES_S = 604_800.0
HISTORY_PAGE = 100


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """A person's confirmation: the version of the facts that they were shown, and which changes they accept.

    `only` names changes, counted from 0; `changes` are the person's own in their place; `sha256` is that of the
    proposal that was read.
    """

    version: int
    only: tuple[int, ...] | None = None
    changes: tuple[Change, ...] | None = None
    sha256: str | None = None


class Workspaces:
    """The workspaces of one key in a store, or of all keys if `key_id` is None. Use it from one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        ids: IdSource,
        clock: Callable[[], float] = time.time,
        expires_s: float = EXPIRES_S,
        key_id: str | None = KEY_ID,
    ) -> None:
        self._store = store
        self._ids = ids
        self._clock = clock
        self._key_id = key_id
        self._stored = WorkspaceHistory(store.workspaces, clock, key_id)
        self._expires_s = expires_s
        self._decided: dict[str, asyncio.Event] = {}

    def of(self, key_id: str | None) -> "Workspaces":
        """Return the workspaces of another key, in the same store."""
        if key_id == self._key_id:
            return self
        other = Workspaces(self._store, ids=self._ids, clock=self._clock, expires_s=self._expires_s, key_id=key_id)
        other._decided = self._decided  # shared, so that a decision wakes every waiter
        return other

    async def create(
        self,
        name: str = "",
        *,
        sections: Mapping[Section, Mapping[str, Json]] | None = None,
        locks: Sequence[str] = (),
        session_id: str | None = None,
        author: Author = PERSON,
    ) -> StoredWorkspace:
        """Create a workspace; only a person may create one with facts.

        Raises: Conflict (the name or the session is taken), NotFound (the session), ProtocolError, LimitExceeded.
        """
        await self._check_new(name, session_id)
        workspace = _first(sections or {}, locks)
        if workspace.facts:
            state.check_person(author.actor, "bring facts along")
        row = WorkspaceRow(
            id=self._ids.new(WORKSPACE),
            name=name,
            key_id=self._key_id or KEY_ID,
            session_id=session_id,
            created_at=0.0,
            updated_at=0.0,
            state=msgspec.Raw(b"{}"),
        )
        return await self._stored.put(row, workspace, author)

    async def get(self, id_or_name: str) -> StoredWorkspace:
        """Return a workspace.

        Raises: NotFound.
        """
        return await self._stored.get(id_or_name)

    async def find(self, id_or_name: str) -> StoredWorkspace | None:
        """Return a workspace, if there is one."""
        return await self._stored.find(id_or_name)

    async def find_of_session(self, session_id: str) -> StoredWorkspace | None:
        """Return the workspace that the runs of a session work on, if there is one."""
        row = await self._store.workspaces.find_of_session(session_id)
        return stored_of(row) if row is not None and self._key_id in (None, row.key_id) else None

    async def page(self, limit: int = 50, *, before: str | None = None) -> list[WorkspaceRow]:
        """Return workspaces, the most recently changed first.

        Raises: NotFound.
        """
        return await self._store.workspaces.page(limit, key_id=self._key_id, before=before)

    async def update(
        self, id_or_name: str, *, name: str | None = None, session_id: str | None = None
    ) -> StoredWorkspace:
        """Rename a workspace, or bind it to a session; an empty value removes the name or the binding.

        Raises: NotFound, Conflict, ProtocolError.
        """
        held = await self.get(id_or_name)
        new_name = name if name != held.row.name else None
        new_session = session_id if session_id != held.row.session_id else None
        await self._check_new(new_name or "", new_session or None)
        row = await self._store.workspaces.update(held.row.id, name=new_name, session_id=new_session)
        return stored_of(row)

    async def delete(self, id_or_name: str) -> None:
        """Delete a workspace with its history and its proposals.

        Raises: NotFound.
        """
        await self._store.workspaces.delete((await self.get(id_or_name)).row.id)

    async def patch_draft(
        self, id_or_name: str, changes: Sequence[Change], *, author: Author = PERSON, base: int | None = None
    ) -> Taken:
        """Apply all of the changes to the draft, or none; `base` is the version that they were made for.

        Raises: as `state.patch_draft`; WorkspaceConflict too when the workspace is at another version.
        """
        return await self._stored.take(
            id_or_name, lambda now: state.patch_draft(now, changes, actor=author.actor), author, base
        )

    async def show(
        self, id_or_name: str, changes: Sequence[Change], *, author: Author = PERSON, base: int | None = None
    ) -> Taken:
        """Apply all of the changes to the UI state, or none.

        Raises: as `patch_draft`.
        """
        return await self._stored.take(
            id_or_name, lambda now: state.show(now, changes, actor=author.actor), author, base
        )

    async def lock(self, id_or_name: str, path: str, *, author: Author = PERSON) -> Taken:
        """Lock the value at a path.

        Raises: as `state.lock`.
        """
        return await self._stored.take(id_or_name, lambda now: state.lock(now, path, actor=author.actor), author)

    async def unlock(self, id_or_name: str, path: str, *, author: Author = PERSON) -> Taken:
        """Release a lock.

        Raises: as `state.unlock`.
        """
        return await self._stored.take(id_or_name, lambda now: state.unlock(now, path, actor=author.actor), author)

    async def propose(
        self, id_or_name: str, changes: Sequence[Change], *, author: Author, base: int | None = None
    ) -> ProposalStanding:
        """Propose changes to the facts; the same changes as in an open proposal return that one.

        `base` is the version of the facts that they were made for, by default the current one.
        Raises: as `proposals.propose`.
        """
        held = await self._with_expired(await self.get(id_or_name))
        facts = held.workspace.facts if base is None else await self._facts_at(held, base)
        now = self._clock()
        proposal = Proposal(
            id=self._ids.new(PROPOSAL),
            changes=state.owned(changes),
            reason=author.reason,
            base_version=held.workspace.facts_version if base is None else base,
            who=author.who,
            run_id=author.run_id,
            at=now,
            expires_at=now + self._expires_s if self._expires_s else None,
        )
        for known in held.workspace.proposals:
            if known.changes == proposal.changes and await self._is_fresh(held, known):
                return ProposalStanding(workspace_id=held.row.id, status="open", proposal=known)
        taken = await self._stored.take(
            held.row.id, lambda current: proposals.propose(current, proposal, actor=author.actor, base=facts), author
        )
        return await self.standing(held.row.id, taken.record.proposal_id or proposal.id)

    async def confirm(self, id_or_name: str, proposal_id: str, consent: Consent, *, author: Author = PERSON) -> Taken:
        """Confirm a proposal, in whole, in part or with a person's own changes; see `proposals.confirm`.

        Raises: Forbidden, NotFound, ProtocolError; Conflict, when it is decided or expired; WorkspaceConflict.
        """
        state.check_person(author.actor, "confirm a proposal")
        held = await self.get(id_or_name)
        standing = await self._open(held, proposal_id)
        if consent.sha256 is not None and consent.sha256 != standing.proposal.sha256:
            raise WorkspaceConflict(f"proposal `{proposal_id}` is not the one that was read", param="sha256")

        base = await self._base(held, standing.proposal)

        def step(now: Workspace) -> WorkspaceStep:
            return proposals.confirm(
                now,
                proposal_id,
                consent.version,
                actor=author.actor,
                only=consent.only,
                changes=consent.changes,
                base=base,
            )

        return await self._decide(held, proposal_id, step, author)

    async def reject(self, id_or_name: str, proposal_id: str, *, author: Author = PERSON) -> Taken:
        """Reject a proposal; the author's reason is delivered to the model.

        Raises: Forbidden, NotFound, LimitExceeded; Conflict, when it is decided or expired.
        """
        state.check_person(author.actor, "reject a proposal")
        held = await self.get(id_or_name)
        await self._open(held, proposal_id)
        return await self._decide(
            held,
            proposal_id,
            lambda now: proposals.reject(now, proposal_id, actor=author.actor, reason=author.reason),
            author,
        )

    async def standing(self, id_or_name: str, proposal_id: str) -> ProposalStanding:
        """Return the standing of a proposal.

        Raises: NotFound.
        """
        held = await self.get(id_or_name)
        standing = await self._standing(held, proposal_id)
        if standing.status == "open" and self._is_over(standing.proposal):
            await self._with_expired(held)
            standing = await self._standing(held, proposal_id)
        return standing

    async def _standing(self, held: StoredWorkspace, proposal_id: str) -> ProposalStanding:
        row = await self._store.workspaces.find_proposal(proposal_id)
        if row is None or row.workspace_id != held.row.id:
            raise NotFound(f"there is no proposal `{proposal_id}` in this workspace", param="proposal_id")
        return standing_of(row)

    async def standings(
        self, id_or_name: str | None = None, *, status: ProposalStatus | None = None, limit: int = 100
    ) -> list[ProposalStanding]:
        """Return the proposals of a workspace, or of all, newest first; overdue ones are expired first.

        Raises: NotFound.
        """
        workspace_id = None
        if id_or_name is not None:
            workspace_id = (await self._with_expired(await self.get(id_or_name))).row.id
        rows = await self._store.workspaces.proposals(
            workspace_id=workspace_id, key_id=self._key_id, status=status, limit=limit
        )
        standings = [standing_of(row) for row in rows]
        over = {each.workspace_id for each in standings if each.status == "open" and self._is_over(each.proposal)}
        if not over:
            return standings
        for each in over:
            await self._with_expired(await self.get(each))
        return await self.standings(id_or_name, status=status, limit=limit)

    async def review(self, id_or_name: str, proposal_id: str) -> Review:
        """Return the review of an open proposal.

        Raises: NotFound; Conflict, when it is decided or expired.
        """
        held = await self.get(id_or_name)
        standing = await self._open(held, proposal_id)
        made_on = await self.at(held.row.id, standing.proposal.version)
        return review(standing.proposal, held.workspace, made_on)

    async def wait_decision(self, id_or_name: str, proposal_id: str, timeout_s: float) -> ProposalStanding:
        """Wait until a proposal is decided, in any process, or the timeout, and return its standing.

        Raises: NotFound.
        """
        deadline = time.monotonic() + timeout_s
        event = self._decided.setdefault(proposal_id, asyncio.Event())
        try:
            while True:
                standing = await self.standing(id_or_name, proposal_id)
                left = deadline - time.monotonic()
                if standing.status != "open" or left <= 0:
                    return standing
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), min(left, POLL_S))
        finally:
            self._decided.pop(proposal_id, None)

    async def take_undelivered(self, id_or_name: str) -> list[ProposalStanding]:
        """Return the decisions that were not delivered to a model yet, oldest first, and mark them as delivered.

        Raises: NotFound.
        """
        held = await self.get(id_or_name)
        rows = await self._store.workspaces.untold(held.row.id)
        if rows:
            await self._store.workspaces.mark_told([row.id for row in rows])
        return [standing_of(row) for row in rows]

    async def mark_delivered(self, proposal_id: str) -> None:
        """Mark the decision of a proposal as delivered to the model."""
        await self._store.workspaces.mark_told([proposal_id])

    async def history(self, id_or_name: str, *, before: int | None = None, limit: int = 50) -> list[WorkspaceRecord]:
        """Return the records of the steps, newest first, those below version `before`.

        Raises: NotFound.
        """
        held = await self.get(id_or_name)
        rows = await self._store.workspaces.latest_changes(held.row.id, before=before, limit=limit)
        return [record_of(row) for row in rows]

    async def at(self, id_or_name: str, version: int) -> Workspace:
        """Return the workspace at a version.

        Raises: NotFound.
        """
        held = await self.get(id_or_name)
        if version == held.row.version:
            return held.workspace
        start = await self._store.workspaces.snapshot(held.row.id, version) if version >= 0 else None
        workspace = snapshot_of(start)
        if start is None or workspace is None or version > held.row.version:
            raise NotFound(f"the workspace has no version {version}; it is at {held.row.version}", param="version")
        count = version - start.version
        for row in await self._store.workspaces.changes(held.row.id, after=start.version, limit=count):
            workspace = history.replay(workspace, record_of(row))
        return workspace

    async def diff(self, id_or_name: str, start: int, end: int | None = None) -> tuple[Difference, ...]:
        """Return the differences between two versions, by default between `start` and the current one.

        Raises: NotFound.
        """
        held = await self.get(id_or_name)
        after = held.workspace if end is None else await self.at(held.row.id, end)
        return compare((await self.at(held.row.id, start)).document(), after.document())

    async def restore(
        self, id_or_name: str, version: int, *, author: Author = PERSON, sections: Sequence[Section] = SECTIONS
    ) -> Taken:
        """Restore some sections of a version, as a new version.

        Raises: as `history.restore`; NotFound.
        """
        old = await self.at(id_or_name, version)
        return await self._stored.take(
            id_or_name,
            lambda now: history.restore(now, old, actor=author.actor, sections=sections, reason=author.reason),
            author,
        )

    async def audit(self, id_or_name: str) -> WorkspaceFinding:
        """Replay the whole history, and return the problems found.

        Raises: NotFound.
        """
        held = await self.get(id_or_name)
        store = self._store.workspaces
        rows = await store.changes(held.row.id, limit=held.row.version + 1)
        return audit(held, rows, snapshot_of(await store.snapshot(held.row.id, 0)))

    async def _decide(
        self, held: StoredWorkspace, proposal_id: str, step: Callable[[Workspace], WorkspaceStep], author: Author
    ) -> Taken:
        try:
            taken = await self._stored.take(held.row.id, step, author)
        except NotFound:
            await self._open(held, proposal_id)
            raise
        if (event := self._decided.get(proposal_id)) is not None:
            event.set()
        return taken

    async def _open(self, held: StoredWorkspace, proposal_id: str) -> ProposalStanding:
        """Return a proposal that can be decided.

        Raises: NotFound; Conflict, which says how it was decided.
        """
        standing = await self.standing(held.row.id, proposal_id)
        if standing.status == "open":
            return standing
        by = f" by {standing.decision.who}" if standing.decision is not None and standing.decision.who else ""
        raise Conflict(f"proposal `{proposal_id}` is {standing.status}{by} already", code=DECIDED, param="proposal_id")

    async def _with_expired(self, held: StoredWorkspace) -> StoredWorkspace:
        """Expire the overdue proposals, and return the workspace."""
        for proposal in held.workspace.proposals:
            if self._is_over(proposal):
                step = partial(proposals.expire, proposal_id=proposal.id)
                with suppress(NotFound):  # another process was first
                    held = (await self._stored.take(held.row.id, step, PROGRAM)).held
        return held

    async def _base(self, held: StoredWorkspace, proposal: Proposal) -> dict[str, Json] | None:
        """Return the facts that a proposal was made for, if the history still has them."""
        with suppress(NotFound):
            return (await self.at(held.row.id, proposal.version)).facts
        return None

    async def _facts_at(self, held: StoredWorkspace, facts_version: int) -> dict[str, Json] | None:
        """Return a version of the facts, found as the state before the next change of them."""
        left, before = held.workspace.facts_version - facts_version, held.row.version + 1
        if left <= 0:
            return held.workspace.facts if left == 0 else None
        while rows := await self._store.workspaces.latest_changes(held.row.id, before=before, limit=HISTORY_PAGE):
            for record in map(record_of, rows):
                left -= history.is_of_facts(record)
                if left == 0:
                    return (await self.at(held.row.id, record.version - 1)).facts
            before = rows[-1].version
        return None

    async def _is_fresh(self, held: StoredWorkspace, proposal: Proposal) -> bool:
        base = await self._base(held, proposal)
        return not proposals.moved_paths(held.workspace, proposal.base_version, proposal.changes, base)

    def _is_over(self, proposal: Proposal) -> bool:
        return proposal.expires_at is not None and proposal.expires_at <= self._clock()

    async def _check_new(self, name: str, session_id: str | None) -> None:
        if len(name) > NAME_CHARS_MAX or (name and not name.strip()):
            raise ProtocolError(f"a workspace's name has 1 to {NAME_CHARS_MAX} characters", param="name")
        if name and await self._store.workspaces.find(name, key_id=self._key_id or KEY_ID) is not None:
            raise Conflict(f"there is a workspace {name!r} already", param="name")
        if session_id is None:
            return
        session = await self._store.find_session(session_id, key_id=self._key_id)
        if session is None or session.id != session_id:
            raise NotFound(f"there is no session {session_id!r}", param="session")
        taken = await self._store.workspaces.find_of_session(session_id)
        if taken is not None:
            raise Conflict(f"the session works on the workspace {taken.name or taken.id!r}", param="session")


def _first(sections: Mapping[Section, Mapping[str, Json]], locks: Sequence[str]) -> Workspace:
    """Return a new workspace with these sections and locks."""
    changes = [Change(path=f"/{name}", value=dict(value)) for name, value in sections.items()]
    edits = state.owned(changes) if changes else ()
    document: Json = Workspace().document()
    for edit in edits:
        document = state.apply(document, edit)
    facts, draft, ui = (state.checked_section(find_at(document, f"/{name}"), name) for name in SECTIONS)
    if len(locks) > LOCKS_MAX:
        raise LimitExceeded(f"there are more than {LOCKS_MAX} locks", param="locks")
    for path in locks:
        state.section_of(path)
    return Workspace(facts=facts, draft=draft, ui=ui, locks=tuple(sorted(set(locks))))
