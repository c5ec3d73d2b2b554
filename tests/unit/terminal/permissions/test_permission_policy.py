"""What runs unasked, what is asked, what may be remembered."""

from pathlib import Path

import pytest

from treadle.core.events import ApprovalRequested
from treadle.core.items import CallItem
from treadle.core.json import read_json, write_json
from treadle.terminal.permissions.permission_policy import Mode, PermissionPolicy, PermissionQuestion, question_of
from treadle.terminal.permissions.remembered_permissions import Allowances, Allowed


def ask(
    tool: str, reasons: tuple[str, ...] | None = None, source: str = "local", **arguments: object
) -> PermissionQuestion:
    """Return a question about a call."""
    call = CallItem(call_id="c", name=tool, arguments=write_json(arguments).decode(), side="server")
    why = (f"{tool} always needs approval",) if reasons is None else reasons
    event = ApprovalRequested(index=0, call=call, approval_id="apr_1", source=source, digest="d", reasons=why)
    return question_of(event, "/w")


def bash(command: str, **more: object) -> PermissionQuestion:
    """Return a question about a command line."""
    return ask("bash", command=command, **more)


def policy(mode: Mode = "ask", sandbox: int | None = 3) -> PermissionPolicy:
    """Return a policy that remembers nothing yet."""
    return PermissionPolicy(mode, Allowances("/w"), sandbox=sandbox)


READING = [
    *("ls -la", "git status && git diff | head", "cd src && ls", "ls $(id)", "find . -delete", "sort -o a b"),
    *("for f in *; do wc -l $f; done", "[[ 'a[$(touch x)]' -eq 1 ]]", "ls a\r#; touch X"),
]


@pytest.mark.parametrize("line", READING)
@pytest.mark.parametrize("mode", ["plan", "ask", "auto-edit"])
def test_a_command_that_looks_like_reading_runs_unasked_and_read_only(line: str, mode: Mode) -> None:
    """From level 1 on, in every mode. Whether it does only read is for the sandbox to see to."""
    decision = policy(mode, 1).decide(bash(line, timeout_s=5))
    assert decision is not None
    assert (decision.approve, decision.by, decision.digest) == (True, "policy read-only", "d")
    assert read_json(decision.arguments or "") == {"command": line, "timeout_s": 5, "read_only": True}


def test_the_model_may_ask_to_run_anything_read_only_and_to_run_a_reader_otherwise() -> None:
    """The one is not asked about, the other is."""
    for mode in ("plan", "ask", "auto-edit"):
        decision = policy(mode).decide(bash("python x.py", read_only=True))
        assert decision is not None
        assert (decision.approve, read_json(decision.arguments or "")["read_only"]) == (True, True)
    assert policy().decide(bash("ls", read_only=False)) is None
    denied = policy("plan").decide(bash("ls", read_only=False))
    assert denied is not None
    assert not denied.approve
    assert "read_only = true" in denied.reason


@pytest.mark.parametrize("mode", ["plan", "ask", "auto-edit"])
@pytest.mark.parametrize("level", [1, 2, 3])
@pytest.mark.parametrize("line", [*READING, "rm x", "true; > file", "echo x > a", "python x", "", "&&", "x=$(ls)"])
def test_no_command_runs_unasked_but_read_only(line: str, level: int, mode: Mode) -> None:
    """Where nothing is remembered there is no third way."""
    decision = policy(mode, level).decide(bash(line))
    assert decision is None or not decision.approve or read_json(decision.arguments or "{}")["read_only"] is True


@pytest.mark.parametrize(
    ("question", "sandbox"),
    [
        (bash("ls"), 0),
        (bash("ls"), None),
        (bash("ls", network=True), 3),
        (bash("ls", read_only=True), 0),
        (bash("ls", read_only=True, network=True), 3),
        (bash("ls > x"), 3),
        (bash("ls; make"), 3),
        (bash("rm x"), 3),
        (bash(""), 3),
        (ask("bash", ("bash always needs approval", "untrusted output of http_get was read before"), command="ls"), 3),
        (ask("bash", ("the call stood in the model's text and has effects",), command="ls"), 3),
        (ask("bash", source="mcp:other", command="ls"), 3),
        (ask("file_write", path="a", content="b"), 3),
        (ask("other"), 3),
    ],
)
def test_everything_else_is_asked(question: PermissionQuestion, sandbox: int | None) -> None:
    """Unconfined, with a network, after untrusted output, from text, of another source, or with effects."""
    assert policy("ask", sandbox).decide(question) is None


def test_plan_denies_and_says_why() -> None:
    """The model shall say what it would do."""
    decision = policy("plan").decide(bash("rm x"))
    assert decision is not None
    assert not decision.approve
    assert "plan mode" in decision.reason


def test_auto_edit_writes_files_and_asks_for_commands() -> None:
    """Only local edits, and not after untrusted output."""
    chosen = policy("auto-edit")
    decision = chosen.decide(ask("file_edit", path="a", old="b", new="c"))
    assert decision is not None
    assert decision.approve
    assert chosen.decide(bash("rm x")) is None
    assert chosen.decide(ask("file_edit", ("untrusted output of x was read before",), path="a")) is None
    assert chosen.decide(ask("file_edit", source="mcp:x", path="a")) is None


def test_trust_asks_nothing() -> None:
    """It is only to be had from the command line and the user's configuration."""
    decision = policy("trust", 0).decide(bash("rm -rf $X"))
    assert decision is not None
    assert decision.approve


def test_the_key_goes_round_the_careful_modes() -> None:
    """Trust is never reached by a key, and left by it."""
    chosen = policy("plan")
    assert [chosen.cycle() for _ in range(3)] == ["ask", "auto-edit", "plan"]
    assert policy("trust").cycle() == "plan"


def test_always_remembers_the_whole_line_exactly_as_it_was_shown() -> None:
    """What would run beside it was not shown, not even a command that usually only reads."""
    chosen = policy()
    line = "git status && rm -rf ./tmp"
    rules = chosen.remember(bash(line), "session")
    assert rules == [Allowed(tool="bash", command=line, cwd=".", sandbox="L3")]
    for line, is_known in [
        ("git status && rm -rf ./tmp", True),
        ("git status &&  rm -rf ./tmp", False),
        ("rm -rf ./tmp", False),
        ("ls; git status && rm -rf ./tmp", False),
        ("rm -rf ./tmp2", False),
        ("rm -rf ./tmp && rm x", False),
        ("rm -rf ./tmp $(id)", False),
        ("cd / && rm -rf ./tmp", False),
    ]:
        assert (chosen.decide(bash(line)) is not None) == is_known, line


def test_a_rule_holds_at_the_level_that_was_shown_only() -> None:
    """Less confinement is another question; so is a rule of a version that did not say."""
    chosen = policy("ask", 3)
    chosen.remember(bash("make"), "session")
    assert chosen.decide(bash("make")) is not None
    chosen.sandbox = 2
    assert chosen.decide(bash("make")) is None
    chosen.allowances.add(Allowed(tool="bash", command="make x", cwd="."), "session")
    assert chosen.decide(bash("make x")) is None


def test_what_is_remembered_does_not_run_in_plan_mode() -> None:
    """A reader does, as ever; a line that was remembered may write, so it does not."""
    chosen = policy()
    chosen.remember(bash("sort -o a b", read_only=False), "session")
    decision = chosen.decide(bash("sort -o a b"))
    assert decision is not None
    assert (decision.by, decision.arguments) == ("policy: remembered command", None)
    chosen.mode = "plan"
    decision = chosen.decide(bash("sort -o a b"))
    assert decision is not None
    assert decision.by == "policy read-only"


def test_a_rule_holds_in_its_folder_only() -> None:
    """The same words mean another thing elsewhere."""
    chosen = policy()
    chosen.remember(bash("rm -rf ./tmp", cwd="src"), "session")
    assert chosen.decide(bash("rm -rf ./tmp")) is None
    assert chosen.decide(bash("rm -rf ./tmp", cwd="./src/")) is not None


@pytest.mark.parametrize(
    ("question", "sandbox"),
    [
        (bash("echo $(id) > x"), 3),
        (bash("cat <<E > x\nE"), 3),
        (bash("sh -c 'rm x'"), 3),
        (bash("find . -exec rm {} +"), 3),
        (bash("rm x > /etc/y"), 3),
        (bash("rm x", network=True), 3),
        (bash("rm x"), 1),
        (bash("rm x"), None),
        (ask("bash", ("untrusted output of x was read before",), command="rm x"), 3),
        (ask("other", ("untrusted output of x was read before",)), 3),
        (ask("untrusted", ("untrusted output of x was read before",)), 3),
        (ask("the", ("the call stood in the model's text and has effects",)), 3),
        (ask("it", ("it asks to write the git repository",)), 3),
    ],
)
def test_nothing_is_remembered_where_it_would_grant_too_much(question: PermissionQuestion, sandbox: int | None) -> None:
    """And nothing is offered to be."""
    chosen = policy("ask", sandbox)
    assert chosen.rules_for(question, "session") == []
    assert chosen.remember(question, "project") == []


def test_what_reaches_far_is_remembered_for_the_session_only() -> None:
    """git push, package installs."""
    chosen = policy()
    assert chosen.rules_for(bash("git push"), "session") != []
    assert chosen.rules_for(bash("git push"), "project") == []


def test_another_tool_is_remembered_by_its_name() -> None:
    """Whatever its arguments, for the session only, and not in plan mode."""
    chosen = policy()
    assert chosen.rules_for(ask("deploy", source="python", a=1), "project") == []
    chosen.remember(ask("deploy", source="python", a=1), "session")
    assert chosen.decide(ask("deploy", source="python", a=2)) is not None
    chosen.mode = "plan"
    decision = chosen.decide(ask("deploy", source="python", a=2))
    assert decision is not None
    assert not decision.approve


def test_arguments_that_are_no_object_are_asked_about() -> None:
    """The question can still be shown."""
    call = CallItem(call_id="c", name="bash", arguments="[1", side="server")
    question = question_of(ApprovalRequested(index=0, call=call, approval_id="a", source="local"), "/w")
    assert (question.arguments, question.raw) == ({}, "[1")
    assert policy().decide(question) is None


def test_rules_of_a_project_outlive_the_terminal(tmp_path: Path) -> None:
    """In the user's data directory, readable by them alone; other projects keep theirs."""
    file = tmp_path / "deep" / "allowed.json"
    rule, other = Allowed(tool="bash", command="make", cwd="."), Allowed(tool="x")
    Allowances("/a", file).add(rule, "project")
    Allowances("/b", file).add(other, "project")
    again = Allowances("/a", file)
    assert (again.project, rule in again, other in again) == ([rule], True, False)
    assert file.stat().st_mode & 0o777 == 0o600
    again.remove(rule)
    assert Allowances("/a", file).project == []
    assert Allowances("/b", file).project == [other]


def test_rules_of_a_session_are_forgotten_with_it(tmp_path: Path) -> None:
    """A broken file holds no rules."""
    (tmp_path / "allowed.json").write_text("{", encoding="utf-8")
    allowances = Allowances("/a", tmp_path / "allowed.json")
    allowances.add(Allowed(tool="x"), "session")
    allowances.add(Allowed(tool="x"), "session")
    assert len(allowances.session) == 1
    allowances.forget()
    assert Allowed(tool="x") not in allowances


NAMED = ("file_write always needs approval", "it asks to write protected paths: AGENTS.md")


@pytest.mark.parametrize("mode", ["ask", "auto-edit", "trust"])
def test_a_protected_path_is_asked_about_by_its_name(tmp_path: Path, mode: Mode) -> None:
    """No mode and no rule for the tool answers; a rule for the path does, for both tools, and for no other path."""
    asked = ask("file_write", NAMED, path="./AGENTS.md", content="x", protected=True)
    made = PermissionPolicy(mode, Allowances("/w", tmp_path / "allowed.json"), sandbox=3)
    made.allowances.add(Allowed(tool="file_write"), "session")
    assert made.decide(asked) is None
    assert [rule.words for rule in made.rules_for(asked, "project")] == ["writing the protected path AGENTS.md"]
    made.remember(asked, "project")
    again = PermissionPolicy(mode, Allowances("/w", tmp_path / "allowed.json"), sandbox=3)
    edited = ask("file_edit", path="AGENTS.md", old="x", new="y", protected=True)
    assert [(each.approve, each.by) for each in (again.decide(asked), again.decide(edited)) if each] == [
        (True, "policy: remembered AGENTS.md")
    ] * 2
    other = ask("file_write", path="CLAUDE.md", content="x", protected=True)
    tainted = ask("file_write", (*NAMED, "untrusted output of x was read before"), path="AGENTS.md", protected=True)
    shell = bash("echo > AGENTS.md", protected=["AGENTS.md"])
    assert [again.decide(each) for each in (other, tainted, shell)] == [None] * 3
    assert again.rules_for(shell, "session") == []
    planned = PermissionPolicy("plan", again.allowances, sandbox=3).decide(other)
    assert planned is not None
    assert not planned.approve


def test_a_git_write_is_asked_about_whatever_was_remembered() -> None:
    """Also a command that only reads is one when it asks to write."""
    reasons = ("bash always needs approval", "it asks to write the git repository")
    asked = ask("bash", reasons, command="git status", git=True)
    for mode in ("ask", "auto-edit"):
        assert policy(mode).decide(asked) is None
        assert policy(mode).rules_for(asked, "session") == []
