"""The guard of the hot path: a request may not cost more Python calls than it did, beyond a margin."""

import asyncio
import gc
from pathlib import Path

import pytest

from cost.rig import CASES, ROUNDS, Rig, rig

MARGIN = 1.10
"""By how much a count may grow before somebody has to look: what is meant to cost that raises the number below."""

REQUEST = {"off": 408, "on": 512}
"""Python calls of one plain request, from its parsed head to its last byte, by whether there is a journal (3.11)."""

EVENT = {"same protocol": 4.1, "as Responses": 5.1, "as Messages": 5.1, "one by one": 59}
"""Python calls of one more event in a stream, from the upstream's bytes to the client's; one by one: each alone."""

TURN = 1.0
"""Python calls of one more turn of history: read, kept in the journal, planned, written to the upstream."""

REQUESTS = 10

ROUND = 475
"""Python calls of one more tool round: the model's call, the tool, the journal's entries, the next plan."""


async def test_a_plain_request_costs_no_more_calls_than_it_did(tmp_path: Path) -> None:
    """Without a journal, and with one on SQLite, whose writer has a thread of its own."""
    for journal, most in REQUEST.items():
        async with rig(tmp_path, is_kept=journal == "on") as treadle:
            calls = await treadle.calls(CASES["plain"])
        assert calls <= most * MARGIN, f"journal {journal}: {calls} calls, {most} when this was last looked at"


@pytest.mark.parametrize("form", EVENT)
async def test_an_event_costs_no_more_calls_than_it_did(form: str, tmp_path: Path) -> None:
    """Counted between 100 and 1,000 events, so that what a request costs by itself falls out."""
    async with rig(tmp_path, is_kept=False) as treadle:
        few, many = [await treadle.calls(CASES[f"{form}, {count} events"], 1) for count in (100, 1000)]
    calls = (many - few) / 900
    assert calls <= EVENT[form] * MARGIN, f"{form}: {calls:.1f} calls an event, {EVENT[form]} when last looked at"


async def test_a_turn_of_history_costs_no_more_calls_than_it_did(tmp_path: Path) -> None:
    """Counted over 400 of them, so that what is done once falls out."""
    async with rig(tmp_path, is_kept=False) as treadle:
        none, some = [await treadle.calls(CASES[name], 1) for name in ("plain", "plain, 400 turns of history")]
    calls = (some - none) / 400
    assert calls <= TURN * MARGIN, f"{calls:.1f} calls a turn, {TURN} when this was last looked at"


async def test_a_server_tool_more_costs_nothing(tmp_path: Path) -> None:
    """What is made of the same tools is made once, however many there are."""
    counts: list[int] = []
    for tools in (0, 100):
        async with rig(tmp_path, is_kept=False, tools=tools) as treadle:
            counts.append(await treadle.calls(CASES["plain"]))
    none, many = counts
    assert many - none <= 20, f"{(many - none) / 100:.1f} calls a tool"


async def test_a_tool_round_costs_no_more_calls_than_it_did(tmp_path: Path) -> None:
    """Counted between an answer without tools and one after a few rounds."""
    async with rig(tmp_path, is_kept=False) as treadle:
        none, some = [await treadle.calls(CASES[name]) for name in ("no tool round", "tool rounds")]
    calls = (some - none) / ROUNDS
    assert calls <= ROUND * MARGIN, f"{calls:.0f} calls a round, {ROUND} when this was last looked at"


RINGS = ("plain", "same protocol, 100 events", "as Responses, 100 events", "as Messages, 100 events", "tool rounds")


@pytest.mark.parametrize("name", RINGS)
async def test_a_request_leaves_nothing_that_only_the_collector_can_free(name: str, tmp_path: Path) -> None:
    """What ends is freed at once: thousands of streams that end do not wait in memory for the next collection."""
    async with rig(tmp_path, is_kept=False) as treadle:
        for _ in range(3):
            await treadle.ask(CASES[name])
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                await treadle.ask(CASES[name])
            await asyncio.sleep(0)
            left = gc.collect()
        finally:
            gc.enable()
    assert left < REQUESTS, f"{left / REQUESTS:.0f} objects a request are in rings"


async def test_work_that_is_done_twice_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard can fail: each event encoded once more costs more than the margin."""
    from treadle.protocols.chat.client_encoder import Encoder

    once = Encoder.feed
    extra: list[object] = []

    def twice(encoder: Encoder, event: object) -> list[bytes]:
        for _ in range(3):
            extra.append(_seen(event))
        return once(encoder, event)  # type: ignore[arg-type]

    async with rig(tmp_path, is_kept=False) as treadle:
        before = await _an_event(treadle)
        monkeypatch.setattr(Encoder, "feed", twice)
        after = await _an_event(treadle)
    assert after > before * MARGIN


async def _an_event(treadle: Rig) -> float:
    few, many = [await treadle.calls(CASES[f"same protocol, {count} events"], 1) for count in (100, 1000)]
    return (many - few) / 900


def _seen(event: object) -> object:
    return event
