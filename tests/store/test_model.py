"""The journal against a model of it: random steps by several owners, the same outcome in both."""

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from store.conftest import FACTORIES
from store.sample import COMPLETED, LEASE_S, SetClock, called, numbered, resulted, run_row, said
from treadle.core.errors import Conflict, NotFound, StoreError
from treadle.core.journal_entries import ITEM_KINDS, Entry
from treadle.journal.journal_interface import Chunk, RunJournal

owners = st.sampled_from(["owner_a", "owner_b"])
texts = st.text(max_size=20) | st.just("\udc80") | st.just("\x00")
keys = st.sampled_from([None, None, "k1", "k2"])
entry_lists = st.lists(
    st.builds(said, texts, st.sampled_from(["user", "assistant"]))
    | st.builds(called, st.sampled_from(["c1", "c2"]))
    | st.builds(resulted, st.sampled_from(["c1", "c2"]), st.text(max_size=20)),
    max_size=4,
)


class ModelRun:
    """What a run must look like."""

    def __init__(self, previous: str | None, owner: str, until: float) -> None:
        self.previous = previous
        self.owner = owner
        self.until = until
        self.entries: list[Entry] = []
        self.epochs: list[int] = []
        self.chunks: list[Chunk] = []
        self.key: str | None = None
        self.epoch = 1
        self.is_cancelled = False
        self.is_ended = False

    def add(self, added: list[Entry]) -> int:
        """Take in new entries and return the number of the last."""
        new = numbered(added, len(self.entries) + 1)
        self.entries += new
        self.epochs += [self.epoch] * len(new)
        return len(self.entries)

    def take(self, owner: str, until: float) -> None:
        """Change hands."""
        self.owner, self.until = owner, until
        self.epoch += 1

    def repeats(self, added: list[Entry]) -> bool:
        """Tell whether a call would have two calls or two results."""
        keys = [(e.kind, e.call_id) for e in [*self.entries, *added] if e.call_id is not None]
        return len(keys) != len(set(keys))


async def begun(write: Callable[..., Awaitable[Any]], *values: Any, **named: Any) -> Any:
    """Begin a write inside of the loop, and wait for it."""
    return await write(*values, **named)


class JournalMachine(RuleBasedStateMachine):
    """Runs each step on the store and on the model."""

    factory = "sqlite-memory"
    journals: Bundle[RunJournal] = Bundle("journals")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = SetClock()
        self.runner = asyncio.Runner()
        self.store = FACTORIES[self.factory](Path(self.folder.name), self.clock)
        self.runs: dict[str, ModelRun] = {}
        self.count = 0
        self.do(self.store.open())

    def do(self, step: Any) -> Any:
        return self.runner.run(step)

    def outcome(self, step: Any) -> Any:
        try:
            return self.do(step)
        except (Conflict, NotFound, StoreError) as error:
            return error.info.code

    def teardown(self) -> None:
        self.do(self.store.close())
        self.runner.close()
        self.folder.cleanup()

    def refusal(self, journal: RunJournal, added: list[Entry]) -> str | None:
        run = self.runs.get(journal.run_id)
        if run is None:
            return "not_found"
        if run.epoch != journal.epoch:
            return "lease_lost"
        if run.is_ended:
            return "run_ended"
        return "conflict" if run.repeats(added) else None

    @rule(target=journals, owner=owners, entries=entry_lists, key=keys, data=st.data())
    def start(self, owner: str, entries: list[Entry], key: str | None, data: st.DataObject) -> Any:
        previous = data.draw(st.sampled_from([None, *self.runs]))
        run = ModelRun(previous, owner, self.clock.now + LEASE_S)
        fitting = [] if run.repeats(entries) else entries
        row = run_row(f"{self.count}", conversation_id="conv", previous_id=previous, idempotency_key=key)
        self.count += 1
        outcome = self.outcome(begun(self.store.start_run, row, fitting, owner=owner, lease_s=LEASE_S))
        if key is not None and key in [other.key for other in self.runs.values()]:
            assert outcome == "idempotency_key_taken"
            return multiple()
        run.key = key
        run.add(fitting)
        self.runs[row.id] = run
        return outcome

    @rule(journal=journals, entries=entry_lists)
    def append(self, journal: RunJournal, entries: list[Entry]) -> None:
        refused = self.refusal(journal, entries)
        outcome = self.outcome(begun(journal.append, entries))
        if refused is not None:
            assert outcome == refused
            return
        run = self.runs[journal.run_id]
        assert outcome == run.add(entries)
        run.until = self.clock.now + LEASE_S

    @rule(journal=journals, entries=entry_lists, forgets=st.booleans())
    def finish(self, journal: RunJournal, entries: list[Entry], forgets: bool) -> None:
        refused = self.refusal(journal, entries)
        forget = [journal.run_id] if forgets else []
        outcome = self.outcome(begun(journal.finish, entries, COMPLETED, forget=forget))
        if refused is not None:
            assert outcome == refused
            return
        run = self.runs[journal.run_id]
        assert outcome == run.add(entries)
        run.chunks = []
        run.is_ended = True
        if forgets:
            run.entries, run.epochs = [], []

    @rule(
        journal=journals,
        first=st.integers(1, 9),
        words=st.lists(texts, min_size=1, max_size=3),
        keep_from=st.integers(0, 9),
    )
    def tell(self, journal: RunJournal, first: int, words: list[str], keep_from: int) -> None:
        chunk = Chunk(first=first, count=len(words), data=json.dumps(words).encode())
        refused = self.refusal(journal, [])
        outcome = self.outcome(journal.write_chunk(chunk, keep_from=keep_from))
        assert outcome == refused
        if refused is None:
            run = self.runs[journal.run_id]
            kept = [each for each in run.chunks if keep_from < each.first + each.count <= first]
            run.chunks = [*kept, chunk]
            run.until = self.clock.now + LEASE_S

    @rule(journal=journals)
    def cancel(self, journal: RunJournal) -> None:
        run = self.runs.get(journal.run_id)
        is_live = run is not None and not run.is_ended
        assert self.do(self.store.request_cancel(journal.run_id)) is is_live
        if run is not None and is_live:
            run.is_cancelled = True

    @rule(journal=journals)
    def release(self, journal: RunJournal) -> None:
        refused = self.refusal(journal, [])
        self.do(journal.release())
        if refused is None:
            self.runs[journal.run_id].until = 0.0
            assert self.outcome(begun(journal.renew)) == "lease_lost"
            self.reclaim(journal.run_id)

    def reclaim(self, run_id: str) -> None:
        claimed = self.do(self.store.claim_abandoned("owner_c", LEASE_S, 1))
        assert [row.id for row, _ in claimed] == [run_id]
        self.runs[run_id].take("owner_c", self.clock.now + LEASE_S)

    @rule(target=journals, owner=owners, seconds=st.sampled_from([0.0, 5.0, 10.0, 15.0]))
    def claim(self, owner: str, seconds: float) -> Any:
        self.clock.now += seconds
        abandoned = [name for name, run in self.runs.items() if not run.is_ended and run.until <= self.clock.now]
        claimed = self.do(self.store.claim_abandoned(owner, LEASE_S, 100))
        assert sorted(row.id for row, _ in claimed) == sorted(abandoned)
        for row, journal in claimed:
            run = self.runs[row.id]
            run.take(owner, self.clock.now + LEASE_S)
            assert journal.epoch == run.epoch
        return multiple(*(journal for _, journal in claimed))

    @rule(journal=consumes(journals))
    def delete(self, journal: RunJournal) -> None:
        run = self.runs.pop(journal.run_id, None)
        assert self.do(self.store.delete_run(journal.run_id)) is (run is not None)
        for other in self.runs.values():
            if run is not None and other.previous == journal.run_id:
                other.previous = run.previous

    @rule(journal=journals)
    def purge(self, journal: RunJournal) -> None:
        run = self.runs.get(journal.run_id)
        outcome = self.outcome(self.store.purge_run(journal.run_id))
        if run is None:
            assert outcome == "not_found"
        elif not run.is_ended:
            assert outcome == "conflict"
        else:
            run.entries, run.epochs = [], []

    @invariant()
    def the_journal_is_what_the_model_says(self) -> None:
        rows = self.do(self.store.list_runs(limit=1_000))
        assert sorted(row.id for row in rows) == sorted(self.runs)
        for row in rows:
            run = self.runs[row.id]
            assert row.previous_id == run.previous
            assert (row.status == "completed") is run.is_ended
            assert self.do(self.store.entries(row.id)) == run.entries
            assert self.do(self.store.chunks(row.id)) == run.chunks

    @invariant()
    def every_chain_is_sound(self) -> None:
        for name, run in self.runs.items():
            lines = self.do(self.store.audit(name))
            assert [(line.seq, line.epoch) for line in lines] == list(enumerate(run.epochs, 1))
            assert [line.sha256 for line in lines] == [line.expected for line in lines]
            assert "" not in [line.sha256 for line in lines]

    @invariant()
    def keys_and_requests_belong_to_their_runs(self) -> None:
        for key in ("k1", "k2"):
            found = self.do(self.store.find_idempotent(key, key_id=""))
            assert (found and found.id) == next((name for name, run in self.runs.items() if run.key == key), None)
        for owner in ("owner_a", "owner_b", "owner_c"):
            asked = [n for n, r in self.runs.items() if r.is_cancelled and not r.is_ended and r.owner == owner]
            assert self.do(self.store.cancel_requests(owner)) == asked

    @invariant()
    def history_is_the_chain(self) -> None:
        for name in self.runs:
            chain: list[ModelRun] = []
            at: str | None = name
            while at is not None:
                chain.insert(0, self.runs[at])
                at = self.runs[at].previous
            expected = [entry for run in chain for entry in run.entries if entry.kind in ITEM_KINDS]
            assert self.do(self.store.history(name)) == expected


# The same steps every time, unless one goes looking for new ones.
_fuzz = os.environ.get("TREADLE_HYPOTHESIS") == "fuzz"
_settings = settings(
    max_examples=min(300, settings.default.max_examples // 3),
    stateful_step_count=50 if _fuzz else 25,
    derandomize=not _fuzz,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.parametrize("factory", sorted(FACTORIES))
def test_random_steps_end_as_in_the_model(factory: str) -> None:
    """Writes, ends, take-overs, cancels and deletions by several owners: entries, chunks, chains and refusals agree."""
    machine = type("Machine", (JournalMachine,), {"factory": factory})
    # Each step is a journey to the server, and the steps are the same: half of them are as many as fit.
    examples = _settings.max_examples // 2 if factory == "postgres" and not _fuzz else _settings.max_examples
    run_state_machine_as_test(machine, settings=settings(_settings, max_examples=examples))
