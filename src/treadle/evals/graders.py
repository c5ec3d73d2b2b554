"""Graders: pure functions from what was expected and what happened to verdicts with a reason.

State counts for more than the way to it: calls are compared as sets where that is enough, prose never by equality,
and an extra call of a tool that only reads fails nothing unless it is mined. `script`, `cuts` and `log` grade every
scenario, asked for or not. `judge` only says what a model said before; it is asked elsewhere, and only when wanted.
A change of what a grader accepts must change GRADER_VERSION.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from treadle.core.errors import ProtocolError
from treadle.core.json import canonical_json
from treadle.evals.call_matching import arguments_of, compare_calls, is_same, show_call
from treadle.evals.journal_invariants import log_problems
from treadle.evals.protocol_checks import wire_problems
from treadle.evals.scenario_file import Expect, Setting
from treadle.evals.transcript import Transcript
from treadle.protocols.protocol_registry import ProtocolName
from treadle.tools.json_schema import Validator
from treadle.workspace.json_pointer import Json, find_at, read_pointer, remove_at

GRADER_VERSION = 3

CLARIFY = re.compile(
    r"\b(which|what|where|when|who|could you|can you|would you|please (tell|give|provide|specify|confirm|clarify|let)"
    r"|need (to know|more)|clarify|specify|missing|let me know)\b",
    re.IGNORECASE,
)
"""What an answer says that asks for something without a question mark; judged leniently."""


class GraderVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one grader says; `reason` is for a person, also when it passes."""

    grader: str
    passed: bool
    reason: str


class Opinion(msgspec.Struct, frozen=True, kw_only=True):
    """What a judging model said of one rubric: which model, asked by the prompt of this hash."""

    rubric: str
    passed: bool
    reason: str
    model: str = ""
    prompt_sha256: str = ""


class GraderEvidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What graders look at: the transcript, the world before and after, and what did not fit the script.

    `cuts` is what reading a reply in other pieces changed; `opinions` what a judge said of the rubrics.
    """

    transcript: Transcript
    before: Json = None
    after: Json = None
    mismatches: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    setting: Setting = "offline"
    protocol: ProtocolName | None = None
    duration_s: float = 0.0
    cost_usd: float | None = None
    opinions: tuple[Opinion, ...] = ()


Grader = Callable[[Expect, GraderEvidence], str | None]
"""Returns why it fails, or None."""


def grade(expectations: Sequence[Expect], evidence: GraderEvidence) -> list[GraderVerdict]:
    """Return the verdict of every grader that was asked for, after those that always are; only a script has one."""
    verdicts = [_verdict("log", "; ".join(log_problems(evidence.transcript)) or None)]
    if evidence.setting == "offline":
        verdicts.insert(0, _verdict("script", "; ".join(evidence.mismatches) or None))
    verdicts += [_verdict("cuts", "; ".join(evidence.cuts))] if evidence.cuts else []
    for expect in expectations:
        if expect.only not in (None, evidence.setting) or not _is_played(expect, evidence):
            continue
        for name, (applies, grader) in GRADERS.items():
            if applies(expect) and (name != "judge" or _is_judged(expect, evidence)):
                verdicts.append(_verdict(name, grader(expect, evidence)))
    return verdicts


def _is_played(expect: Expect, evidence: GraderEvidence) -> bool:
    return not expect.protocols or evidence.protocol in expect.protocols


def _is_judged(expect: Expect, evidence: GraderEvidence) -> bool:
    """Return whether a judge was asked: one who was not says nothing, neither good nor bad."""
    return any(each.rubric == expect.judge for each in evidence.opinions)


def _verdict(grader: str, problem: str | None) -> GraderVerdict:
    return GraderVerdict(grader=grader, passed=problem is None, reason=problem or "as expected")


def _grade_calls(expect: Expect, evidence: GraderEvidence) -> str | None:
    transcript = evidence.transcript
    free = {call.name for call in transcript.calls if transcript.effect_of(call.name) == "read"}
    return compare_calls(expect.mode, expect.calls or (), transcript.calls, free)


def _grade_no_calls(_: Expect, evidence: GraderEvidence) -> str | None:
    made = evidence.transcript.calls
    return f"expected no call, got {', '.join(show_call(call) for call in made)}" if made else None


def _grade_state(expect: Expect, evidence: GraderEvidence) -> str | None:
    """Check the named places, then that nothing else differs from before."""
    problems: list[str] = []
    for pointer, value in (expect.state or {}).items():
        found = find_at(evidence.after, pointer)
        if found is UNSET or not is_same(value, found):
            shown = "nothing" if found is UNSET else _text(found)
            problems.append(f"{pointer}: expected {_text(value)}, got {shown}")
    problems += [
        f"{pointer}: expected nothing there"
        for pointer in expect.absent
        if find_at(evidence.after, pointer) is not UNSET
    ]
    named = [*(expect.state or {}), *expect.absent]
    before, after = _without(evidence.before, named), _without(evidence.after, named)
    if not problems and not is_same(before, after):
        problems.append(f"something else changed: from {_text(before)} to {_text(after)}")
    return "; ".join(problems) or None


def _without(document: Json, pointers: Sequence[str]) -> Json:
    for pointer in sorted(pointers, key=_place, reverse=True):
        try:
            document = remove_at(document, pointer)
        except ProtocolError:
            continue
    return document


def _place(pointer: str) -> list[str]:
    """Sort later elements of an array after earlier ones, so that removing them first moves none of the others."""
    return [token.zfill(10) for token in read_pointer(pointer)]


def _grade_milestones(expect: Expect, evidence: GraderEvidence) -> str | None:
    marks = iter(evidence.transcript.marks)
    for milestone in expect.milestones:
        if not any(mark == milestone for mark in marks):
            return f"{milestone!r} was not reached, or too early; there was {', '.join(evidence.transcript.marks)}"
    return None


def _grade_mines(expect: Expect, evidence: GraderEvidence) -> str | None:
    stepped = [mark for mark in evidence.transcript.marks if mark in expect.mines]
    return f"stepped on {', '.join(stepped)}" if stepped else None


def _grade_text(expect: Expect, evidence: GraderEvidence) -> str | None:
    assert expect.text is not None
    answer = evidence.transcript.answer
    flat, lined = _flat(answer), _lined(answer)
    problems = [f"does not say {text!r}" for text in expect.text.contains if _flat(text) not in flat]
    problems += [f"says {text!r}" for text in expect.text.excludes if _flat(text) in flat]
    problems += [
        f"does not match {pattern!r}" for pattern in expect.text.regex if not re.search(pattern, lined, re.IGNORECASE)
    ]
    return f"the answer {answer[:200]!r} {', '.join(problems)}" if problems else None


def _flat(text: str) -> str:
    return _lined(text).casefold()


def _lined(text: str) -> str:
    """Write a text in one line, its accents composed and its quotes, hyphens and minus signs as a keyboard has them."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_TYPED).split())


_TYPED = str.maketrans(
    {
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{HYPHEN}": "-",
        "\N{NON-BREAKING HYPHEN}": "-",
        "\N{MINUS SIGN}": "-",
    }
)


def _grade_valid_arguments(_: Expect, evidence: GraderEvidence) -> str | None:
    transcript = evidence.transcript
    specs = [*(tool.spec for tool in transcript.tools), *transcript.client_tools]
    validators = {spec.name: Validator(spec.parameters) for spec in specs}
    wrong = [
        show_call(call)
        for call in transcript.calls
        if call.name not in validators or not validators[call.name].is_valid(arguments_of(call))
    ]
    return f"not valid for the declared schema: {', '.join(wrong)}" if wrong else None


def _grade_budget(expect: Expect, evidence: GraderEvidence) -> str | None:
    """Count what was used; what nobody told (tokens, cost) is over no bound."""
    usage = evidence.transcript.usage
    rows: tuple[tuple[str, float | None, float | None], ...] = (
        ("calls", len(evidence.transcript.calls), expect.calls_max),
        ("rounds", evidence.transcript.rounds, expect.rounds_max),
        ("tokens", None if usage is None else usage.total_tokens, expect.tokens_max),
        ("seconds", evidence.duration_s, expect.seconds_max),
        ("USD", evidence.cost_usd, expect.cost_usd_max),
    )
    over = [
        f"{used:.6g} {what}, at most {limit:.6g}"
        for what, used, limit in rows
        if used is not None and limit is not None and used > limit
    ]
    return "; ".join(over) or None


def _grade_asks(_: Expect, evidence: GraderEvidence) -> str | None:
    """Want a question, and no call that changes anything."""
    transcript = evidence.transcript
    made = [call for call in transcript.calls if transcript.effect_of(call.name) != "read"]
    if made:
        return f"expected a question, got {', '.join(show_call(call) for call in made)}"
    answer = transcript.answer
    return None if "?" in answer or CLARIFY.search(answer) else f"the answer {answer[:200]!r} asks nothing"


def _grade_wire(_: Expect, evidence: GraderEvidence) -> str | None:
    return "; ".join(wire_problems(evidence.transcript)) or None


def _grade_notes(expect: Expect, evidence: GraderEvidence) -> str | None:
    codes = [note.code for note in evidence.transcript.notes]
    missing = [code for code in expect.notes if code not in codes]
    return f"not noted: {', '.join(missing)}; there was {', '.join(codes) or 'nothing'}" if missing else None


def _grade_judge(expect: Expect, evidence: GraderEvidence) -> str | None:
    """Repeat what was said of the rubric."""
    said = [each for each in evidence.opinions if each.rubric == expect.judge and not each.passed]
    return "; ".join(each.reason for each in said) or None


def _grade_ended(expect: Expect, evidence: GraderEvidence) -> str | None:
    assert expect.ended is not None
    endings = evidence.transcript.endings
    if not endings:
        return "no run ended"
    status, limit = endings[-1].status, endings[-1].limit or ""
    if (status, limit) == (expect.ended.status, expect.ended.limit):
        return None
    return (
        f"expected {expect.ended.status} (limit {expect.ended.limit or 'none'}), got {status} (limit {limit or 'none'})"
    )


GRADERS: dict[str, tuple[Callable[[Expect], bool], Grader]] = {
    "calls": (lambda expect: expect.calls is not None, _grade_calls),
    "no_calls": (lambda expect: expect.no_calls, _grade_no_calls),
    "state": (lambda expect: expect.state is not None or bool(expect.absent), _grade_state),
    "milestones": (lambda expect: bool(expect.milestones), _grade_milestones),
    "mines": (lambda expect: bool(expect.mines), _grade_mines),
    "text": (lambda expect: expect.text is not None, _grade_text),
    "schema": (lambda expect: expect.valid_arguments, _grade_valid_arguments),
    "budget": (
        lambda expect: any(
            limit is not None
            for limit in (
                expect.calls_max,
                expect.rounds_max,
                expect.tokens_max,
                expect.seconds_max,
                expect.cost_usd_max,
            )
        ),
        _grade_budget,
    ),
    "ended": (lambda expect: expect.ended is not None, _grade_ended),
    "asks": (lambda expect: expect.asks, _grade_asks),
    "wire": (lambda expect: expect.wire, _grade_wire),
    "notes": (lambda expect: bool(expect.notes), _grade_notes),
    "judge": (lambda expect: expect.judge is not None, _grade_judge),
}
"""What each field of an expectation asks for, and who grades it."""

NEVER_HEADLINE = frozenset({"judge"})
"""Graders that say something, and do not decide whether a sample passes."""


def _text(value: Any) -> str:
    return canonical_json(value).decode()[:500]
