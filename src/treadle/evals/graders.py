"""Graders: pure functions from what was expected and what happened to verdicts with a reason.

State counts for more than the way to it: calls are compared as sets where that is enough, prose never by equality,
and an extra call of a tool that only reads fails nothing unless it is mined. `script` and `log` grade every
scenario, asked for or not. A change of what a grader accepts must change GRADER_VERSION.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from treadle.canon.errors import ProtocolError
from treadle.canon.json import canonical_json
from treadle.evals.invariants import log_problems
from treadle.evals.matching import arguments_of, compare_calls, is_same, show_call
from treadle.evals.scenario import Expect
from treadle.evals.transcript import Transcript
from treadle.tools.schema import Validator
from treadle.workspace.pointer import Json, find_at, read_pointer, remove_at

GRADER_VERSION = 1


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one grader says; `reason` is for a person, also when it passes."""

    grader: str
    passed: bool
    reason: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What graders look at: the transcript, the world before and after, and what did not fit the script."""

    transcript: Transcript
    before: Json = None
    after: Json = None
    mismatches: tuple[str, ...] = ()


Grader = Callable[[Expect, Evidence], str | None]
"""Returns why it fails, or None."""


def grade(expectations: Sequence[Expect], evidence: Evidence) -> list[Verdict]:
    """Return the verdict of every grader that was asked for, after the two that always are."""
    verdicts = [
        _verdict("script", "; ".join(evidence.mismatches) or None),
        _verdict("log", "; ".join(log_problems(evidence.transcript)) or None),
    ]
    for expect in expectations:
        for name, (applies, grader) in GRADERS.items():
            if applies(expect):
                verdicts.append(_verdict(name, grader(expect, evidence)))
    return verdicts


def _verdict(grader: str, problem: str | None) -> Verdict:
    return Verdict(grader=grader, passed=problem is None, reason=problem or "as expected")


def _grade_calls(expect: Expect, evidence: Evidence) -> str | None:
    transcript = evidence.transcript
    free = {call.name for call in transcript.calls if transcript.effect_of(call.name) == "read"}
    return compare_calls(expect.mode, expect.calls or (), transcript.calls, free)


def _grade_no_calls(_: Expect, evidence: Evidence) -> str | None:
    made = evidence.transcript.calls
    return f"expected no call, got {', '.join(show_call(call) for call in made)}" if made else None


def _grade_state(expect: Expect, evidence: Evidence) -> str | None:
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


def _grade_milestones(expect: Expect, evidence: Evidence) -> str | None:
    marks = iter(evidence.transcript.marks)
    for milestone in expect.milestones:
        if not any(mark == milestone for mark in marks):
            return f"{milestone!r} was not reached, or too early; there was {', '.join(evidence.transcript.marks)}"
    return None


def _grade_mines(expect: Expect, evidence: Evidence) -> str | None:
    stepped = [mark for mark in evidence.transcript.marks if mark in expect.mines]
    return f"stepped on {', '.join(stepped)}" if stepped else None


def _grade_text(expect: Expect, evidence: Evidence) -> str | None:
    assert expect.text is not None
    answer = evidence.transcript.answer
    flat = _flat(answer)
    problems = [f"does not say {text!r}" for text in expect.text.contains if _flat(text) not in flat]
    problems += [f"says {text!r}" for text in expect.text.excludes if _flat(text) in flat]
    problems += [f"does not match {pattern!r}" for pattern in expect.text.regex if not re.search(pattern, answer)]
    return f"the answer {answer[:200]!r} {', '.join(problems)}" if problems else None


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


def _grade_valid_arguments(_: Expect, evidence: Evidence) -> str | None:
    validators = {tool.name: Validator(tool.spec.parameters) for tool in evidence.transcript.tools}
    wrong = [
        show_call(call)
        for call in evidence.transcript.calls
        if call.name not in validators or not validators[call.name].is_valid(arguments_of(call))
    ]
    return f"not valid for the declared schema: {', '.join(wrong)}" if wrong else None


def _grade_budget(expect: Expect, evidence: Evidence) -> str | None:
    used = {"calls": len(evidence.transcript.calls), "rounds": evidence.transcript.rounds}
    allowed = {"calls": expect.calls_max, "rounds": expect.rounds_max}
    over = [
        f"{used[what]} {what}, at most {limit}"
        for what, limit in allowed.items()
        if limit is not None and used[what] > limit
    ]
    return "; ".join(over) or None


def _grade_ended(expect: Expect, evidence: Evidence) -> str | None:
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
    "budget": (lambda expect: expect.calls_max is not None or expect.rounds_max is not None, _grade_budget),
    "ended": (lambda expect: expect.ended is not None, _grade_ended),
}
"""What each field of an expectation asks for, and who grades it."""


def _text(value: Any) -> str:
    return canonical_json(value).decode()[:500]
