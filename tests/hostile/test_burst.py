"""Memory after a burst: what 300 aborted streams of 4 MB needed goes back to the system."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.house import MEBIBYTE, House, house
from hostile.table import APIS
from hostile.upstream import Line, chunk, hostile_upstream

STREAMS, AT_ONCE = 300, 50
STREAM_BYTES, PIECE_BYTES = 4 * MEBIBYTE, 65_536
WAIT_S = 30.0
END_S = 120.0
"""For the journal to take what the aborted streams had said: 25 s on two cores that six others shared."""
GROWN_MAX = 1.2
PEAK_MAX = STREAMS * STREAM_BYTES * 3 // 2
"""Less than each answer once and a half: those that wait for the journal are not held several times over."""


def four_megabytes(line: Line) -> None:
    """Send 4 MB of text in large pieces, as fast as it is taken."""
    line.open()
    piece = chunk({"content": "x" * PIECE_BYTES})
    with contextlib.suppress(OSError):
        for _ in range(STREAM_BYTES // PIECE_BYTES):
            line.send(piece)


def answered(line: Line) -> None:
    """Answer as a healthy model does."""
    line.open()
    line.send(chunk({"content": "All is well."}) + chunk(finish="stop") + b"data: [DONE]\n\n")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[House]:
    """Start a server whose model talks for 4 MB."""
    with hostile_upstream({"long": four_megabytes, "good": answered}) as (url, _), house(tmp_path, url) as made:
        made.keep()
        yield made


def abort(target: House, taken: threading.Barrier) -> None:
    """Begin a stream, take its beginning, and leave when all others have begun theirs."""
    body = APIS["chat"].body(more=b'"stream":true', model="long")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {target.host}\r\ncontent-type: application/json\r\n"
    with socket.create_connection((target.host, target.port), timeout=WAIT_S) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        assert connection.recv(4_096)
        taken.wait(WAIT_S)


def is_busy(target: House) -> bool:
    """Tell whether a run has not ended: what it holds is in use."""
    return bool(target.ask("GET", "/treadle/v1/runs?status=running&limit=1").json["runs"])


@pytest.mark.exhaustive
def test_memory_goes_back_after_a_burst_of_aborted_streams(running: House) -> None:
    """Half a minute after the last of them has ended the process holds at most a fifth more than before."""
    assert running.is_well() == ""
    before = running.memory_bytes()
    running.forget_peak()
    for _ in range(STREAMS // AT_ONCE):
        taken = threading.Barrier(AT_ONCE)
        threads = [threading.Thread(target=abort, args=(running, taken)) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ended_by = time.monotonic() + END_S
    while is_busy(running):
        assert time.monotonic() < ended_by, "runs go on although nobody reads them"
        time.sleep(0.5)
    peak, deadline = running.memory_bytes(peak=True), time.monotonic() + WAIT_S
    while (held := running.memory_bytes()) > before * GROWN_MAX and time.monotonic() < deadline:
        time.sleep(0.5)
    measured = f"before {before >> 20} MB, peak {peak >> 20} MB, after {held >> 20} MB"
    assert held <= before * GROWN_MAX, measured
    assert peak <= PEAK_MAX, measured
    assert running.is_well() == ""
