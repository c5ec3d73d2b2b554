"""The model-facing tools: what they show, change and refuse, and how a person's decision reaches the model."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from store.sample import LEASE_S, OWNER, run_row, said
from treadle.core.errors import ConfigError
from treadle.core.ids import CountingIds
from treadle.core.items import CallItem, ResultItem
from treadle.core.journal_entries import entry_of_item
from treadle.core.json import write_json
from treadle.core.tool_definitions import CallContext, Fault, Outcome, is_person_only
from treadle.journal.journal_interface import RunRow, SessionRow, Store
from treadle.journal.sqlite.store import SqliteStore
from treadle.runtime import SystemClock
from treadle.tools import ToolRegistry, ToolRunner, tool
from treadle.workspace.model_tools import ProposalTerms, workspace_tools
from treadle.workspace.workspace_service import Consent, Workspaces
from treadle.workspace.workspace_store import Author

NAMES = ["draft.patch", "facts.propose", "locks.list", "state.get", "ui.show"]


class Bench:
    """A workspace called `card` and the tools of a model that works on it."""

    def __init__(self, store: Store, **terms: Any) -> None:
        self.desk = Workspaces(store, ids=CountingIds())
        self.registry = ToolRegistry(workspace_tools(self.desk, store, ProposalTerms(default="card", **terms)))
        self.runner = ToolRunner(self.registry, clock=SystemClock())
        self.calls = 0

    async def call(self, name: str, call_id: str = "", run_id: str = "", **arguments: Any) -> Outcome:
        """Call a tool as a model would."""
        self.calls += 1
        item = CallItem(
            id="fc", call_id=call_id or f"call_{self.calls}", name=name, arguments=write_json(arguments).decode()
        )
        return await self.runner.run(item, CallContext(run_id=run_id or "run_1", call_id=item.call_id))

    async def data(self, name: str, **arguments: Any) -> Any:
        """Call a tool that must succeed and return its data."""
        outcome = await self.call(name, **arguments)
        assert outcome.envelope is not None
        assert outcome.envelope.ok, outcome.text
        return msgspec.json.decode(outcome.envelope.data)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store in memory."""
    opened = SqliteStore(":memory:")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def bench(store: Store) -> Bench:
    """A workspace with facts, a draft and a lock."""
    made = Bench(store)
    sections: Any = {"facts": {"name": "Ada"}, "draft": {"title": "", "tags": ["a", "b"], "note": "keep"}}
    await made.desk.create("card", sections=sections, locks=["/draft/note"])
    return made


def faults_of(outcome: Outcome) -> tuple[Fault, ...]:
    """Return what a refused call says."""
    assert outcome.envelope is not None
    assert not outcome.envelope.ok
    return outcome.envelope.errors


def code_of(outcome: Outcome) -> str:
    """Return the code that the model reads."""
    return msgspec.json.decode(outcome.text)["error"]["code"]


async def test_a_model_has_five_tools_and_none_commits(bench: Bench) -> None:
    """The list is closed, and `facts.commit` is not in it."""
    assert [each.name for each in bench.registry.tools()] == NAMES
    assert not any(is_person_only(each.name) for each in bench.registry.tools())


async def test_state_is_read_by_pointer_with_its_versions(bench: Bench) -> None:
    """All of it, or a part; a wrong path says which step leads nowhere."""
    whole = await bench.data("state.get")
    assert whole == {
        "path": "",
        "version": 0,
        "facts_version": 0,
        "value": {
            "facts": {"name": "Ada"},
            "draft": {"title": "", "tags": ["a", "b"], "note": "keep"},
            "locks": ["/draft/note"],
            "ui": {},
        },
    }
    assert (await bench.data("state.get", path="/draft/tags", offset=1))["value"] == ["b"]
    wrong = await bench.call("state.get", path="/draft/none/x")
    assert code_of(wrong) == "invalid_pointer"
    assert "`/draft/none`" in wrong.text


async def test_a_patch_is_whole_and_says_what_changed(bench: Bench) -> None:
    """All four operations in one call."""
    changes = [
        {"path": "/draft/title", "value": "One"},
        {"path": "/draft/tags", "op": "append", "value": "c"},
        {"path": "/draft/tags/0", "op": "insert", "value": "z"},
        {"path": "/draft/tags/1", "op": "delete"},
    ]
    said = await bench.data("draft.patch", changes=changes, reason="a start")
    assert said == {"version": 1, "changed": ["/draft/title", "/draft/tags"]}
    held = await bench.desk.get("card")
    assert held.workspace.draft == {"title": "One", "tags": ["z", "b", "c"], "note": "keep"}
    record = (await bench.desk.history("card"))[0]
    assert (record.actor, record.reason, record.run_id, record.call_id) == ("model", "a start", "run_1", "call_1")


async def test_a_lock_is_named_to_the_model_and_nothing_changes(bench: Bench) -> None:
    """Also when only the last of several changes touches it; the locks can be listed."""
    changes = [{"path": "/draft/title", "value": "One"}, {"path": "/draft/note", "value": "gone"}]
    refused = await bench.call("draft.patch", changes=changes)
    assert code_of(refused) == "workspace_locked"
    assert "`/draft/note`" in refused.text
    assert (await bench.desk.get("card")).row.version == 0
    assert (await bench.data("locks.list"))["locks"] == ["/draft/note"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"changes": []}, "invalid_value"),
        ({"changes": [{"path": "/facts/name", "value": "Eve"}]}, "invalid_pointer"),
        ({"changes": [{"path": "/draft/x", "op": "move"}]}, "invalid_arguments"),
        ({"changes": "none"}, "invalid_arguments"),
        ({}, "invalid_arguments"),
    ],
)
async def test_a_wrong_patch_is_refused_with_its_code(bench: Bench, arguments: Any, code: str) -> None:
    """Facts cannot be patched, and what is not a change is said to be none."""
    assert code_of(await bench.call("draft.patch", **arguments)) == code
    assert (await bench.desk.get("card")).row.version == 0


async def test_the_same_call_patches_once(bench: Bench) -> None:
    """A call that runs again after a crash finds what it did before."""
    changes = [{"path": "/draft/tags", "op": "append", "value": "c"}]
    first = await bench.call("draft.patch", call_id="c1", changes=changes)
    again = await bench.call("draft.patch", call_id="c1", changes=changes)
    assert first.text == again.text
    assert (await bench.desk.get("card")).workspace.draft["tags"] == ["a", "b", "c"]


async def test_a_proposal_leaves_the_facts_and_is_made_once(bench: Bench) -> None:
    """The model is told that a person decides; the same changes again are the same proposal."""
    changes = [{"path": "/facts/name", "value": "Eve"}]
    said = await bench.data("facts.propose", changes=changes, reason="she said so", base_version=0)
    assert (said["status"], said["waiting_for"]) == ("open", "a person")
    assert (await bench.data("facts.propose", changes=changes, reason="again"))["proposal_id"] == said["proposal_id"]
    held = await bench.desk.get("card")
    assert held.workspace.facts == {"name": "Ada"}
    assert [each.reason for each in held.workspace.proposals] == ["she said so"]


async def test_a_proposal_for_facts_that_moved_on_is_refused(bench: Bench) -> None:
    """The version that the model has read is not the one that is there."""
    refused = await bench.call(
        "facts.propose", changes=[{"path": "/facts/name", "value": "Eve"}], reason="x", base_version=4
    )
    assert code_of(refused) == "workspace_conflict"
    assert faults_of(refused)[0].message == (
        "the facts have no version 4; they are at version 0 (read the facts again and propose anew)"
    )


async def test_a_proposal_for_older_facts_is_taken_where_they_did_not_change(bench: Bench) -> None:
    """The model goes on with what it read while a person confirms something else; what they changed is named."""
    await bench.data("facts.propose", changes=[{"path": "/facts/name", "value": "Eve"}], reason="x", base_version=0)
    [first] = (await bench.desk.get("card")).workspace.proposals
    await bench.desk.confirm("card", first.id, Consent(version=0))
    age = [{"path": "/facts/age", "value": 36}]
    said = await bench.data("facts.propose", changes=age, reason="x", base_version=0)
    assert (said["status"], said["facts_version"]) == ("open", 1)
    again = await bench.data("facts.propose", changes=age, reason="x", base_version=0)
    assert again["proposal_id"] == said["proposal_id"]
    refused = await bench.call(
        "facts.propose", changes=[{"path": "/facts/name", "value": "Zoe"}], reason="x", base_version=0
    )
    assert faults_of(refused)[0].message == (
        "the changes were made for version 0 of the facts; they are at version 1, and since then there was a change "
        "of /facts/name (read the facts again and propose anew)"
    )


async def test_a_proposal_that_changes_nothing_is_refused(bench: Bench) -> None:
    """No person is asked about it, and the model reads why."""
    refused = await bench.call("facts.propose", changes=[{"path": "/facts/name", "value": "Ada"}], reason="x")
    [fault] = faults_of(refused)
    assert (fault.code, fault.message) == (
        "nothing_to_propose",
        "the changes leave the facts as they are, so there is nothing to decide",
    )
    assert (await bench.desk.get("card")).workspace.proposals == ()


async def test_the_reason_of_a_rejection_is_what_the_model_reads_next(bench: Bench) -> None:
    """With the next result of any workspace tool, once."""
    changes = [{"path": "/facts/name", "value": "Eve"}]
    said = await bench.data("facts.propose", changes=changes, reason="x")
    person = Author(actor="person", who="kim", reason="her name is Ada")
    await bench.desk.reject("card", said["proposal_id"], author=person)
    first = await bench.call("locks.list")
    assert f"Proposal {said['proposal_id']} was rejected: her name is Ada." in first.text
    assert "rejected" not in (await bench.call("locks.list")).text


@pytest.mark.parametrize(("rc", "is_told_again"), [("cancelled", True), ("interrupted", True), ("ok", False)])
async def test_news_that_no_model_read_are_told_again(bench: Bench, store: Store, rc: str, is_told_again: bool) -> None:
    """A read that began early is dropped when its turn breaks off: the next run hears what it bore, once."""
    journals = [
        await store.start_run(run_row(name), [said("go", is_input=True)], owner=OWNER, lease_s=LEASE_S)
        for name in ("1", "2")
    ]
    made = await bench.data("facts.propose", changes=[{"path": "/facts/name", "value": "Eve"}], reason="x")
    await bench.desk.reject("card", made["proposal_id"], author=Author(actor="person", reason="her name is Ada"))
    first = await bench.call("state.get", call_id="call_dropped")
    assert "was rejected: her name is Ada." in first.text
    await journals[0].append([entry_of_item(ResultItem(call_id="call_dropped", name="state.get", rc=rc), at=1.0)])
    again = [await bench.call("state.get", run_id="run_2") for _ in range(2)]
    assert ["rejected" in outcome.text for outcome in again] == [is_told_again, False]


async def test_a_proposal_confirmed_in_part_tells_the_model_to_read_again(bench: Bench) -> None:
    """The model must not believe that all of it is fact now."""
    changes = [{"path": "/facts/name", "value": "Eve"}, {"path": "/facts/age", "value": 36}]
    said = await bench.data("facts.propose", changes=changes, reason="x")
    await bench.desk.confirm("card", said["proposal_id"], Consent(version=0, only=(1,)))
    assert "was confirmed in another form; read the facts." in (await bench.call("state.get")).text
    assert (await bench.desk.get("card")).workspace.facts == {"name": "Ada", "age": 36}


@pytest.mark.parametrize("decision", ["confirmed", "rejected"])
async def test_a_call_can_wait_for_the_decision(store: Store, decision: str) -> None:
    """The result is the decision itself, with the person's reason."""
    bench = Bench(store, wait_s=20.0)
    await bench.desk.create("card", sections={"facts": {"name": "Ada"}})
    changes = [{"path": "/facts/name", "value": "Eve"}]
    waiting = asyncio.create_task(bench.data("facts.propose", changes=changes, reason="x"))
    while not (opened := await bench.desk.standings("card", status="open")):
        pass
    person, proposal_id = Author(actor="person", reason="as you wish"), opened[0].proposal.id
    if decision == "confirmed":
        await bench.desk.confirm("card", proposal_id, Consent(version=0), author=person)
    else:
        await bench.desk.reject("card", proposal_id, author=person)
    said = await waiting
    assert (said["status"], said["reason"]) == (decision, "as you wish")
    assert await bench.desk.take_undelivered("card") == []


async def test_who_waits_too_long_goes_on(store: Store) -> None:
    """The proposal stays open, and the model is told so."""
    bench = Bench(store, wait_s=0.01)
    await bench.desk.create("card")
    said = await bench.data("facts.propose", changes=[{"path": "/facts/name", "value": "Eve"}], reason="x")
    assert said["status"] == "open"


async def test_a_panel_is_shown_by_changing_the_ui_state(bench: Bench) -> None:
    """The page reads what the model wants open."""
    await bench.data("ui.show", panel="cast", path="/draft/tags")
    assert (await bench.desk.get("card")).workspace.ui == {"panel": "cast", "path": "/draft/tags"}


async def test_a_run_works_on_the_workspace_of_its_session(bench: Bench, store: Store) -> None:
    """Before the configured one; a run without any is told so."""
    await store.create_session(SessionRow(id="sess_1", created_at=1.0, updated_at=1.0, name="s"))
    await bench.desk.create("other", session_id="sess_1", sections={"draft": {"mine": True}})
    call = CallItem(id="fc", call_id="c", name="state.get", arguments='{"path": "/draft"}')
    outcome = await bench.runner.run(call, CallContext(run_id="r", call_id="c", session_id="sess_1"))
    assert '"mine":true' in outcome.text
    alone = ToolRunner(ToolRegistry(workspace_tools(bench.desk, store)), clock=SystemClock())
    assert code_of(await alone.run(call, CallContext(run_id="r", call_id="c"))) == "no_workspace"


async def test_a_run_works_on_a_workspace_of_its_own_key(bench: Bench, store: Store) -> None:
    """Whatever name it gives: what another key calls so is not there for it."""
    for key in ("ada", "eve"):
        metadata = {"surface": {"metadata": {"treadle_workspace": "secret"}}} if key == "eve" else {}
        row = RunRow(
            id=f"run_{key}",
            response_id=f"resp_{key}",
            conversation_id=f"conv_{key}",
            protocol="responses",
            model="demo",
            created_at=1.0,
            key_id=key,
            request=msgspec.Raw(msgspec.json.encode(metadata)),
        )
        await store.start_run(row, [], owner="test", lease_s=60.0)
    await bench.desk.of("ada").create("secret", sections={"facts": {"pin": 1}})
    assert code_of(await bench.call("state.get", run_id="run_eve", path="/facts")) == "no_workspace"
    outcome = await bench.call("draft.patch", run_id="run_ada", changes=[{"path": "/draft/x", "value": 1}])
    assert outcome.rc == "ok"
    assert (await bench.desk.of("ada").get("card")).workspace.draft == {"x": 1}
    assert "x" not in (await bench.desk.get("card")).workspace.draft


async def test_the_configured_workspace_is_made_when_it_is_needed(store: Store) -> None:
    """By the first run that asks, once."""
    bench = Bench(store)
    await asyncio.gather(*(bench.data("state.get") for _ in range(5)))
    assert [row.name for row in await bench.desk.page()] == ["card"]


SPELLINGS = [
    "facts.commit",
    "facts_commit",
    "facts-commit",
    "Facts.Commit",
    "factsCommit",
    "functions.facts.commit",
    "mcp__evil__facts_commit",
    "evil/facts.commit",
    "ｆａｃｔｓ．ｃｏｍｍｉｔ",
]


@pytest.mark.parametrize("name", SPELLINGS)
async def test_facts_commit_is_refused_in_every_spelling_and_changes_nothing(bench: Bench, name: str) -> None:
    """Whatever stands before it, between its words or in their letters."""
    said = await bench.data("facts.propose", changes=[{"path": "/facts/name", "value": "Eve"}], reason="x")
    refused = await bench.call(name, proposal_id=said["proposal_id"], version=0)
    assert (refused.rc, code_of(refused)) == ("denied", "denied")
    assert "facts.propose" in refused.text
    assert (await bench.desk.get("card")).workspace.facts == {"name": "Ada"}


@pytest.mark.parametrize("name", ["facts.propose", "artifacts_commit", "facts.commits", "git.commit", "commit", ""])
def test_other_names_are_not_mistaken_for_it(name: str) -> None:
    """Only the deed itself is refused."""
    assert not is_person_only(name)


@pytest.mark.parametrize("name", SPELLINGS)
def test_nobody_can_register_a_tool_of_that_name(name: str) -> None:
    """Neither a function nor an MCP server brings one."""

    @tool(name=name)
    def commit() -> str:
        """Commit."""
        return "done"

    with pytest.raises(ConfigError, match="committed by a person only"):
        ToolRegistry([commit])
