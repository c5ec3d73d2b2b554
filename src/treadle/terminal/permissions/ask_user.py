"""Decides the pending calls of a run: by policy if it can, else by asking the person, one question at a time."""

import asyncio
from collections.abc import Callable

from treadle.core.errors import Conflict, TreadleError
from treadle.core.events import ApprovalDecided, ApprovalRequested, RunEvent, ToolFinished
from treadle.core.json import write_json
from treadle.terminal.conversation.host_interface import CallDecision, ConversationHost
from treadle.terminal.editor.screen_interface import ChatScreen
from treadle.terminal.permissions.permission_policy import PermissionPolicy, PermissionQuestion, question_of
from treadle.terminal.permissions.remembered_permissions import Scope
from treadle.terminal.rendering.approval_card import card_lines, choices_for
from treadle.terminal.rendering.run_renderer import RunRenderer

PERSON = "a person at the terminal"
NOBODY = "nobody can be asked here"
_SCOPES: dict[str, Scope] = {"s": "session", "p": "project"}


class Asker:
    """Follows a run and decides each pending call."""

    def __init__(
        self,
        host: ConversationHost,
        policy: PermissionPolicy,
        face: ChatScreen,
        screen: RunRenderer,
        read: Callable[[str], str | None],
        root: str,
    ) -> None:
        self._host = host
        self._policy = policy
        self._face = face
        self._screen = screen
        self._read = read
        self._root = root
        self._turn = asyncio.Lock()
        self._open: dict[str, asyncio.Task[None]] = {}
        self._calls: dict[str, str] = {}

    def follow(self, event: RunEvent) -> None:
        """Open a question for a pending call, or close one that was decided elsewhere."""
        match event:
            case ApprovalRequested() if not event.is_deferred:
                question = question_of(event, self._root)
                self._open[event.approval_id] = asyncio.ensure_future(self._answer(question))
                self._calls[event.call.call_id] = event.approval_id
            case ApprovalDecided():
                self._drop(event.approval_id)
            case ToolFinished():  # also of a run that was stopped: then its open questions are withdrawn
                self._drop(self._calls.pop(event.call.call_id, ""))
            case _:
                pass

    def _drop(self, approval_id: str) -> None:
        if (task := self._open.pop(approval_id, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Withdraw every question: the run is over, or no longer followed."""
        waiting = list(self._open.values())
        self._open.clear()
        self._calls.clear()
        for task in waiting:
            task.cancel()
        if waiting:
            await asyncio.wait(waiting)

    async def _answer(self, question: PermissionQuestion) -> None:
        may_decide_alone = True
        while True:
            decision = self._policy.decide(question) if may_decide_alone else None
            is_own = decision is not None
            if decision is None and not self._face.can_ask:
                decision = CallDecision(approve=False, by="policy ask", reason=NOBODY, digest=question.digest)
            if decision is None:
                async with self._turn:
                    # What was remembered for the question before may answer this one too.
                    decision = self._policy.decide(question) if may_decide_alone else None
                    decision = decision or await self._ask(question)
            try:
                await self._host.decide(question.approval_id, decision)
            except Conflict:
                return  # another client decided first, and the run's events show the decision
            except TreadleError as error:
                self._screen.error(error.operator_info)
                if decision.arguments is not None:
                    # A server that cannot run commands read-only refuses to: then the person is asked.
                    may_decide_alone = may_decide_alone and not is_own
                    continue
            return

    async def _ask(self, question: PermissionQuestion) -> CallDecision:
        card = card_lines(self._policy, question, self._read)
        whole = card_lines(self._policy, question, self._read, is_whole=True)
        self._screen.lines(card)
        is_cut = len(card) < len(whole)
        while True:
            key = await self._face.choose(choices_for(self._policy, question, is_cut=is_cut))
            if key == "d" and is_cut:
                self._screen.lines(whole)
                is_cut = False
                continue
            decision = await self._decision(question, key)
            if decision is not None:
                return decision

    async def _decision(self, question: PermissionQuestion, key: str | None) -> CallDecision | None:
        """Return the decision for a key; None when the person went back."""
        yes = CallDecision(approve=True, by=PERSON, digest=question.digest)
        match key:
            case "y":
                return yes
            case "s" | "p":
                self._remember(question, _SCOPES[key])
                return yes
            case "e":
                arguments = await self._edited(question)
                return None if arguments is None else _with(yes, arguments)
            case "N":
                reason = await self._face.line("why not:")
                return None if reason is None else CallDecision(approve=False, by=PERSON, reason=reason)
            case _:
                return CallDecision(approve=False, by=PERSON)

    def _remember(self, question: PermissionQuestion, scope: Scope) -> None:
        try:
            rules = self._policy.remember(question, scope)
        except OSError as error:
            self._screen.print_line(f"not remembered: {error.strerror or error}", "error")
            return
        for rule in rules:
            self._screen.print_line(f"  remembered for this {scope}: {rule.words}", "dim")

    async def _edited(self, question: PermissionQuestion) -> str | None:
        """Return other arguments; a command is edited as it is, everything else as JSON."""
        if not question.is_shell:
            return await self._face.line("arguments:", question.raw)
        command = await self._face.line("command:", question.command)
        return None if command is None else write_json({**question.arguments, "command": command}).decode()


def _with(decision: CallDecision, arguments: str) -> CallDecision:
    return CallDecision(approve=True, by=decision.by, digest=decision.digest, arguments=arguments)
