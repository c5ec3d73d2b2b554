"""A model that always answers with the ground truth: any failure is then a fault of the gateway or the harness."""

from collections.abc import Mapping
from typing import Any, cast

from treadle.core.items import MessageItem, ResultItem
from treadle.core.json import write_json
from treadle.core.plan import Plan
from treadle.evals.bfcl.dataset import Accepted, BfclQuestion, TruthCall
from treadle.providers.fakes.scripted_reply import Reply, ReplyCall

SAID = "Done."


class TruthPlayer:
    """Answers a question that the model's name names, turn by turn; after results it says that it is done."""

    def __init__(self, questions: Mapping[str, BfclQuestion]) -> None:
        self._questions = questions

    def __call__(self, plan: Plan) -> Reply:
        """Reply to one request."""
        question = self._questions[plan.model]
        last = plan.items[-1]
        if isinstance(last, ResultItem):
            return Reply(text=SAID)
        calls = truth_calls(question, _turn(plan, question))
        if not calls:
            return Reply(text="I cannot do that with what I have. What shall I do?")
        names = _told_names(plan)
        return Reply(
            calls=tuple(
                ReplyCall(
                    name=names.get(call.name, call.name),
                    raw=write_json(call.arguments).decode(),
                    id=f"call_{len(plan.items)}_{place}",
                )
                for place, call in enumerate(calls)
            )
        )


def truth_calls(question: BfclQuestion, turn: int) -> list[TruthCall]:
    """Return the calls that answer a turn, the first of the accepted values where there are several."""
    if question.is_multi:
        return question.truth[turn]
    if question.set == "live_relevance":
        return [TruthCall(name=question.functions[0].name, arguments={})]
    return [
        TruthCall(name=name, arguments=_chosen(accepted))
        for call in question.answers
        for name, accepted in call.items()
    ]


def _turn(plan: Plan, question: BfclQuestion) -> int:
    """Return which turn it is: a user may say several things in one."""
    said = sum(isinstance(item, MessageItem) and item.role == "user" for item in plan.items)
    turns = [sum(message["role"] == "user" for message in turn) for turn in question.turns]
    for number in range(len(turns)):
        if said <= sum(turns[: number + 1]):
            return number
    return len(turns) - 1


def _told_names(plan: Plan) -> dict[str, str]:
    """Return the names that the model was told, by the names they stand for; most are the same."""
    return {tool.name: tool.name for tool in plan.tools} | {
        name: tool.name for tool in plan.tools for name in [tool.name.replace("_", ".")] if "." in name
    }


def _chosen(accepted: Accepted) -> dict[str, Any]:
    return {name: _value(options[0]) for name, options in accepted.items() if options and options[0] != ""}


def _value(value: Any) -> Any:
    """Return a value with the first of the options in it, however deep."""
    if isinstance(value, dict):
        return {
            name: _value(cast("list[Any]", each)[0] if isinstance(each, list) and each else each)
            for name, each in cast("dict[str, Any]", value).items()
            if not (isinstance(each, list) and each and cast("list[Any]", each)[0] == "")
        }
    if isinstance(value, list):
        return [_value(each) for each in cast("list[Any]", value)]
    return value
