"""The tools that scenarios use: deterministic, in memory, over one world that is thrown away after the play.

The workspace tools are what a model may do with a workspace: read it, patch the draft, propose facts. There is no
tool that commits facts, on purpose.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.core.errors import ConfigError, ToolFailed, TreadleError
from treadle.core.tool_definitions import ServerTool, ToolPolicy, ToolSpec
from treadle.evals.constant_tools import READ, WRITE, Named, plain_tools
from treadle.evals.sample_world import Things
from treadle.evals.scenario_file import CannedResult, CannedTool, ScenarioDecision, ScenarioWorld
from treadle.tools import Tool
from treadle.tools.function_tools import foreign_tool, function_tool
from treadle.tools.tool_context import ToolContext
from treadle.workspace.json_pointer import Json
from treadle.workspace.proposals import confirm, propose, reject
from treadle.workspace.workspace_state import Change, Operation, Proposal, Workspace, WorkspaceStep, lock, patch_draft


class Toolkit:
    """One world and the tools that act on it."""

    def __init__(self, world: ScenarioWorld) -> None:
        workspace = Workspace(facts=world.facts, draft=world.draft, ui=world.ui)
        for path in world.locks:
            workspace = lock(workspace, path, actor="person").workspace
        self.workspace = workspace
        self.things = Things(world)
        self._made = 0
        self._news: list[str] = []

    def tools(self, names: Sequence[str]) -> list[Tool]:
        """Return the tools of these names.

        Raises: ConfigError, naming what there is.
        """
        known: Named = {
            "state.get": (self._get_state, READ),
            "draft.patch": (self._patch_draft, WRITE),
            "facts.propose": (self._propose_fact, WRITE),
            **plain_tools(),
            **self.things.tools(),
        }
        unknown = sorted(set(names) - known.keys())
        if unknown:
            raise ConfigError(f"the toolkit has no {', '.join(unknown)}; it has {', '.join(known)}", param="tools")
        return [
            function_tool(function, name=name, policy=policy, source="evals")
            for name, (function, policy) in ((name, known[name]) for name in names)
        ]

    def canned(self, tools: Sequence[CannedTool]) -> list[Tool]:
        """Return tools that give what the scenario says they give.

        Raises: ConfigError, for a schema that cannot be one.
        """
        return [_canned(tool) for tool in tools]

    def document(self) -> Json:
        """Return the world as `state` expectations see it: proposals as what they would set, path by path."""
        proposals: list[Json] = [
            {change.path: change.value for change in proposal.changes} for proposal in self.workspace.proposals
        ]
        return {**self.workspace.document(), "proposals": proposals, **self.things.document()}

    def decide(self, decision: ScenarioDecision) -> None:
        """Let a person decide a proposal on the facts as they are; the model hears of it with its next result.

        Raises: ConfigError, for a decision that cannot be made.
        """
        now = self.workspace
        try:
            if decision.confirm:
                taken = confirm(now, decision.proposal, now.facts_version, actor="person")
            else:
                taken = reject(now, decision.proposal, actor="person", reason=decision.reason)
        except TreadleError as error:
            raise ConfigError(f"the person cannot decide: {error.message}", param="turn.decide") from None
        self.workspace = taken.workspace
        words = "confirmed" if decision.confirm else "rejected"
        self._news.append(f"Proposal {decision.proposal} was {words}: {decision.reason}".rstrip(": ") + ".")

    def _tell(self, context: ToolContext) -> None:
        for line in self._news:
            context.warn(line)
        self._news = []

    def _get_state(self, context: ToolContext, path: str = "") -> Any:
        """Read the workspace, or the part of it at a JSON Pointer such as /draft/title."""
        self._tell(context)
        try:
            return self.workspace.get(path)
        except TreadleError as error:
            raise _told(error) from None

    def _patch_draft(self, path: str, value: Any = None, op: Operation = "set") -> Any:
        """Change the draft at a JSON Pointer such as /draft/title. Locked paths cannot be changed."""
        change = Change(path=path, value=value, op=op)
        return self._take(lambda: patch_draft(self.workspace, [change], actor="model"))

    def _propose_fact(
        self, context: ToolContext, path: str, value: Any, reason: str = "", base_version: int | None = None
    ) -> Any:
        """Propose to change a fact at a JSON Pointer such as /facts/name. A person decides."""
        self._tell(context)
        proposal = Proposal(
            id=f"p{self._made + 1}",
            changes=(Change(path=path, value=value),),
            reason=reason,
            base_version=self.workspace.facts_version if base_version is None else base_version,
        )
        taken = self._take(lambda: propose(self.workspace, proposal, actor="model"))
        self._made += 1
        return {"proposal_id": proposal.id, "waiting_for": "a person", **taken}

    def _take(self, step: Callable[[], WorkspaceStep]) -> dict[str, Any]:
        try:
            self.workspace, record = step()
        except TreadleError as error:
            raise _told(error) from None
        return {"version": record.version}


class Cans:
    """The results of a canned tool, handed out one after the other."""

    def __init__(self, tool: CannedTool) -> None:
        self._tool = tool
        self._given = 0

    def next(self) -> CannedResult:
        """Return the next result; where there are no more, the last one again or an error."""
        results, place = self._tool.results, self._given
        self._given += 1
        if place < len(results):
            return results[place]
        if self._tool.repeat and results:
            return results[-1]
        return CannedResult(error=f"There is no further result of {self._tool.name}.")


def _canned(tool: CannedTool) -> Tool:
    cans = Cans(tool)

    async def handle(arguments: dict[str, Any], context: ToolContext) -> object:
        result = cans.next()
        if result.error is not None:
            raise ToolFailed(result.error, code=result.code)
        return result.output

    spec = ToolSpec(name=tool.name, description=tool.description, parameters=msgspec.Raw(tool.parameters.encode()))
    policy = ToolPolicy(effect=tool.effect, approval="never")
    return foreign_tool(ServerTool(spec=spec, policy=policy, source="evals"), handle)


def _told(error: TreadleError) -> ToolFailed:
    """Return the refusal of the workspace as something the model can read."""
    return ToolFailed(error.message, code=error.info.code)
