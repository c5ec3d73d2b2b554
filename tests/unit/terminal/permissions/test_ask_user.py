"""Questions of a run: answered by policy, by a person, or by somebody elsewhere."""

import asyncio
import io

import pytest

from treadle.core.errors import ProtocolError
from treadle.core.events import ApprovalDecided, ApprovalRequested, ToolFinished
from treadle.core.items import CallItem, text_result
from treadle.core.json import write_json
from treadle.terminal.conversation.host_interface import CallDecision
from treadle.terminal.permissions.ask_user import Asker
from treadle.terminal.permissions.permission_policy import Mode, PermissionPolicy
from treadle.terminal.permissions.remembered_permissions import Allowances
from treadle.terminal.rendering.drawing_surface import Stream
from treadle.terminal.rendering.run_renderer import RunRenderer
from treadle.terminal.rendering.styles import TextStyle
from unit.terminal.conversation.fake import FakeFace, FakeHost


def event(command: str, number: int = 1, *, is_deferred: bool = False) -> ApprovalRequested:
    """Return a question about a command."""
    arguments = write_json({"command": command}).decode()
    call = CallItem(call_id=f"c{number}", name="bash", arguments=arguments, side="server")
    return ApprovalRequested(
        index=0,
        call=call,
        approval_id=f"apr_{number}",
        source="local",
        digest="d",
        reasons=("bash always needs approval",),
        is_deferred=is_deferred,
    )


class Scene:
    """An asker, what it sees and what it says."""

    def __init__(self, *keys: str, mode: Mode = "ask", can_ask: bool = True) -> None:
        self.host, self.face, self.out = FakeHost(), FakeFace(can_ask=can_ask), io.StringIO()
        self.face.keys = list(keys)
        self.policy = PermissionPolicy(mode, Allowances("/w"), sandbox=3)
        screen = RunRenderer(Stream(self.out), TextStyle())
        self.asker = Asker(self.host, self.policy, self.face, screen, lambda _: None, "/w")

    async def decided(self, count: int = 1) -> list[tuple[str, CallDecision]]:
        """Wait for so many decisions."""
        for _ in range(10_000):
            if len(self.host.decided) >= count:
                return self.host.decided
            await asyncio.sleep(0)
        raise AssertionError("it was never decided")


async def test_a_person_says_yes_to_exactly_what_was_shown() -> None:
    """The whole command stands there before the question; the answer is bound to its digest."""
    scene = Scene("y")
    scene.asker.follow(event("touch a &&\nrm b"))
    [(approval_id, decision)] = await scene.decided()
    assert (approval_id, decision.approve, decision.digest) == ("apr_1", True, "d")
    shown = scene.out.getvalue()
    assert "    touch a &&\n    rm b\n  1 touch a  NEW\n  2 rm b     NEW\n" in shown


@pytest.mark.parametrize(("key", "scope"), [("s", "session"), ("p", "project")])
async def test_always_is_remembered_and_answers_the_next_question(key: str, scope: str) -> None:
    """The second one is not asked."""
    scene = Scene(key)
    scene.asker.follow(event("touch a"))
    scene.asker.follow(event("touch a", 2))
    await scene.decided(2)
    assert f"remembered for this {scope}: exactly `touch a`" in scene.out.getvalue()
    assert len(scene.face.asked) == 1
    assert scene.host.decided[1][1].by == "policy: remembered command"


async def test_no_may_say_why() -> None:
    """The model reads it; who thinks better of it is asked again."""
    scene = Scene("N", "N")
    scene.face.answers = [None, "too risky"]
    scene.asker.follow(event("rm x"))
    [(_, decision)] = await scene.decided()
    assert (decision.approve, decision.reason) == (False, "too risky")
    assert len(scene.face.asked) == 2


async def test_a_command_may_be_changed() -> None:
    """Other arguments run; the rest of them stays."""
    scene = Scene("e")
    scene.face.answers = ["rm y"]
    scene.asker.follow(event("rm x"))
    [(_, decision)] = await scene.decided()
    assert (decision.approve, decision.arguments) == (True, '{"command":"rm y"}')
    assert scene.face.labels == ["command: rm x"]


async def test_a_change_that_is_refused_is_asked_about_again() -> None:
    """The error names what is wrong."""

    class Strict(FakeHost):
        async def decide(self, approval_id: str, decision: CallDecision) -> None:
            """Refuse other arguments."""
            if decision.arguments is not None:
                raise ProtocolError("The arguments are not valid.", param="arguments")
            await super().decide(approval_id, decision)

    scene = Scene("e", "n")
    scene.face.answers = ["rm y"]
    scene.host = Strict()
    scene.asker = Asker(
        scene.host, scene.policy, scene.face, RunRenderer(Stream(scene.out), TextStyle()), lambda _: None, "/w"
    )
    scene.asker.follow(event("rm x"))
    [(_, decision)] = await scene.decided()
    assert not decision.approve
    assert "✗ The arguments are not valid." in scene.out.getvalue()


@pytest.mark.parametrize("can_ask", [True, False])
async def test_a_server_that_cannot_run_a_command_read_only_has_the_person_asked(can_ask: bool) -> None:
    """It refuses the argument. Where nobody can be asked, the command does not run."""

    class Older(FakeHost):
        async def decide(self, approval_id: str, decision: CallDecision) -> None:
            """Refuse arguments that are not known."""
            if decision.arguments is not None:
                raise ProtocolError("There is no read_only.", param="arguments")
            await super().decide(approval_id, decision)

    scene = Scene("y", can_ask=can_ask)
    scene.host = Older()
    scene.asker = Asker(
        scene.host, scene.policy, scene.face, RunRenderer(Stream(scene.out), TextStyle()), lambda _: None, "/w"
    )
    scene.asker.follow(event("ls"))
    [(_, decision)] = await scene.decided()
    assert (decision.approve, decision.arguments, len(scene.face.asked)) == (can_ask, None, 1 if can_ask else 0)


async def test_where_nobody_is_everything_is_denied() -> None:
    """A pipe can not be asked; what only reads runs all the same."""
    scene = Scene(can_ask=False)
    scene.asker.follow(event("rm x"))
    scene.asker.follow(event("ls", 2))
    decided = dict(await scene.decided(2))
    assert (decided["apr_1"].approve, decided["apr_1"].reason) == (False, "nobody can be asked here")
    assert decided["apr_2"].approve


async def test_a_question_answered_elsewhere_goes_away() -> None:
    """The next one is asked."""
    scene = Scene()
    first = event("rm x")
    scene.asker.follow(first)
    await asyncio.sleep(0)
    scene.asker.follow(ApprovalDecided(index=0, call=first.call, approval_id="apr_1", status="approved"))
    scene.face.keys = ["n"]
    scene.asker.follow(event("rm y", 2))
    assert [approval_id for approval_id, _ in await scene.decided()] == ["apr_2"]


async def test_whoever_comes_second_is_no_error() -> None:
    """The run tells what stands."""
    scene = Scene("y")
    scene.host.decided.append(("apr_1", CallDecision(approve=False)))
    scene.asker.follow(event("rm x"))
    for _ in range(100):
        await asyncio.sleep(0)
    await scene.asker.close()
    assert "✗" not in scene.out.getvalue()


async def test_the_end_of_a_run_takes_its_questions_away() -> None:
    """Nobody answers for a run that is over; a deferred one is not asked here at all."""
    scene = Scene()
    scene.asker.follow(event("rm x"))
    scene.asker.follow(event("rm y", 2, is_deferred=True))
    await asyncio.sleep(0)
    await scene.asker.close()
    assert scene.host.decided == []


async def test_a_call_that_has_its_result_is_asked_about_no_more() -> None:
    """A run that is stopped gives every call a result before it ends: from then on no key is an answer."""
    scene = Scene()
    first = event("rm x")
    scene.asker.follow(first)
    await asyncio.sleep(0)
    result = text_result(first.call, "cancelled", is_error=True, rc="cancelled")
    scene.asker.follow(ToolFinished(index=0, call=first.call, result=result))
    scene.face.keys = ["n"]
    scene.asker.follow(event("rm y", 2))
    assert [approval_id for approval_id, _ in await scene.decided()] == ["apr_2"]


async def test_a_long_change_is_shown_whole_before_it_is_agreed_to() -> None:
    """The first card is short; `d` shows the rest, and is offered once."""
    content = "\n".join(f"row {number}" for number in range(200))
    call = CallItem(
        call_id="c", name="file_write", arguments=write_json({"path": "a", "content": content}).decode(), side="server"
    )
    scene = Scene("d", "y")
    scene.asker.follow(ApprovalRequested(index=0, call=call, approval_id="apr", source="local", digest="d"))
    await scene.decided()
    shown = scene.out.getvalue()
    assert shown.count("+row 0\n") == 2
    assert shown.count("+row 199\n") == 1
    assert ["d" in [choice.key for choice in each] for each in scene.face.asked] == [True, False]
