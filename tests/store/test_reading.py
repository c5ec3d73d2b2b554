"""The contract of reading: J9, J10 and what is found by which id."""

import hashlib
from typing import Any

import msgspec
import pytest

from store.sample import COMPLETED, LEASE_S, OWNER, called, noted, numbered, planned, resulted, run_row, said
from treadle.core.errors import NotFound
from treadle.core.events import RunEnded
from treadle.core.items import ReasoningItem
from treadle.core.journal_entries import Entry, entry_of_item, item_of_entry
from treadle.core.request import DIRECT_MODEL
from treadle.journal.journal_interface import (
    INLINE_BYTES_MAX,
    INPUT_INLINE_BYTES_MAX,
    RunJournal,
    RunRow,
    SessionRow,
    Store,
)
from treadle.journal.memory_store import MemoryStore

THOUGHT = entry_of_item(ReasoningItem(id="rs_1", summary=("because",)), at=1_005.0)


async def start(store: Store, row: RunRow, entries: list[Entry]) -> RunJournal:
    """Begin a run with these entries as its input."""
    return await store.start_run(row, entries, owner=OWNER, lease_s=LEASE_S)


EXACT = {
    "nul": said("a\x00b"),
    "only nul": said("\x00"),
    "empty": said(""),
    "nothing": Entry(kind="status", at=0.0),
    "unicode": said("naïve 🜁 \u2028 \ufeff e\u0301"),
    "lone surrogate": said("broken \ud83d half"),
    "surrogate in every text": Entry(kind="note", at=0.5, content="\udc80", name="\udc81", call_id="\udc82"),
    "surrogate in an item id": Entry(kind="user", at=0.5, content="x", item_id="msg_\udc83"),
    "odd json": noted(b'{ "b":1, "a" :[1e400,\t"\\ud800\\u0000"], "b":2 }'),
    "json that is not utf-8": noted(b'"\xff\xfe"'),
    "not json at all": noted(b"\x00\x01nonsense"),
    "empty data": noted(b""),
    "deep json": noted(b"[" * 6_000 + b"]" * 6_000),
    "as large as fits inline": noted(b'"' + b"x" * (INLINE_BYTES_MAX - 2) + b'"'),
    "just too large": noted(b'"' + b"x" * (INLINE_BYTES_MAX - 1) + b'"'),
    "a mebibyte": noted(b'"' + bytes(range(256)) * 4_096 + b'"'),
    "large content": said("é" * 1_000_000),
    "all of it": THOUGHT,
}


@pytest.mark.parametrize("name", EXACT)
async def test_entries_are_read_back_exactly(store: Store, name: str) -> None:
    """Whatever is in an entry comes back byte for byte, from each way of reading."""
    journal = await start(store, run_row(), [EXACT[name]])
    await journal.append([EXACT[name]])
    assert await store.entries("run_1") == numbered([EXACT[name], EXACT[name]])


async def test_large_data_is_found_in_history_and_by_item(store: Store) -> None:
    """Data out of line is put back wherever entries are read."""
    large = resulted("call_1", "x" * (INLINE_BYTES_MAX + 1))
    large = msgspec.structs.replace(large, item_id="fco_1")
    await start(store, run_row(), [large])
    assert await store.history("run_1") == numbered([large])
    assert await store.find_item("fco_1") == numbered([large])


async def test_large_data_is_kept_once_by_its_hash(store: Store) -> None:
    """Data just too large is found as a blob, data that fits inline is not."""
    fits, large = EXACT["as large as fits inline"], EXACT["just too large"]
    assert fits.data is not None
    assert large.data is not None
    await start(store, run_row(), [fits, large, large])
    data = bytes(large.data)
    assert await store.get_blob(hashlib.sha256(data).hexdigest(), 0, len(data) + 1) == data
    with pytest.raises(NotFound):
        await store.get_blob(hashlib.sha256(bytes(fits.data)).hexdigest(), 0, 1)


async def test_items_survive_the_journal(store: Store) -> None:
    """What was an item before is the same item after."""
    entries = [said("hi", item_id="msg_1"), called("call_1"), resulted("call_1"), THOUGHT]
    await start(store, run_row(), entries)
    assert [item_of_entry(entry) for entry in await store.history("run_1")] == [item_of_entry(e) for e in entries]


async def test_entries_are_paged_by_number(store: Store) -> None:
    """`after` and `limit` cut a run into pages; what is past the end is empty, and no number is too odd."""
    all_five = numbered([said(str(n)) for n in range(5)])
    await start(store, run_row(), all_five)
    assert await store.entries("run_1", after=2) == all_five[2:]
    assert await store.entries("run_1", after=1, limit=2) == all_five[1:3]
    assert await store.entries("run_1", after=5) == []
    assert await store.entries("run_1", after=2**80) == []
    assert await store.entries("run_1", after=-(2**80), limit=2**80) == all_five
    assert await store.entries("run_1", limit=0) == []
    assert await store.entries("run_1", limit=-1) == []


@pytest.mark.parametrize("name", ["run_0", "", "run_\udc80", "resp_1"])
async def test_an_unknown_run_has_no_entries_and_no_history(store: Store, name: str) -> None:
    """Reading a run that is not there says so; a response id is not a run id here."""
    await start(store, run_row(), [said("hi")])
    with pytest.raises(NotFound):
        await store.entries(name)
    with pytest.raises(NotFound):
        await store.history(name)


async def test_history_is_the_chain_of_runs_without_bookkeeping(store: Store) -> None:
    """From the root to the run asked for, items only, and nothing of other branches."""
    first = await start(store, run_row("1", conversation_id="conv"), [said("one")])
    await first.append([noted(b"{}"), called("call_1"), Entry(kind="tool_start", at=1.0, call_id="call_1")])
    await first.finish([resulted("call_1"), THOUGHT, said("answer one", "assistant")], COMPLETED)
    await start(store, run_row("2", conversation_id="conv", previous_id="run_1"), [said("two")])
    await start(store, run_row("branch", conversation_id="conv", previous_id="run_1"), [said("other")])
    await start(store, run_row("3", conversation_id="conv", previous_id="run_2"), [said("three")])
    one = [said("one"), called("call_1"), resulted("call_1"), THOUGHT, said("answer one", "assistant")]

    async def texts(run_id: str) -> list[Entry]:
        return [msgspec.structs.replace(entry, seq=0) for entry in await store.history(run_id)]

    assert await texts("run_1") == one
    assert await texts("run_3") == [*one, said("two"), said("three")]
    assert await texts("run_branch") == [*one, said("other")]
    assert [entry.seq for entry in await store.history("run_3")] == [1, 3, 5, 6, 7, 1, 1]
    found = await store.find_run("run_3")
    assert found is not None
    assert found.previous_id == "run_2"


async def test_history_tells_which_items_are_void(store: Store) -> None:
    """Entries of kind `void` stand after the items they name, wherever in the chain."""
    void = Entry(kind="void", at=1.0, data=msgspec.Raw(b'{"items":["msg_1"]}'))
    first = await start(store, run_row("1", conversation_id="conv"), [said("one")])
    cut = said("half an ans", "assistant", item_id="msg_1")
    await first.finish([cut, Entry(kind="frame", at=1.0), void, Entry(kind="reply", at=1.0)], COMPLETED)
    await start(store, run_row("2", conversation_id="conv", previous_id="run_1"), [said("two")])
    found = [msgspec.structs.replace(entry, seq=0) for entry in await store.history("run_2")]
    assert found == [said("one"), cut, void, said("two")]
    assert await store.find_item("msg_1") == numbered([cut], 2)


async def test_a_run_without_items_has_an_empty_history(store: Store) -> None:
    """There is a difference between no items and no run."""
    await start(store, run_row(), [noted(b"{}")])
    assert await store.history("run_1") == []


async def test_a_run_is_found_by_either_id_and_only_by_its_key(store: Store) -> None:
    """Another key does not see it; without a key everything is seen."""
    await start(store, run_row(key_id="key_1"), [])
    mine = run_row(key_id="key_1")
    assert await store.find_run("run_1") == mine
    assert await store.find_run("resp_1", key_id="key_1") == mine
    assert await store.find_run("resp_1", key_id="key_2") is None
    assert await store.find_run("resp_1", key_id="") is None
    assert await store.find_run("resp_2") is None
    assert await store.find_run("resp_\udc80") is None


async def test_runs_are_listed_newest_first_in_pages(store: Store) -> None:
    """Pages join without a gap; an unknown cursor is refused by name."""
    for n in range(5):
        await start(store, run_row(str(n)), [])
    assert [row.id for row in await store.list_runs(limit=2)] == ["run_4", "run_3"]
    assert [row.id for row in await store.list_runs(limit=2, before="run_3")] == ["run_2", "run_1"]
    assert [row.id for row in await store.list_runs(limit=2**80, before="run_1")] == ["run_0"]
    assert await store.list_runs(before="run_0") == []
    assert await store.list_runs(limit=0) == []
    with pytest.raises(NotFound, match="run_x"):
        await store.list_runs(before="run_x")


async def test_runs_are_listed_by_status_and_key(store: Store) -> None:
    """The filters narrow together."""
    for name, key_id in (("a", "key_1"), ("b", "key_1"), ("c", "key_2")):
        journal = await start(store, run_row(name, key_id=key_id), [])
        if name != "a":
            await journal.finish([], COMPLETED)
    assert [row.id for row in await store.list_runs(status="completed")] == ["run_c", "run_b"]
    assert [row.id for row in await store.list_runs(status="running")] == ["run_a"]
    assert [row.id for row in await store.list_runs(status="completed", key_id="key_1")] == ["run_b"]


async def test_runs_are_found_by_the_plan_they_made(store: Store) -> None:
    """Each run once, newest first, in pages, together with the other filters."""
    for name, prints in (("a", ["f1"]), ("b", ["f1", "f2", "f1"]), ("c", ["f2"]), ("d", ["f1"])):
        journal = await start(store, run_row(name, key_id="key_1" if name == "d" else ""), [])
        await journal.append([planned(fingerprint) for fingerprint in prints])

    async def ids(**narrowed: Any) -> list[str]:
        return [row.id for row in await store.list_runs(**narrowed)]

    assert await ids(fingerprint="f1") == ["run_d", "run_b", "run_a"]
    assert await ids(fingerprint="f1", limit=1, before="run_d") == ["run_b"]
    assert await ids(fingerprint="f1", key_id="key_1") == ["run_d"]
    assert await ids(fingerprint="f1", status="completed") == []
    assert [await ids(fingerprint=other) for other in ("f3", "", "demo", "\udc80")] == [[]] * 4


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"fingerprint":null}', b'{"fingerprint":"\\ud800"}', b"\xff", b""])
async def test_a_plan_with_odd_data_is_kept_like_any_other(store: Store, data: bytes) -> None:
    """It is just not found by a fingerprint."""
    odd = Entry(kind="plan", at=1.0, data=msgspec.Raw(data))
    await start(store, run_row(), [odd])
    assert await store.entries("run_1") == numbered([odd])
    assert await store.list_runs(fingerprint="") == []


async def test_an_item_is_found_by_its_id(store: Store) -> None:
    """The entry that a run wrote itself wins over one that a client sent back later; keys keep apart."""
    journal = await start(store, run_row("1", key_id="key_1"), [said("q", item_id="msg_in", is_input=True)])
    await journal.append([said("answer", "assistant", item_id="msg_out")])
    echoed = said("answer, changed", "assistant", item_id="msg_out", is_input=True)
    await start(store, run_row("2", key_id="key_1"), [echoed])
    assert await store.find_item("msg_out") == numbered([said("answer", "assistant", item_id="msg_out")], 2)
    assert await store.find_item("msg_in", key_id="key_1") == numbered([said("q", item_id="msg_in", is_input=True)])
    assert await store.find_item("msg_in", key_id="key_2") == []
    assert await store.find_item("msg_none") == []


async def test_a_call_is_found_with_the_result_of_its_own_run(store: Store) -> None:
    """Upstreams reuse call ids: the result of another run is another result."""
    for name in ("1", "2"):
        journal = await start(store, run_row(name), [])
        call = msgspec.structs.replace(called("call_1"), item_id=f"fc_{name}")
        await journal.append([call, msgspec.structs.replace(resulted("call_1"), content=f"result {name}")])
    found = await store.find_item("fc_1")
    assert [(entry.kind, entry.content) for entry in found][1:] == [("tool_result", "result 1")]


WAITING = RunEnded(status="requires_action", ended_at=2.0)


async def waiting(store: Store, name: str, question: str, *entries: Entry, key_id: str = "") -> None:
    """Keep a run that hands its last round to the client."""
    asked = said(question, is_input=True)
    journal = await start(store, run_row(name, key_id=key_id), [asked, Entry(kind="plan", at=1.0)])
    await journal.finish(entries, WAITING)


async def test_turns_are_found_by_their_calls_and_their_question(store: Store) -> None:
    """Of all runs that used the id, those that were asked the same and know more than the client."""
    thought = Entry(kind="reasoning", at=1.0)
    await waiting(store, "1", "go", called("call_1"), called("call_2"), resulted("call_2"))
    await waiting(store, "2", "something else", called("call_1"), called("call_2"), resulted("call_2"))
    await waiting(store, "3", "go", called("call_1"))
    await waiting(store, "4", "go", thought, called("call_1"))
    await waiting(store, "5", "go", called("call_1"), called("call_2"), resulted("call_2"), key_id="bob")
    found = await store.find_turns(["call_1", "call_x"], ["go", "stop"], key_id="")
    assert [turn.run_id for turn in found] == ["run_4", "run_1"]
    assert [entry.kind for entry in found[1].entries] == ["tool_call", "tool_call", "tool_result"]
    assert await store.find_turns(["call_x"], ["go"]) == []


async def test_only_the_last_round_of_a_turn_is_found(store: Store) -> None:
    """Earlier rounds are the server's business alone, whatever they hold; a run without a question counts."""
    for name, last in (("1", [called("call_2")]), ("2", [Entry(kind="reasoning", at=1.0), called("call_2")])):
        journal = await start(store, run_row(name), [Entry(kind="plan", at=1.0)])
        await journal.append([called("call_1"), resulted("call_1"), Entry(kind="plan", at=1.0)])
        await journal.finish(last, WAITING)
    [turn] = await store.find_turns(["call_2"], ["anything"])
    assert turn.run_id == "run_2"
    assert [(entry.kind, entry.call_id) for entry in turn.entries] == [("reasoning", None), ("tool_call", "call_2")]


async def test_the_question_of_a_run_is_the_last_thing_that_its_user_says(store: Store) -> None:
    """However much was done since, and whatever the run itself says; a run that nobody asked anything has none."""
    done = [called("call_0", is_input=True), resulted("call_0", is_input=True)]
    talk = [said("begin", is_input=True), said("go on", is_input=True), *done * 20, planned("f")]
    late = Entry(kind="user", at=1.0, content="said by the run", item_id="msg_late")
    for name, entries in (("1", talk), ("2", [said("go on")]), ("3", [])):
        journal = await start(store, run_row(name), entries)
        await journal.finish([Entry(kind="plan", at=1.0), THOUGHT, called("call_1"), late], WAITING)
    assert await store.questions(["run_1", "run_2", "run_3", "run_4"]) == {"run_1": "go on"}
    for questions, runs in ((["go on"], ["run_3", "run_2", "run_1"]), (["begin"], ["run_3", "run_2"])):
        found = await store.find_turns(["call_1"], questions)
        assert [turn.run_id for turn in found] == runs


async def test_a_turn_that_is_too_large_to_be_looked_into_is_found(store: Store) -> None:
    """Its call may carry a provider's opaque state; what the rounds before it hold does not matter."""
    large = called("call_1", arguments='{"text":"' + "x" * INLINE_BYTES_MAX + '"}')
    await waiting(store, "1", "go", large)
    [turn] = await store.find_turns(["call_1"], ["go"])
    assert [entry.data for entry in turn.entries] == [large.data]


async def test_a_run_without_a_question_is_found_by_a_client_that_asks_none(store: Store) -> None:
    """All that is said to the model may be a system's message, on both sides."""
    journal = await start(store, run_row("1"), [said("obey", "system", is_input=True), Entry(kind="plan", at=1.0)])
    await journal.finish([THOUGHT, called("call_1")], WAITING)
    await waiting(store, "2", "go", THOUGHT, called("call_1"))
    assert [turn.run_id for turn in await store.find_turns(["call_1"], [])] == ["run_1"]


async def test_the_question_is_found_behind_an_input_that_is_kept_out_of_line(store: Store) -> None:
    """Such a run is begun by itself, not in a group."""
    large = entry_of_item(ReasoningItem(id="rs_1", summary=("x" * INLINE_BYTES_MAX,)), at=1.0, is_input=True)
    await start(store, run_row("1"), [said("go", is_input=True), large, said("on", "assistant", is_input=True)])
    assert await store.questions(["run_1"]) == {"run_1": "go"}


@pytest.mark.parametrize(
    ("size", "is_input", "is_stored", "is_apart"),
    [
        (INPUT_INLINE_BYTES_MAX, True, True, False),
        (INPUT_INLINE_BYTES_MAX + 1, True, True, True),
        (INPUT_INLINE_BYTES_MAX + 1, False, True, False),
        (INLINE_BYTES_MAX, True, False, False),
        (INLINE_BYTES_MAX + 1, True, False, True),
    ],
    ids=["small", "shared", "the run's own", "not to be stored", "not to be stored, and large"],
)
async def test_input_that_may_come_again_stands_apart(
    store: Store, size: int, is_input: bool, is_stored: bool, is_apart: bool
) -> None:
    """So that a whole conversation in every request is kept once; what is purged at its end is not worth it."""
    data = b'"' + b"x" * (size - 2) + b'"'
    entry = Entry(kind="other", at=1.0, item_id="item_1", data=msgspec.Raw(data), is_input=is_input)
    await start(store, run_row(store=is_stored), [entry])
    assert await store.entries("run_1") == numbered([entry])
    assert await store.find_item("item_1") == numbered([entry])
    try:
        kept = await store.get_blob(hashlib.sha256(data).hexdigest(), 0, size)
    except NotFound:
        kept = None
    # Runs that are in memory only end with the process: nothing is shared there.
    is_shared = is_apart and (size > INLINE_BYTES_MAX or not isinstance(store, MemoryStore))
    assert kept == (data if is_shared else None)


async def test_a_blob_is_kept_once_and_read_in_pieces(store: Store) -> None:
    """The name of a blob is the hash of its bytes; reading stops at its end."""
    await start(store, run_row(), [])
    data = bytes(range(256)) * 10
    name = await store.put_blob(data, run_id="run_1")
    assert name == hashlib.sha256(data).hexdigest()
    assert await store.put_blob(data, run_id="run_1") == name
    assert await store.get_blob(name, 0, 2**80) == data
    assert await store.get_blob(name, 250, 10) == data[250:260]
    assert await store.get_blob(name, 2_555, 10) == data[2_555:]
    assert await store.get_blob(name, 2_560, 10) == b""
    assert await store.get_blob(name, 0, 0) == b""
    assert await store.get_blob(name, -5, 3) == data[:3]


@pytest.mark.parametrize(
    ("other", "is_readable"),
    [
        ({"conversation_id": "conv_1"}, True),
        ({"session_id": "s1"}, True),
        ({}, False),
        ({"conversation_id": "conv_1", "session_id": "s1", "key_id": "stranger"}, False),
    ],
    ids=["same conversation", "same session", "another conversation", "another key"],
)
async def test_a_run_reads_only_what_its_own_conversation_and_key_kept(
    store: Store, other: dict[str, str], is_readable: bool
) -> None:
    """Knowing the hash is not enough: a handle of somebody else is not there, nor for a run that is not."""
    await store.create_session(SessionRow(id="s1", name="one", created_at=1.0, updated_at=1.0))
    first = await store.start_run(run_row(session_id="s1"), [], owner=OWNER, lease_s=LEASE_S)
    name = await store.put_blob(b"kept by run_1", run_id="run_1")
    await first.finish([], COMPLETED)
    await start(store, run_row("2", **other), [])
    assert await store.get_blob(name, 0, 4, run_id="run_1") == b"kept"
    if is_readable:
        assert await store.get_blob(name, 0, 4, run_id="run_2") == b"kept"
    else:
        with pytest.raises(NotFound, match="blob"):
            await store.get_blob(name, 0, 4, run_id="run_2")
        await store.put_blob(b"kept by run_1", run_id="run_2")
        assert await store.get_blob(name, 0, 4, run_id="run_2") == b"kept"
    with pytest.raises(NotFound, match="blob"):
        await store.get_blob(name, 0, 4, run_id="run_3")


@pytest.mark.parametrize(
    ("fields", "is_readable"),
    [({"model": DIRECT_MODEL}, True), ({}, False), ({"model": DIRECT_MODEL, "key_id": "stranger"}, False)],
    ids=["another call", "a model's run", "another key"],
)
async def test_calls_without_a_model_read_what_each_other_kept(
    store: Store, fields: dict[str, str], is_readable: bool
) -> None:
    """Each is a run of its own, and what one had to cut the next one reads on; within their key, and nobody else."""
    await start(store, run_row(model=DIRECT_MODEL), [])
    await start(store, run_row("2", **fields), [])
    name = await store.put_blob(b"kept by run_1", run_id="run_1")
    if is_readable:
        assert await store.get_blob(name, 5, 2, run_id="run_2") == b"by"
    else:
        with pytest.raises(NotFound, match="blob"):
            await store.get_blob(name, 5, 2, run_id="run_2")


async def test_an_unknown_blob_or_run_is_refused(store: Store) -> None:
    """Neither a blob that is not there nor one for a run that is not there."""
    with pytest.raises(NotFound, match="blob"):
        await store.get_blob("0" * 64, 0, 1)
    with pytest.raises(NotFound, match="run_1"):
        await store.put_blob(b"data", run_id="run_1")
