"""A server with something to show: a model that does what the question says, tools that work, fail and ask.

The question is `TOOL {json}`, several joined by `;;`, or `fail`, or plain text. A run whose calls are done is answered
with their results.
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gateway.server_process import BOUND_S, Served
from person import person_headers
from warm.start import Popen

KEY = "sk-a-key-that-no-page-may-see-4711"
PROGRAM = f"""
KEY = {KEY!r}
"""
PROGRAM += """
import sys

import msgspec
import uvloop
from treadle import tool
from treadle.config import Settings
from treadle.config.settings import ApprovalsSection, Price, ServerSection, StoreSection, Upstream, WorkspaceSection
from treadle.evals.scenario_from_run import scenario_of, write_scenario
from treadle.runtime import Parts, RandomIds, Runtime
from treadle.server.server_process import serve
from treadle.providers.fakes.scripted_reply import Faults, ReplyCall
from treadle.providers.fakes.scripted_model import Script, ScriptedModel, ScriptTurn
from treadle.core.items import MessageItem, ResultItem, text_of
from treadle.core.usage import Usage


@tool(effect="read")
def get_price(article: str) -> float:
    "Tell a price."
    return 12.5


@tool(effect="read")
def look_up(word: str) -> str:
    "Look a word up, and fail."
    raise LookupError(f"there is no {word}")


@tool(effect="destructive")
def delete_file(path: str) -> str:
    "Delete a file for ever."
    return f"{path} is gone"


def turn_for(plan):
    last = [item for item in plan.items if isinstance(item, (MessageItem, ResultItem))][-1]
    usage = Usage(input_tokens=1200, output_tokens=40)
    if isinstance(last, ResultItem):
        return ScriptTurn(text=f"It gave: {text_of(last.output)[:200]}", usage=usage)
    asked = text_of(last.content)
    if asked == "fail":
        return ScriptTurn(faults=Faults(status=400, message="the model is not well", code="unwell"))
    calls = []
    for part in asked.split(";;"):
        name, _, given = part.strip().partition(" ")
        if given.startswith("{"):
            calls.append(ReplyCall(name=name, args=msgspec.json.decode(given)))
    if calls:
        return ScriptTurn(text="Let me see.", calls=tuple(calls), usage=usage)
    return ScriptTurn(text=f"You said: {asked}", usage=usage)


class Obedient:
    def __init__(self):
        self.count = 0

    async def stream(self, plan, run_id):
        self.count += 1
        turn = turn_for(plan)
        named = tuple(
            msgspec.structs.replace(call, id=f"call_{self.count}_{n}") for n, call in enumerate(turn.calls, 1)
        )
        script = Script(turns=(msgspec.structs.replace(turn, calls=named),))
        async for batch in ScriptedModel(script, ids=RandomIds()).stream(plan, run_id):
            yield batch


async def main(store, server, approvals):
    upstream = Upstream(name="far", base_url="http://127.0.0.1:9/v1", key_env="FAR_KEY", models=("far-*",))
    settings = Settings(
        store=StoreSection(url=store),
        default_model="demo",
        upstream=(upstream,),
        server=msgspec.json.decode(server, type=ServerSection),
        approvals=msgspec.json.decode(approvals, type=ApprovalsSection),
        workspace=WorkspaceSection(enabled=True, default="desk"),
        price=(Price(model="*", input=2.0, output=10.0),),
    )
    parts = Parts(env={"FAR_KEY": KEY}, models={"demo": Obedient()})
    tools = [get_price, look_up, delete_file]
    async with Runtime(settings, tools=tools, parts=parts) as runtime:
        await serve(
            runtime,
            lambda address: print(address.url, address.login, flush=True),
            5.0,
            lambda runs: write_scenario(scenario_of(runs)),
        )


uvloop.run(main(*sys.argv[1:]))
"""


class Console(Served):
    """A running server, and what tests ask of it; `login` is the path by which its admin comes in."""

    login: str = ""

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Make a request as a program does, and return the JSON of the answer."""
        with closing(http.client.HTTPConnection(self.host, self.port, timeout=BOUND_S)) as connection:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json", **person_headers()})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 400, text
            return json.loads(text) if text else None

    def run(self, question: str, *, waits: bool = True, **more: Any) -> str:
        """Start a run, wait for its end unless told, and return its id."""
        run_id: str = self.call("POST", "/treadle/v1/runs", {"input": question, **more})["id"]
        if waits:
            self.wait(run_id)
        return run_id

    def wait(self, run_id: str) -> None:
        """Read the events of a run until it has ended."""
        with self.connect() as connection:
            connection.request("GET", f"/treadle/v1/runs/{run_id}/events")
            connection.getresponse().read()

    def ask_for(self, path: str, **more: Any) -> tuple[str, dict[str, Any]]:
        """Start a run that asks a person about a call, and return it and the approval once that is there."""
        run_id = self.run(f'delete_file {{"path": "{path}"}}', waits=False, **more)
        with self.connect() as connection:
            connection.request("GET", f"/treadle/v1/runs/{run_id}/events")
            answer = connection.getresponse()
            while b"approval.requested" not in (line := answer.readline()):
                assert line, "the run ended without asking"
        return run_id, self.call("GET", f"/treadle/v1/approvals?run={run_id}")["approvals"][0]

    def propose(self, **facts: Any) -> dict[str, Any]:
        """Propose facts for the workspace `desk`, which is made if need be."""
        listed = self.call("GET", "/treadle/v1/workspaces")["workspaces"]
        if not any(each["name"] == "desk" for each in listed):
            self.call("POST", "/treadle/v1/workspaces", {"name": "desk", "facts": {"city": "Turku"}})
        changes = [{"path": f"/facts/{name}", "value": value} for name, value in facts.items()]
        body = {"changes": changes, "reason": "the letter says so"}
        return self.call("POST", "/treadle/v1/workspaces/desk/proposals", body)


@contextmanager
def console_server(folder: Path, *, decide_s: float = 300.0, **server: Any) -> Iterator[Console]:
    """Start such a server with these settings of its own, and end it with the test."""
    section = json.dumps({"port": 0, "evals": str(folder / "none"), **server})
    approvals = json.dumps({"wait_s": decide_s, "stored_s": decide_s})
    process = Popen(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{folder}/treadle.db", section, approvals],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert process.stdout is not None
    try:
        url, _, login = process.stdout.readline().strip().partition(" ")
        host, _, port = url.removeprefix("http://").partition(":")
        yield Console(process=process, host=host, port=int(port), login=login)
    finally:
        process.kill()
        process.communicate()
