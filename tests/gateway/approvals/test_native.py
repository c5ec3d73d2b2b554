"""Approvals in the Responses API's own items, judged by the real openai SDK."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from gateway.approvals.desk import LOOK, WIPE_B, WIPE_C, Meanwhile, Ran, decide, desk, listed, on_postgres, pending
from gateway.gateway import Gateway
from person import person_key
from treadle.config.settings import ApprovalsSection
from treadle.core.ids import APPROVAL
from treadle.core.items import CallItem
from treadle.core.plan import Plan
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall


@pytest.fixture
def ran() -> Ran:
    """What the tools ran with."""
    return Ran()


@pytest.fixture(params=["sqlite", "postgres"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path, ran: Ran) -> Iterator[Gateway]:
    """A Treadle on each store whose model makes three calls: one that reads, two that need approval."""
    store = {"store": on_postgres()} if request.param == "postgres" else {}
    with desk(tmp_path, ran, LOOK, WIPE_B, WIPE_C, **store) as running:
        yield running


@pytest.fixture
def sdk(gateway: Gateway) -> Iterator[openai.OpenAI]:
    """A plain SDK client, which does not try again."""
    with client(gateway) as opened:
        yield opened


def client(gateway: Gateway) -> openai.OpenAI:
    """Return a client that does not try again."""
    return openai.OpenAI(base_url=gateway.url, api_key=person_key(), max_retries=0)


def questions(response: Response) -> list[Any]:
    """Return what a response asks."""
    return [item for item in response.output if item.type == "mcp_approval_request"]


def answer(question: Any, approve: bool = True, **more: Any) -> Any:
    """Answer a question, or an id."""
    asked = question if isinstance(question, str) else question.id
    return {"type": "mcp_approval_response", "approval_request_id": asked, "approve": approve, **more}


def ask(sdk: openai.OpenAI, *, stream: bool = False, **body: Any) -> Response:
    """Ask, whole or through the SDK's accumulator."""
    if not stream:
        return sdk.responses.create(model="script", **body)
    with sdk.responses.stream(model="script", **body) as events:
        return events.get_final_response()


def kinds(response: Response) -> list[str]:
    """Return the types of a response's items."""
    return [item.type for item in response.output]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_ends_with_questions_and_the_next_one_runs_what_was_approved(
    sdk: openai.OpenAI, gateway: Gateway, ran: Ran, stream: bool
) -> None:
    """What needs nobody runs at once; approved calls run once; the model reads all results in call order."""
    first = ask(sdk, stream=stream, input="go")
    assert (first.status, kinds(first)) == ("completed", ["mcp_call", *["mcp_approval_request"] * 2])
    wipe_b, wipe_c = questions(first)
    assert (wipe_b.name, wipe_b.arguments, wipe_b.server_label) == ("wipe", '{"path":"b"}', "python")
    assert wipe_b.id.startswith(f"{APPROVAL}_")
    assert ran.calls == [("look", "a")]
    both = [answer(wipe_b), answer(wipe_c, False, reason="too dear")]
    second = ask(sdk, stream=stream, previous_response_id=first.id, input=both)
    assert (second.status, kinds(second)) == ("completed", ["mcp_call", "mcp_call", "message"])
    run, denied = second.output[:2]
    assert (run.approval_request_id, run.output, run.status) == (wipe_b.id, "wiped b", "completed")
    assert (denied.approval_request_id, denied.status) == (wipe_c.id, "failed")
    assert "a person denied this call: too dear" in second.output_text
    assert second.output_text.startswith("seen | wiped b | ")
    assert ran.calls == [("look", "a"), ("wipe", "b")]
    for each in (first, second):
        assert [item.id for item in sdk.responses.retrieve(each.id).output] == [item.id for item in each.output]
    for row in gateway.ask(gateway.runtime.store.list_runs()):
        proof = gateway.ask(gateway.runtime.runs.verify_replay(row))
        assert proof.is_same, proof.problem


def test_what_is_answered_only_in_part_is_asked_again(sdk: openai.OpenAI, ran: Ran) -> None:
    """The approved call runs and keeps its result; the other is asked under the same id, and nothing runs twice."""
    first = ask(sdk, input="go")
    wipe_b, wipe_c = questions(first)
    second = ask(sdk, previous_response_id=first.id, input=[answer(wipe_c)])
    assert kinds(second) == ["mcp_call", "mcp_approval_request"]
    assert [each.id for each in questions(second)] == [wipe_b.id]
    third = ask(sdk, stream=True, previous_response_id=second.id, input=[answer(wipe_b)])
    assert third.output_text == "seen | wiped b | wiped c"
    assert ran.calls == [("look", "a"), ("wipe", "c"), ("wipe", "b")]


def refused(sdk: openai.OpenAI, **body: Any) -> tuple[int, Any]:
    """Ask for something that is refused; return the status and what the error says."""
    with pytest.raises(openai.APIStatusError) as caught:
        ask(sdk, **body)
    error: Any = caught.value.body
    return caught.value.status_code, (error["code"], error["param"])


def test_an_answer_that_belongs_to_no_question_is_refused(sdk: openai.OpenAI, ran: Ran) -> None:
    """A wrong id, another response's, both answers at once, and an approve that is no boolean: all name the field."""
    first, other = ask(sdk, input="go"), ask(sdk, input="go")
    mine, theirs = questions(first)[0], questions(other)[0]
    at = {"previous_response_id": first.id}
    field = "input[0].approval_request_id"
    assert refused(sdk, **at, input=[answer("apr_none")]) == (400, ("approval_not_found", field))
    assert refused(sdk, **at, input=[answer(theirs)])[1][1] == field
    assert refused(sdk, input=[answer(mine)])[0] == 400
    twice = [answer(mine), answer(mine, False)]
    assert refused(sdk, **at, input=twice)[1][1] == "input[1].approval_request_id"
    odd = {"type": "mcp_approval_response", "approval_request_id": mine.id, "approve": "yes"}
    assert refused(sdk, **at, input=[odd])[1][1] == "input[0].approve"
    assert ran.calls == [("look", "a"), ("look", "a")]


def test_what_was_answered_can_not_be_answered_again(sdk: openai.OpenAI, ran: Ran) -> None:
    """The same answer again, and another one: a conflict, and nothing runs twice."""
    first = ask(sdk, input="go")
    wipe_b, wipe_c = questions(first)
    at = {"previous_response_id": first.id}
    ask(sdk, **at, input=[answer(wipe_b), answer(wipe_c, False)])
    field = "input[0].approval_request_id"
    assert refused(sdk, **at, input=[answer(wipe_b), answer(wipe_c, False)]) == (409, ("approval_used", field))
    assert refused(sdk, **at, input=[answer(wipe_c)])[0] == 409
    assert ran.calls == [("look", "a"), ("wipe", "b")]


def test_of_two_clients_that_answer_at_once_one_goes_on(sdk: openai.OpenAI, gateway: Gateway, ran: Ran) -> None:
    """The others hear that the call is carried on already and leave no run behind; the tool runs once."""
    first = ask(sdk, input="go")
    both = [answer(each) for each in questions(first)]

    def go_on() -> str:
        try:
            return ask(sdk, previous_response_id=first.id, input=both).status or ""
        except openai.ConflictError as error:
            return str(error.code)

    racing = [Meanwhile(go_on) for _ in range(4)]
    assert sorted(each.result() for each in racing) == ["approval_used"] * 3 + ["completed"]
    assert ran.calls == [("look", "a"), ("wipe", "b"), ("wipe", "c")]
    assert len(gateway.ask(gateway.runtime.store.list_runs())) == 2


def test_a_decision_at_the_desk_stands(sdk: openai.OpenAI, gateway: Gateway, ran: Ran) -> None:
    """In the background too: the client only goes on, and may not say otherwise."""
    first = ask(sdk, input="go", background=True)
    while first.status in ("queued", "in_progress"):
        first = sdk.responses.retrieve(first.id)
    assert first.status == "completed"
    wipe_b, wipe_c = questions(first)
    assert decide(gateway.origin, wipe_b.id, approve=True, arguments={"path": "z"}).status_code == 200
    assert decide(gateway.origin, wipe_c.id, approve=False).status_code == 200
    at = {"previous_response_id": first.id}
    assert refused(sdk, **at, input=[answer(wipe_b, False)])[0] == 409
    second = ask(sdk, **at, input=[])
    assert [item.arguments for item in second.output[:2]] == ['{"path":"z"}', '{"path":"c"}']
    assert ran.calls == [("look", "a"), ("wipe", "z")]
    assert "arguments_changed" in second.output_text


def test_a_conversation_that_goes_on_leaves_its_questions_behind(
    sdk: openai.OpenAI, gateway: Gateway, ran: Ran
) -> None:
    """The model reads that nobody answered; the approvals can not be used any more."""
    first = ask(sdk, input="go")
    second = ask(sdk, previous_response_id=first.id, input="never mind")
    assert second.output_text.count("was not answered") == 2
    assert {each["status"] for each in listed(gateway.origin)} == {"cancelled"}
    late = [answer(questions(first)[0])]
    assert refused(sdk, previous_response_id=first.id, input=late)[0] == 409
    assert ran.calls == [("look", "a")]


@pytest.mark.parametrize("store", [True, False])
def test_a_client_may_send_the_whole_conversation_instead(sdk: openai.OpenAI, ran: Ran, store: bool) -> None:
    """Without previous_response_id: the questions come back beside their answers, and are known by their ids."""
    history: list[Any] = [{"role": "user", "content": "go"}]
    first = ask(sdk, input=history, store=store)
    wipe_b, wipe_c = questions(first)
    history += [item.to_dict() for item in first.output] + [answer(wipe_b)]
    second = ask(sdk, input=history, store=store)
    assert [each.id for each in questions(second)] == [wipe_c.id]
    history += [item.to_dict() for item in second.output] + [answer(wipe_c)]
    assert ask(sdk, input=history, store=store).output_text == "seen | wiped b | wiped c"
    assert ran.calls == [("look", "a"), ("wipe", "b"), ("wipe", "c")]


def test_a_conversation_object_keeps_its_questions(sdk: openai.OpenAI, ran: Ran) -> None:
    """Nobody has to name the response."""
    conversation = sdk.conversations.create()
    first = ask(sdk, input="go", conversation=conversation.id)
    answers = [answer(each, False) for each in questions(first)]
    assert ask(sdk, input=answers, conversation=conversation.id).output_text.count("denied") >= 2
    assert ran.calls == [("look", "a")]


def test_a_question_that_nobody_answers_in_time_expires(tmp_path: Path, ran: Ran) -> None:
    """A late answer is refused; whoever goes on without one lets the model read that the time was over."""
    with desk(tmp_path, ran, approvals=ApprovalsSection(stored_s=0.0)) as gateway, client(gateway) as sdk:
        first = ask(sdk, input="go")
        late = [answer(questions(first)[0])]
        assert refused(sdk, previous_response_id=first.id, input=late)[0] == 409
        second = ask(sdk, previous_response_id=first.id, input=[])
        assert "nobody decided about this call in time. No person denied it" in second.output_text
        [kept] = listed(gateway.origin)
    assert (kept["status"], ran.calls) == ("expired", [("look", "a")])


def test_a_turn_may_wait_for_a_person_and_for_the_client(tmp_path: Path, ran: Ran) -> None:
    """A call of the client's own beside one that needs approval: both are rejoined in call order."""
    book = ReplyCall(name="book", args={"seats": 2})
    mine: Any = {"type": "function", "name": "book", "parameters": {"type": "object"}, "strict": False}
    with desk(tmp_path, ran, WIPE_B, book, LOOK) as gateway, client(gateway) as sdk:
        first = ask(sdk, input="go", tools=[mine])
        [call] = [item for item in first.output if item.type == "function_call"]
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "booked"}
        second = ask(sdk, previous_response_id=first.id, input=[output, answer(questions(first)[0])], tools=[mine])
    assert second.output_text == "wiped b | booked | seen"
    assert ran.calls == [("look", "a"), ("wipe", "b")]


def test_responses_may_wait_as_the_other_apis_do(tmp_path: Path, ran: Ran) -> None:
    """For clients that know no approval items: the stream stays open until somebody decides."""
    with desk(tmp_path, ran, approvals=ApprovalsSection(responses="wait")) as gateway, client(gateway) as sdk:
        asking = Meanwhile(lambda: ask(sdk, stream=True, input="go"))
        [waiting] = pending(gateway.origin)
        decide(gateway.origin, waiting["id"], approve=True)
        response = asking.result()
    assert (kinds(response), response.output_text) == (["mcp_call", "mcp_call", "message"], "seen | wiped b")


def test_what_a_sibling_read_before_the_question_still_counts_after_it(tmp_path: Path, ran: Ran) -> None:
    """Untrusted output of the turn that was carried on makes the next write need approval."""
    fetch, put = ReplyCall(name="fetch", args={"url": "https://e"}), ReplyCall(name="put", args={"path": "x"})

    def turns(plan: Plan) -> Reply:
        made = sum(isinstance(item, CallItem) for item in plan.items)
        return {0: Reply(calls=(fetch, WIPE_B)), 2: Reply(calls=(put,))}.get(made, Reply(text="done"))

    with Gateway(turns, tmp_path, tools=ran.tools) as gateway, client(gateway) as sdk:
        first = ask(sdk, input="go")
        second = ask(sdk, previous_response_id=first.id, input=[answer(questions(first)[0])])
        [asked] = listed(gateway.origin, status="pending")
        third = ask(sdk, previous_response_id=second.id, input=[answer(questions(second)[0])])
    assert (asked["tool"], asked["is_tainted"], asked["reasons"]) == (
        "put",
        True,
        ["untrusted output of fetch was read before"],
    )
    assert third.output_text == "done"
    assert [name for name, _ in ran.calls] == ["fetch", "wipe", "put"]


def test_a_run_with_questions_is_replayed_and_forked(sdk: openai.OpenAI, gateway: Gateway, ran: Ran) -> None:
    """A proof needs nobody; a fork of the run that carried on does not run its calls again."""
    first = ask(sdk, input="go")
    second = ask(sdk, previous_response_id=first.id, input=[answer(each) for each in questions(first)])
    row = gateway.ask(gateway.runtime.store.find_run(second.id))
    assert row is not None
    assert gateway.ask(gateway.runtime.runs.verify_replay(row)).is_same

    async def fork() -> str:
        handle = await gateway.runtime.runs.fork(row)
        return (await handle.wait()).status

    assert gateway.ask(fork()) == "completed"
    assert ran.calls == [("look", "a"), ("wipe", "b"), ("wipe", "c")]
