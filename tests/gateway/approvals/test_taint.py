"""Untrusted output that is in a conversation stays untrusted, whatever the next request offers; over real HTTP."""

from pathlib import Path
from typing import Any

import pytest

from gateway.approvals.desk import Ran, listed
from gateway.approvals.test_native import answer, ask, client, kinds, questions
from gateway.gateway import Gateway
from treadle.core.items import CallItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall

FETCH = ReplyCall(name="fetch", args={"url": "https://e"})
PUT = ReplyCall(name="put", args={"path": "x"})
READ = ["untrusted output of fetch was read before"]


def only(*names: str) -> dict[str, Any]:
    """Let the model call these tools and no others."""
    return {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "name": name} for name in names]}


@pytest.mark.parametrize("choice", [None, "put"])
def test_a_tool_that_is_not_offered_any_more_was_still_read(tmp_path: Path, choice: str | None) -> None:
    """A request that narrows its tools to the one that writes is asked as any other, and the question says why."""
    ran = Ran()

    def turns(plan: Plan) -> Reply:
        made = [item.name for item in plan.items if isinstance(item, CallItem)]
        asked = sum(getattr(item, "role", "") == "user" for item in plan.items)
        wanted = {(0, 1): FETCH, (1, 2): PUT}.get((len(made), asked))
        return Reply(text="done") if wanted is None else Reply(calls=(wanted,))

    narrowed = {} if choice is None else {"tool_choice": only(choice)}
    with Gateway(turns, tmp_path, tools=ran.tools) as gateway, client(gateway) as sdk:
        first = ask(sdk, input="go")
        assert kinds(first) == ["mcp_call", "message"]
        second = ask(sdk, previous_response_id=first.id, input="and now", **narrowed)
        assert kinds(second) == ["mcp_approval_request"]
        [asked] = listed(gateway.origin, status="pending")
        assert (asked["tool"], asked["is_tainted"], asked["reasons"]) == ("put", True, READ)
        third = ask(sdk, previous_response_id=second.id, input=[answer(questions(second)[0])], **narrowed)
    assert third.output_text == "done"
    assert [name for name, _ in ran.calls] == ["fetch", "put"]
