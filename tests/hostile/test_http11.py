"""What HTTP/1.1 allows is read to exactly its end; what it does not allow is refused, and never read as two."""

import re
import socket
from contextlib import suppress

import pytest

from hostile.http11 import CASES, LAST, Case
from hostile.table import Scene

STATUS_LINE = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z][A-Za-z -]+\r\n")
SHORT = [case for case in CASES if len(case.sent) < 1_000]
FINAL = 200
"""Statuses below it only say that the answer is still to come."""


def exchange(scene: Scene, sent: bytes, step: int = 1_000_000) -> bytes:
    """Send bytes over a connection of their own, and return everything that comes back until it is closed."""
    answers = b""
    with socket.create_connection((scene.house.host, scene.house.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(sent), step):
                connection.sendall(sent[start : start + step])
        with suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                answers += piece
    return answers


def statuses(answers: bytes) -> tuple[int, ...]:
    """Return the status of each answer, those that only ask the client to go on left out."""
    found = [int(status) for status in STATUS_LINE.findall(answers)]
    return tuple(status for status in found if status >= FINAL)


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_bytes_are_answered_as_http_says(scene: Scene, case: Case) -> None:
    """With these statuses, in this order, and the connection is closed or goes on as they say."""
    assert statuses(exchange(scene, case.sent + LAST)) == case.statuses


@pytest.mark.parametrize("case", SHORT, ids=[case.id for case in SHORT])
def test_bytes_that_come_one_by_one_are_answered_alike(scene: Scene, case: Case) -> None:
    """Wherever the network cuts them."""
    assert statuses(exchange(scene, case.sent + LAST, step=1)) == case.statuses


def test_there_are_enough_cases() -> None:
    """Each is told apart by its name."""
    assert len({case.id for case in CASES}) == len(CASES) >= 150
