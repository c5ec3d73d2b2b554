"""The scripted model: replays a script's turns, each after checking the plan it is called with.

Its turns are encoded in a real protocol, cut to any chunk size, damaged by faults, and decoded by the real decoder, so
that a test of the tool loop also tests the protocol code. Deterministic: clock and randomness are injected.
"""

import asyncio
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from treadle.core.errors import BrokenStream, ConfigError, UpstreamTimeout
from treadle.core.events import Batches
from treadle.core.ids import IdSource
from treadle.core.items import AnyItem, MessageItem, ResultItem, text_of
from treadle.core.plan import Plan
from treadle.core.result_envelope import error_in
from treadle.protocols.protocol_registry import CHAT, ProtocolName
from treadle.protocols.text_calls.text_call_recovery import RepairRules
from treadle.protocols.translation.adapt_plan import Adapted
from treadle.providers.error_mapping import read_failure
from treadle.providers.fakes.reply_rendering import cut, sent_reply, write_frames, write_refusal
from treadle.providers.fakes.scripted_reply import Reply
from treadle.providers.provider_endpoint import Endpoint
from treadle.providers.provider_model import AnswerRules, decode, open_call

OnReplyBytes = Callable[[Plan, bytes], None]
Sleep = Callable[[float], Awaitable[None]]

_ENDPOINT = Endpoint(name="script", base_url="http://script.invalid/v1")


class ScriptMismatch(AssertionError):
    """The model was called with another plan than the script expects, or a different number of times."""


class Sees(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The expectations on a plan. `contains` must occur in the last message or in the last results.

    `tools` are all offered names, in any order; `result_code` is the code of one of the last results.
    """

    tools: tuple[str, ...] | None = None
    tool_choice: str | None = None
    last_role: str | None = None
    result_code: str | None = None
    contains: str | tuple[str, ...] = ()


class ScriptTurn(Reply, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model call: the expected plan and the reply."""

    sees: Sees = Sees()


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All model calls of a conversation, in order."""

    turns: tuple[ScriptTurn, ...] = ()


def read_script(toml: str) -> Script:
    """Read the `[[script]]` tables of a TOML document; other tables belong to the scenario that contains it.

    Raises: ConfigError.
    """
    try:
        turns = tomllib.loads(toml).get("script", [])
        return Script(turns=msgspec.convert(turns, tuple[ScriptTurn, ...]))
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"not a script: {error}", param="script") from None


class ScriptPlayer:
    """Returns the turns in order, and stores the plans and mismatches."""

    def __init__(self, script: Script) -> None:
        self._turns = script.turns
        self.plans: list[Plan] = []
        self.mismatches: list[str] = []

    def reply(self, plan: Plan) -> ScriptTurn:
        """Return the next turn; its calls get unique ids.

        Raises: ScriptMismatch.
        """
        number = len(self.plans)
        self.plans.append(plan)
        if number >= len(self._turns):
            raise self._mismatch(f"model call {number + 1}: the script has only {len(self._turns)} turns")
        turn = self._turns[number]
        if problems := check_sees(turn.sees, plan):
            raise self._mismatch(f"model call {number + 1}: " + "; ".join(problems))
        calls = tuple(
            call if call.id is not None else msgspec.structs.replace(call, id=f"call_s{number + 1}_{position}")
            for position, call in enumerate(turn.calls, 1)
        )
        return msgspec.structs.replace(turn, calls=calls)

    def verify(self) -> None:
        """Check that every turn was played and matched.

        Raises: ScriptMismatch.
        """
        problems = list(self.mismatches)
        if (left := len(self._turns) - len(self.plans)) > 0:
            problems.append(f"{left} of {len(self._turns)} turns were never asked for")
        if problems:
            raise ScriptMismatch("\n".join(problems))

    def _mismatch(self, message: str) -> ScriptMismatch:
        self.mismatches.append(message)
        return ScriptMismatch(message)


class ScriptedModel:
    """A model that replies from a script. `chunk_bytes` is the size of a network read; None means one read.

    With `repair` rules, tool calls are recovered from its text; `heard` is called with the bytes of each whole reply.
    """

    def __init__(
        self,
        script: Script,
        *,
        ids: IdSource,
        chunk_bytes: int | None = None,
        sleep: Sleep = asyncio.sleep,
        idle_s: float = 120.0,
        protocol: ProtocolName = CHAT,
    ) -> None:
        self.player = ScriptPlayer(script)
        self._ids = ids
        self._chunk_bytes = chunk_bytes
        self._sleep = sleep
        self._idle_s = idle_s
        self._protocol: ProtocolName = protocol
        self.repair: RepairRules | None = None
        self.heard: OnReplyBytes | None = None

    def stream(self, plan: Plan, run_id: str) -> Batches:
        """Check the plan, then yield the next turn's events.

        Raises: ScriptMismatch, UpstreamError, before the first batch only.
        """
        rules = AnswerRules(repair=self.repair)
        ids = self._ids.of(run_id, plan.fingerprint)
        call = open_call(self._protocol, plan, ids, _ENDPOINT.name, rules=rules)
        return decode(self._play(plan, call.adapted), call.decoder, call.notes)

    async def _play(self, plan: Plan, adapted: Adapted) -> AsyncGenerator[bytes, None]:
        turn = self.player.reply(plan)
        faults = turn.faults
        if faults.status is not None:
            headers, body = write_refusal(faults, self._protocol)
            raise read_failure(_ENDPOINT, faults.status, headers, body, now=0.0)
        reply = sent_reply(turn, adapted)
        frames = write_frames(reply, model=plan.model, protocol=self._protocol, tools=adapted.plan.tools)
        data = b"".join(frames)[: faults.disconnect_after]
        if self.heard is not None and faults.disconnect_after is None and faults.stall_s is None:
            self.heard(plan, data)
        half = len(data) if faults.stall_s is None else sum(map(len, frames[: (len(frames) + 1) // 2]))
        for chunk in cut(data[:half], self._chunk_bytes):
            yield chunk
        if faults.stall_s is not None:
            await self._stall(faults.stall_s)
        for chunk in cut(data[half:], self._chunk_bytes):
            yield chunk
        if faults.disconnect_after is not None:
            raise BrokenStream("upstream 'script' broke off in the middle of its answer")

    async def _stall(self, seconds: float) -> None:
        await self._sleep(min(seconds, self._idle_s))
        if seconds >= self._idle_s:
            raise UpstreamTimeout(f"upstream 'script' fell silent for {self._idle_s:g} s")


def check_sees(sees: Sees, plan: Plan) -> list[str]:
    """Return the differences of the plan from the expectations."""
    last = _last_items(plan)
    last_text = "\n".join(_text(item) for item in last)
    wanted = (sees.contains,) if isinstance(sees.contains, str) else sees.contains
    codes = sorted({code for item in last if isinstance(item, ResultItem) for code in _codes(item)})
    problems = [
        _differs("tools", None if sees.tools is None else sorted(sees.tools), sorted(tool.name for tool in plan.tools)),
        _differs("tool_choice", sees.tool_choice, plan.tool_choice.mode),
        _differs("last_role", sees.last_role, _role(last[-1]) if last else "nobody"),
        None if sees.result_code in (None, *codes) else f"result_code: expected {sees.result_code!r}, got {codes}",
        *(None if text in last_text else f"contains: expected {text!r} in {last_text[:500]!r}" for text in wanted),
    ]
    return [problem for problem in problems if problem is not None]


def _differs(what: str, expected: object, actual: object) -> str | None:
    if expected is None or expected == actual:
        return None
    return f"{what}: expected {expected!r}, got {actual!r}"


def _last_items(plan: Plan) -> list[AnyItem]:
    """Return the trailing results, else the last item."""
    results: list[AnyItem] = []
    for item in reversed(plan.items):
        if not isinstance(item, ResultItem):
            break
        results.insert(0, item)
    return results or list(plan.items[-1:])


def _role(item: AnyItem) -> str:
    match item:
        case MessageItem():
            return item.role
        case ResultItem():
            return "tool"
        case _:
            return "assistant"


def _text(item: AnyItem) -> str:
    match item:
        case MessageItem():
            return text_of(item.content)
        case ResultItem():
            return text_of(item.output)
        case _:
            return ""


def _codes(result: ResultItem) -> list[str]:
    """Return the code of the result, and the one in its text: over HTTP only the text is transmitted."""
    fault = error_in(text_of(result.output))
    return [result.rc] if fault is None else [result.rc, fault.code]
