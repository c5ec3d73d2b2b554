"""What an approval is bound to, and which calls a remembered rule agrees to."""

import msgspec
import pytest

from treadle.core.errors import ProtocolError
from treadle.journal.approvals_interface import ApprovalQuestion, ApprovalRule, RuleRow
from treadle.runs.approvals.remembered_rules import (
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    agrees,
    canonical_arguments,
    digest_of,
    make_rule,
)


def question(arguments: str = '{"path":"src/a.py"}', **fields: object) -> ApprovalQuestion:
    """A question about one call."""
    made = ApprovalQuestion(
        tool="put", source="python", arguments=arguments, digest="d", session_id="sess_1", project="/p"
    )
    return msgspec.structs.replace(made, **fields)


def row(rule: ApprovalRule, session_id: str | None = None) -> RuleRow:
    """A rule as it is kept."""
    return RuleRow(id="rule_1", created_at=1.0, rule=rule, session_id=session_id)


@pytest.mark.parametrize(
    ("spelled", "expected"),
    [
        ('{"b": 1, "a": [1.0, "ä"]}', '{"a":[1.0,"ä"],"b":1}'),
        ("", "{}"),
        ("  ", "{}"),
        ("{broken", "{broken"),
        ("\ud800", "?"),
    ],
)
def test_arguments_have_one_spelling(spelled: str, expected: str) -> None:
    """Order and space do not matter; what is no JSON stays, without what can not be stored."""
    assert canonical_arguments(spelled) == expected


def test_a_digest_is_of_everything_that_is_approved() -> None:
    """Another tool, source, argument or run is another digest."""
    base = ("put", "python", "{}", "run_1")
    others = [
        ("get", *base[1:]),
        ("put", "mcp:x", "{}", "run_1"),
        ("put", "python", '{"a":1}', "run_1"),
        (*base[:3], ""),
    ]
    digests = {digest_of(*each) for each in (base, *others)}
    assert len(digests) == 5
    assert digest_of("a", "bc", "", "") != digest_of("ab", "c", "", "")
    assert all(len(digest) == 64 for digest in digests)


def test_a_rule_for_a_call_agrees_to_that_call_only() -> None:
    """In any run and even after untrusted output, but with no other arguments."""
    rule = row(make_rule("call", question(), {}, is_everywhere=True))
    assert agrees(rule, question())
    assert agrees(rule, question(is_tainted=True))
    assert not agrees(rule, question('{"path":"src/b.py"}'))


@pytest.mark.parametrize(
    ("fields", "is_agreed"),
    [
        ({}, True),
        ({"arguments": "{}"}, True),
        ({"tool": "other"}, False),
        ({"source": "mcp:evil"}, False),
        ({"project": "/q"}, False),
        ({"session_id": "sess_2"}, True),
        ({"is_tainted": True}, False),
    ],
)
def test_a_rule_for_a_tool_holds_in_its_project(fields: dict[str, object], is_agreed: bool) -> None:
    """Not for a tool of the same name from elsewhere, and not after untrusted output."""
    rule = row(make_rule("tool", question(), {}, is_everywhere=True))
    assert agrees(rule, question(**fields)) is is_agreed


def test_a_rule_of_a_session_holds_in_that_session() -> None:
    """Another session, or none, asks again."""
    rule = row(make_rule("tool", question(), {}, is_everywhere=False), "sess_1")
    assert agrees(rule, question())
    assert not agrees(rule, question(session_id="sess_2"))
    assert not agrees(rule, question(session_id=None))


def test_a_rule_given_after_untrusted_output_holds_then_too() -> None:
    """Who agreed knowing it agrees again."""
    rule = row(make_rule("tool", question(is_tainted=True), {}, is_everywhere=True))
    assert agrees(rule, question(is_tainted=True))
    assert agrees(rule, question())


@pytest.mark.parametrize(
    ("arguments", "is_agreed"),
    [
        ('{"path":"src/b.py"}', True),
        ('{"path":"src/b.py","text":"anything"}', True),
        ('{"path":"src/../etc/passwd.py"}', False),
        ('{"path":"src\\\\..\\\\b.py"}', False),
        ('{"path":"src/a\\n.py"}', False),
        ('{"path":"lib/b.py"}', False),
        ('{"path":["src/b.py"]}', False),
        ('{"other":"src/b.py"}', False),
        ('["src/b.py"]', False),
        ("{broken", False),
    ],
)
def test_a_rule_by_pattern_agrees_to_what_fits(arguments: str, is_agreed: bool) -> None:
    """Texts that match and do not climb out; nothing else."""
    rule = row(make_rule("pattern", question(), {"path": "src/*.py"}, is_everywhere=True))
    assert agrees(rule, question(arguments)) is is_agreed


@pytest.mark.parametrize(
    ("command", "is_agreed"),
    [
        ("git log --oneline", True),
        ("git log; rm -rf .", False),
        ("git log && x", False),
        ("git log $(x)", False),
        ("git log `x`", False),
        ("git log > file", False),
        ("git log | sh", False),
    ],
)
def test_a_pattern_for_programs_never_agrees_to_a_second_command(command: str, is_agreed: bool) -> None:
    """What a shell reads as more than words does not fit."""
    asked = question('{"command":"git log"}', is_exec=True)
    rule = row(make_rule("pattern", asked, {"command": "git log*"}, is_everywhere=False), "sess_1")
    arguments = msgspec.json.encode({"command": command}).decode()
    assert agrees(rule, question(arguments, is_exec=True)) is is_agreed


@pytest.mark.parametrize("kind", ["tool", "pattern"])
def test_a_program_is_remembered_everywhere_only_as_the_very_call(kind: str) -> None:
    """The error names the field and the way out."""
    asked = question('{"command":"ls"}', is_exec=True)
    with pytest.raises(ProtocolError) as refused:
        make_rule(kind, asked, {"command": "l*"}, is_everywhere=True)
    assert refused.value.info.param == "remember.scope"
    assert make_rule("call", asked, {}, is_everywhere=True).kind == "call"


@pytest.mark.parametrize(
    "patterns",
    [
        {},
        {"path": "lib/*"},
        {"missing": "*"},
        {"path": "*" * (PATTERN_CHARS_MAX + 1)},
        {f"p{n}": "*" for n in range(PATTERNS_MAX + 1)},
    ],
)
def test_patterns_that_can_not_be_kept_are_refused(patterns: dict[str, str]) -> None:
    """None, too many, too long, or such as do not fit the call itself."""
    with pytest.raises(ProtocolError) as refused:
        make_rule("pattern", question(), patterns, is_everywhere=True)
    assert refused.value.info.param == "remember.patterns"


def test_what_a_person_must_allow_by_name_is_remembered_by_name_only() -> None:
    """A rule for the tool, or with a pattern that means more than the path, does not agree."""
    asked = question(
        '{"path":"AGENTS.md","protected":true}',
        source="local",
        reasons=("put always needs approval", "it asks to write protected paths: AGENTS.md"),
    )
    rules = {
        name: row(ApprovalRule(kind="pattern", tool="put", source="local", project="/p", patterns=patterns))
        for name, patterns in {"name": {"path": "AGENTS.md"}, "glob": {"path": "*"}, "free": {"text": "*"}}.items()
    }
    assert not agrees(row(ApprovalRule(kind="tool", tool="put", source="local", project="/p")), asked)
    assert [name for name, each in rules.items() if agrees(each, asked)] == ["name"]
    assert agrees(row(make_rule("call", asked, {}, is_everywhere=True)), asked)
    git = msgspec.structs.replace(
        asked, arguments='{"command":"git add .","git":true}', reasons=("it asks to write the git repository",)
    )
    assert not agrees(row(ApprovalRule(kind="tool", tool="put", source="local", project="/p")), git)
    pattern = ApprovalRule(kind="pattern", tool="put", source="local", project="/p", patterns={"command": "git add ."})
    assert not agrees(row(pattern), git)


@pytest.mark.parametrize(
    ("given_at", "asked_at", "expected"),
    [("L3", "L3", True), ("L3", "L2", False), ("L1", "L3", True), ("", "L0", True), ("L3", "", False)],
)
@pytest.mark.parametrize("kind", ["call", "tool"])
def test_a_rule_for_a_command_holds_at_no_lower_level(kind: str, given_at: str, asked_at: str, expected: bool) -> None:
    """It was given for a command that was confined so well; one of an older version names none."""
    rule = make_rule(kind, question(sandbox=given_at), {}, is_everywhere=False)
    assert agrees(row(rule, "sess_1"), question(sandbox=asked_at)) is expected
