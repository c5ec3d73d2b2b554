"""Recording: when things came, how it ended, and what is never written."""

import itertools
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.errors import ConfigError
from treadle.http.client_errors import ConnectionBroken
from treadle.providers.cassettes.file_format import data_of, load_cassette
from treadle.providers.cassettes.recorder import REDACTED, RecordedAnswer, Recorder, Secrets
from treadle.providers.provider_endpoint import Endpoint, Secret

KEY = "sk-very-secret-0001"
ENDPOINT = Endpoint(
    name="up",
    base_url="http://up.invalid/v1",
    key=Secret(KEY),
    headers={"x-tenant": "tenant-0815"},
    quirks=("no_seed",),
)


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> float:
        return self.at


class Network:
    """An answer whose reads give these things, one after the other."""

    status = 200
    content_type = "text/event-stream"

    def __init__(self, *reads: bytes | Exception, clock: Ticks | None = None) -> None:
        self.headers = {"Content-Type": self.content_type, "Set-Cookie": "a=b"}
        self.reads = list(reads)
        self.clock = clock
        self.is_closed = False

    async def end(self) -> None:
        """Not asked for."""
        raise AssertionError("what is recorded is read to its end")

    @property
    def content(self) -> "Network":
        return self

    async def readany(self) -> bytes:
        if self.clock is not None:
            self.clock.at += 0.25
        read = self.reads.pop(0)
        if isinstance(read, Exception):
            raise read
        return read

    def close(self) -> None:
        self.is_closed = True


def recorder(folder: Path, clock: Ticks | None = None) -> Recorder:
    """A recorder whose clock stands still unless the test moves it."""
    ticks = clock or Ticks()
    return Recorder(folder, Secrets([ENDPOINT]), now=ticks.now, monotonic=ticks.now)


async def read_all(answer: RecordedAnswer) -> None:
    """Read to the end, or to what breaks it."""
    try:
        while await answer.content.readany():
            pass
    except OSError:
        pass


@pytest.mark.parametrize(
    ("last", "how"),
    [
        (b"", "eof"),
        (ConnectionBroken(), "reset"),
        (ConnectionResetError(), "reset"),
        (TimeoutError(), "timeout"),
    ],
)
async def test_how_a_call_ended_is_recorded(tmp_path: Path, last: bytes | Exception, how: str) -> None:
    """The end, a cut and a silence are three different things."""
    recording = recorder(tmp_path).begin(ENDPOINT, "/chat/completions", b"{}", {}, "run_1")
    recording.answer(200, {})
    answer = RecordedAnswer(inner=Network(b"a", last), recording=recording)
    await read_all(answer)
    answer.close()
    (call,) = load_cassette(tmp_path).calls
    assert (call.ended.how, [data_of(chunk) for chunk in call.chunks]) == (how, [b"a"])


async def test_an_answer_that_is_given_up_is_kept_as_far_as_it_was_read(tmp_path: Path) -> None:
    """Leaving early closes the network's answer too."""
    recording = recorder(tmp_path).begin(ENDPOINT, "/x", b"{}", {}, "run_1")
    recording.answer(200, {})
    network = Network(b"a", b"b")
    answer = RecordedAnswer(inner=network, recording=recording)
    await answer.readany()
    answer.close()
    (call,) = load_cassette(tmp_path).calls
    assert (call.ended.how, len(call.chunks), network.is_closed) == ("closed", 1, True)
    assert (answer.status, answer.content_type) == (200, "text/event-stream")


async def test_each_chunk_has_the_time_since_the_one_before(tmp_path: Path) -> None:
    """The head, each chunk and the end."""
    clock = Ticks()
    recording = recorder(tmp_path, clock).begin(ENDPOINT, "/x", b"{}", {}, "run_1")
    clock.at += 2
    recording.answer(200, {})
    await read_all(RecordedAnswer(inner=Network(b"a", b"b", b"", clock=clock), recording=recording))
    (call,) = load_cassette(tmp_path).calls
    assert call.answered is not None
    assert (call.asked.at, call.answered.after_s, call.ended.after_s) == (100.0, 2.0, 0.25)
    assert [chunk.after_s for chunk in call.chunks] == [0.25, 0.25]


def test_a_run_has_a_file_of_its_own_and_its_calls_follow_each_other(tmp_path: Path) -> None:
    """Named after run and upstream, whatever characters they have, and readable by its owner only."""
    written = recorder(tmp_path / "deep" / "er")
    for run_id in ("run_1", "run_1", "../run/2", ""):
        written.begin(ENDPOINT, "/x", b"{}", {}, run_id).end("refused")
    folder = tmp_path / "deep" / "er"
    assert sorted(file.name for file in folder.iterdir()) == [".._run_2.up.jsonl", "calls.up.jsonl", "run_1.up.jsonl"]
    cassette = load_cassette(folder / "run_1.up.jsonl")
    assert (len(cassette.calls), cassette.header.quirks) == (2, ("no_seed",))
    assert (folder / "run_1.up.jsonl").stat().st_mode & 0o077 == 0


def test_auth_headers_are_left_out_and_known_secrets_blanked(tmp_path: Path) -> None:
    """By the name of the header, and by what is known to be secret, wherever it stands."""
    headers = {
        "Authorization": f"Bearer {KEY}",
        "x-api-key": "other",
        "X-Goog-Api-Key": "other",
        "cookie": "a=b",
        "x-note": f"about {KEY}",
        "x-ratelimit-remaining-tokens": "12",
    }
    body = f'{{"say":"{KEY} of tenant-0815"}}'.encode()
    recorder(tmp_path).begin(ENDPOINT, "/x", body, headers, "r").end("refused")
    (call,) = load_cassette(tmp_path).calls
    assert call.asked.headers == {"x-note": f"about {REDACTED}", "x-ratelimit-remaining-tokens": "12"}
    assert call.body == f'{{"say":"{REDACTED} of {REDACTED}"}}'.encode()


@given(st.binary(max_size=30), st.binary(max_size=30), st.lists(st.integers(0, 80), max_size=8))
def test_a_secret_is_found_wherever_the_network_cut_it(before: bytes, after: bytes, cuts: list[int]) -> None:
    """No chunk keeps a piece of it, and nothing else changes."""
    whole = before + KEY.encode() + after
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    chunks = [whole[a:b] for a, b in itertools.pairwise(places)]
    blanked = Secrets([ENDPOINT]).blank_chunks(chunks)
    assert len(blanked) == len(chunks)
    assert b"".join(blanked) == Secrets([ENDPOINT]).blank(whole)


def test_a_short_key_is_not_looked_for() -> None:
    """Blanking every `abc` would make the recording useless, and hide nothing."""
    short = Endpoint(name="s", base_url="http://s.invalid/v1", key=Secret("abc"))
    assert Secrets([short]).blank(b"abc abc") == b"abc abc"


def test_a_disk_that_fails_fails_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once for the call, and the call goes on."""
    written = recorder(tmp_path / "tapes")
    (tmp_path / "tapes" / "r.up.jsonl").mkdir()
    with caplog.at_level(logging.WARNING):
        written.begin(ENDPOINT, "/x", b"{}", {}, "r").end("refused")
    assert "a call of run r was not recorded: Is a directory" in caplog.text


def test_a_folder_that_can_not_be_made_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    """Found when the server starts, not with the first call."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="can not record to") as caught:
        recorder(tmp_path / "file")
    assert caught.value.param == "record"
