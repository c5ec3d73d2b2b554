"""What fails whatever a person says is not asked about: the model reads how to ask, and a person is asked once."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import openai
import pytest

from gateway.approvals.desk import Meanwhile, asks, decide, listed, pending
from gateway.gateway import Gateway
from gateway.judges import JUDGES, close_clients
from person import person_key
from treadle.config import Settings
from treadle.config.local_tool_settings import LocalSection
from treadle.config.settings import ToolsSection
from treadle.core.items import ResultItem, text_of
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall
from treadle.tools.sandbox import CommandSandbox

API = "chat"
LEVEL = CommandSandbox().found.level
needs_sandbox = pytest.mark.skipif(LEVEL == 0, reason="nothing confines commands here")


def asks_again(name: str, first: dict[str, Any], again: dict[str, Any]) -> Callable[[Plan], Reply]:
    """A model that makes a call, makes it again as the answer says, and tells what it read."""

    def answer(plan: Plan) -> Reply:
        results = [text_of(item.output) for item in plan.items if isinstance(item, ResultItem)]
        if not results:
            return Reply(calls=(ReplyCall(name=name, args=first),))
        if len(results) == 1 and next(iter(again)) in results[0]:
            return Reply(calls=(ReplyCall(name=name, args=first | again),))
        return Reply(text=" | ".join(results))

    return answer


class Local(Gateway):
    """A Treadle with local tools on a folder of its own."""

    def __init__(self, model: Callable[[Plan], Reply], folder: Path, **local: Any) -> None:
        super().__init__(model, folder)
        self.root = folder / "work"
        self.root.mkdir(exist_ok=True)
        self._local = LocalSection(root=str(self.root), **local)

    def _settings(self, url: str) -> Settings:
        return msgspec.structs.replace(super()._settings(url), tools=ToolsSection(local=self._local))


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_clients()


@pytest.mark.parametrize("name", ["AGENTS.md", "deep/.vscode/tasks.json"])
def test_a_person_is_asked_once_about_a_protected_path(tmp_path: Path, name: str) -> None:
    """The first call gets its answer unasked, with how to ask; the second is asked about, and runs."""
    model = asks_again("file_write", {"path": name, "content": "x"}, {"protected": True})
    with Local(model, tmp_path, enabled=("file_write",)) as gateway:
        asking = Meanwhile(lambda: JUDGES[API](gateway, "script", False))
        [row] = pending(gateway.origin)
        assert json.loads(row["arguments"])["protected"] is True
        assert decide(gateway.origin, row["id"], approve=True).status_code == 200
        seen = asking.result()
        assert len(listed(gateway.origin)) == 1
        [run] = gateway.ask(gateway.runtime.store.list_runs())
        assert gateway.ask(gateway.runtime.runs.verify_replay(run)).is_same
        written = (gateway.root / name).read_text()
    assert not seen.failed
    assert "call again with protected=true" in seen.text
    assert written == "x"


def test_nobody_is_asked_about_a_path_that_leads_elsewhere(tmp_path: Path) -> None:
    """A person would allow another name than the one that is written: the model reads which one to ask for."""
    model = asks_again("file_write", {"path": "link/settings.json", "content": "x"}, {"protected": True})
    with Local(model, tmp_path, enabled=("file_write",)) as gateway:
        (gateway.root / ".idea").mkdir()
        (gateway.root / "link").symlink_to(".idea")
        seen = JUDGES[API](gateway, "script", False)
        assert listed(gateway.origin) == []
        assert not (gateway.root / ".idea" / "settings.json").exists()
    assert 'call again with path=\\".idea/settings.json\\" and protected=true' in seen.text


@needs_sandbox
def test_a_person_is_asked_once_about_a_git_write(tmp_path: Path) -> None:
    """A command that cannot do without writing the repository."""
    model = asks_again("bash", {"command": "touch a && git add a"}, {"git": True})
    with Local(model, tmp_path, enabled=("bash",)) as gateway:
        subprocess.run(["git", "init", "-q"], cwd=gateway.root, check=True)
        asking = Meanwhile(lambda: JUDGES[API](gateway, "script", False))
        [row] = pending(gateway.origin)
        assert json.loads(row["arguments"])["git"] is True
        assert decide(gateway.origin, row["id"], approve=True).status_code == 200
        seen = asking.result()
        assert len(listed(gateway.origin)) == 1
    assert "call again with git=true" in seen.text
    assert (gateway.root / ".git" / "index").exists()


@pytest.mark.skipif(LEVEL < 2, reason="commands have one level here")
@pytest.mark.parametrize(("asked_at", "run_at"), [("auto", "L1"), ("L1", "auto")])
def test_a_command_runs_at_no_lower_level_than_it_was_asked_at(tmp_path: Path, asked_at: str, run_at: str) -> None:
    """Allowed at a process that confines it well, it does not run at one that does less, and the model is told."""
    asks_once = asks(ReplyCall(name="bash", args={"command": "echo x > made"}))
    with Local(asks_once, tmp_path, enabled=("bash",), sandbox=asked_at) as gateway, _client(gateway) as sdk:
        first = sdk.responses.create(model="script", input="go")
    answer: Any = {"type": "mcp_approval_response", "approval_request_id": first.output[0].id, "approve": True}
    with Local(asks_once, tmp_path, enabled=("bash",), sandbox=run_at) as gateway, _client(gateway) as sdk:
        second = sdk.responses.create(model="script", previous_response_id=first.id, input=[answer])
        is_made = (gateway.root / "made").exists()
    is_weaker = run_at == "L1"
    assert is_made is not is_weaker
    assert ("it was allowed to run at sandbox L" in second.output_text) is is_weaker


def _client(gateway: Gateway) -> openai.OpenAI:
    return openai.OpenAI(base_url=gateway.url, api_key=person_key(), max_retries=0)
