"""`treadle serve --workers 2` as a person starts it: one port, two processes, and what becomes of one that dies."""

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from chaos.server import Server, prepare, servers
from chaos.test_kill import effects
from treadle.config import read_settings
from treadle.core.errors import ConfigError

BOUND_S = 60.0


def counted(server: Server, name: str) -> float:
    """Return the sum of a series over all its labels, as any worker tells it."""
    lines = server.ask("GET", "/metrics")[1].decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} ")))


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_run_goes_on(tmp_path: Path) -> None:
    """SIGKILL in a tool with effects: the run ends, nothing runs twice, and what was counted stays counted."""
    prepare(tmp_path, 60.0)
    with servers(tmp_path, f"sqlite:///{tmp_path}/treadle.db", 1, "--workers", "2") as [server]:
        deadline = time.monotonic() + BOUND_S
        while len(before := server.workers()) < 2:
            assert time.monotonic() < deadline
        response = server.background("Please pay the amount 42")
        while not effects(tmp_path):
            assert time.monotonic() < deadline
        (tmp_path / "pause").write_text("0")
        asked = counted(server, "treadle_http_requests_total")
        for pid in before:
            # Who drives it is not to be seen from outside: one is killed, and if the run still waits, the other.
            os.kill(pid, signal.SIGKILL)
            if _ends(server, response, 3.0):
                break
        assert _ends(server, response, BOUND_S)
        assert len(effects(tmp_path)) == 1
        while len(set(server.workers()) - set(before)) < 1:
            assert time.monotonic() < deadline + BOUND_S
        assert counted(server, "treadle_http_requests_total") >= asked
        assert server.leave() == 0


def _ends(server: Server, response_id: str, within_s: float) -> bool:
    """Tell whether a run has ended by then."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            status, body = server.ask("GET", f"/v1/responses/{response_id}")
        except OSError:
            continue  # the worker that took the connection died
        if status == 200 and msgspec.json.decode(body)["status"] == "completed":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("toml", "param"),
    [
        ('server.workers = 2\nstore.persistence = "off"', "server.workers"),
        ('server.workers = 2\nrecord = "tapes"', "server.workers"),
        ("server.workers = 0", "server.workers"),
        ('runner.kind = "temporal"\nstore.persistence = "off"', "runner.kind"),
        ('runner.kind = "nomad"', "runner.kind"),
        ('runner.key_env = "not a name"', "runner.key_env"),
    ],
)
def test_workers_that_cannot_work_together_are_refused_by_name(tmp_path: Path, toml: str, param: str) -> None:
    """Before anything starts."""
    file = tmp_path / "treadle.toml"
    file.write_text(toml)
    with pytest.raises(ConfigError) as caught:
        read_settings(str(file), env={"HOME": str(tmp_path)})
    assert param in caught.value.message
