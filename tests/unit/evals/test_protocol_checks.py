"""What clients are sent: a good run is a good stream in every protocol, and each broken stream is found out."""

from collections.abc import Callable

import pytest

from treadle.core.events import RunEvent
from treadle.evals import protocol_checks as wiring
from treadle.evals.offline_runner import Play, play_whole
from treadle.evals.protocol_checks import wire_problems
from treadle.evals.scenario_file import find_scenarios, load_scenario
from treadle.evals.transcript import PlayedRun, Transcript
from treadle.protocols.protocol_registry import PROTOCOLS


async def played(name: str) -> Transcript:
    """Return the transcript of a scenario that comes with Treadle."""
    path = next(path for path in find_scenarios() if path.stem == name)
    evidence = (await play_whole(load_scenario(path), Play())).evidence
    assert evidence is not None
    return evidence.transcript


@pytest.mark.parametrize("name", ["wire_pairs", "wire_mixed", "wire_cut", "limits_leave", "wire_length"])
async def test_a_good_run_is_a_good_stream_in_every_protocol(name: str) -> None:
    """Whether it ends well, waits for its client, breaks, is cancelled or is cut."""
    assert wire_problems(await played(name)) == []


BROKEN: list[tuple[str, Callable[[bytes], bytes], str]] = [
    ("chat", lambda data: data.replace(b"data: [DONE]\n\n", b""), "[DONE] must come once and last"),
    ("chat", lambda data: data + b"data: [DONE]\n\n", "[DONE] must come once and last"),
    ("chat", lambda data: data.replace(b'"finish_reason":"stop"', b'"finish_reason":null'), "one finish reason"),
    ("chat", lambda data: data.replace(b"Cloudy", b"Sunny"), "the journal"),
    ("responses", lambda data: data.replace(b'"sequence_number":3', b'"sequence_number":9'), "have a gap"),
    ("responses", lambda data: data.replace(b"event: response.completed", b"event: response.done"), "not named"),
    ("responses", lambda data: data.rpartition(b"event: response.completed")[0], "one terminal event"),
    ("messages", lambda data: data.replace(b"event: message_stop", b"event: x").rpartition(b"event: x")[0], "once"),
    ("messages", lambda data: data.replace(b'_start","index":0', b'_start","index":5'), "numbered"),
    ("gemini", lambda data: data.replace(b'"finishReason":"STOP"', b'"other":"STOP"'), "one finish reason"),
    ("gemini", lambda data: data.replace(b"data: {", b"data: {{", 1), "is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("client", "change", "problem"), BROKEN, ids=[f"{row[0]}-{row[2]}" for row in BROKEN])
async def test_a_broken_stream_is_found_out(
    client: str, change: Callable[[bytes], bytes], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing or second end, a gap in numbers, a wrong name, words that the journal does not have."""
    transcript = await played("wire_pairs")
    sent = wiring.sent

    def spoiled(transcript: Transcript, run: PlayedRun, to: str) -> bytes:
        data = sent(transcript, run, to)  # type: ignore[arg-type]
        changed = change(data) if to == client else data
        assert to != client or changed != data
        return changed

    monkeypatch.setattr(wiring, "sent", spoiled)
    problems = wire_problems(transcript)
    assert problems
    assert all(f"to a {client} client" in each for each in problems)
    assert any(problem in each for each in problems)


def test_events_that_are_no_run_are_found_out() -> None:
    """Without a beginning or an end there is nothing to send."""
    none: tuple[RunEvent, ...] = ()
    problems = wire_problems(Transcript(runs=(PlayedRun(entries=(), events=none),)))
    assert len(problems) == len(PROTOCOLS)
    assert "do not begin and end" in problems[0]
