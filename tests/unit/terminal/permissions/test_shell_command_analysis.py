"""Command lines taken apart: every simple command, and what forbids remembering."""

import pytest

from treadle.terminal.permissions.shell_command_analysis import parse


def texts(line: str) -> list[str]:
    """Return the simple commands."""
    return [each.text for each in parse(line, root="/w").commands]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("ls", ["ls"]),
        ("git status &&\n rm -rf ./tmp", ["git status", "rm -rf ./tmp"]),
        ("a; b || c | d & e", ["a", "b", "c", "d", "e"]),
        ("# only a comment\nrm x", ["rm x"]),
        ("(cd x; ls)", ["cd x", "ls"]),
        ("{ a; b; }", ["a", "b"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done", ["a", "b"]),
        ("! rm x", ["rm x"]),
        ("echo a > b.txt", ["echo a > b.txt"]),
        ("[ -f x ] && [[ -d y ]]", ["[ -f x ]", "[[ -d y ]]"]),
        ("case x in a) b;; esac", ["b"]),
    ],
)
def test_every_simple_command_of_a_compound_is_found(line: str, commands: list[str]) -> None:
    """Wherever it stands."""
    assert texts(line) == commands


@pytest.mark.parametrize(
    "line",
    [
        *("ls", "ls -la src", "cat a b", "head -3 x", "git status", "git log --oneline -3", "rg -n foo src", "pwd"),
        *(
            "find . -name '*.py'",
            "python --version",
            "ls 2>&1 | head -3 2>/dev/null",
            "grep -rn foo . | sort | uniq -c",
        ),
        *("ls *.py", "[ -f x ]", "wc -l < x", "sort src/*.txt"),
    ],
)
def test_commands_that_usually_only_read_are_known(line: str) -> None:
    """They are tried read-only."""
    parsed = parse(line, root="/w")
    assert parsed.hazards == ()
    assert all(each.reads for each in parsed.commands)


@pytest.mark.parametrize(
    "line",
    [
        *("rm x", "ls > x", "ls >> x", "ls >| x", "ls &> x", "git checkout .", "git -c core.pager=x log"),
        *("python x.py", "python -c 'x'", "git", "pip list", "\\rm x", "r'm' x", "./ls"),
    ],
)
def test_what_usually_writes_is_no_reader(line: str) -> None:
    """It would fail read-only, so a person is asked at once."""
    assert not all(each.reads for each in parse(line, root="/w").commands) or parse(line, root="/w").hazards


@pytest.mark.parametrize(
    ("line", "hazard"),
    [
        ("[[ 'a[$(id)]' -eq 1 ]]", "a test may run another command"),
        ("[[ x -eq 'a[`id`]' ]]", "a test may run another command"),
        ("[ -v 'a[$(id)]' ]", "a test may run another command"),
        ("test -v 'a[$(id)]' && ls", "a test may run another command"),
        ('[[ -v "a[\\$(id)]" ]]', "a test may run another command"),
        ("echo $(id)", "substitution"),
        ("echo `id`", "substitution"),
        ("diff <(a) <(b)", "substitution"),
        ("cat <<E\nx\nE", "here-document"),
        ("cat <<< x", "here-string"),
        ("rm $X", "variable"),
        ("rm ${X}", "variable"),
        ("A=1 ls", "variable is set"),
        ("PATH=.", "variable is set"),
        ("export PATH=.", "variable is set"),
        ("for PATH in .; do ls; done", "variable is set"),
        ("f() { rm x; }; f", "function"),
        ("bash -c 'rm x'", "bash runs another command"),
        ("/bin/sh -c ls", "/bin/sh runs another command"),
        ("sudo rm x", "sudo runs another command"),
        ("xargs rm", "xargs runs another command"),
        ("find . -exec rm {} +", "-exec runs another command"),
        ("eval ls", "eval runs another command"),
        ("echo {-delete,x}", "braces"),
        ("ls > ../x", "leaves the folder"),
        ("ls > /etc/x", "leaves the folder"),
        ("ls > ~/x", "leaves the folder"),
        ("echo 'open", "parsed"),
        ("ls &&", "parsed"),
        ("((PATH=1)); ls", "more than commands"),
        ("{ rm a; rm b; } > x", "redirected together"),
        ("echo $'\\x41'", "escapes"),
    ],
)
def test_nothing_is_remembered_of_what_is_not_known_before_it_runs(line: str, hazard: str) -> None:
    """And none of it runs unasked."""
    hazards = parse(line, root="/w").hazards
    assert any(hazard in each for each in hazards), hazards


@pytest.mark.parametrize(
    "line",
    [
        *("rm x", "git status && rm -rf ./tmp", "make; make x", "a | b", "(cd x; ls)", "if a; then b; fi"),
        *("echo 'a; b' && c", 'echo "a | b"; c', "a &\nb", "a > c.txt; b"),
    ],
)
def test_a_line_that_is_read_in_one_way_only_is_explained(line: str) -> None:
    """Its commands are all that it does."""
    assert parse(line, root="/w").is_explained


@pytest.mark.parametrize(
    "line",
    [
        *(
            "ls a\r#; touch X",
            "echo ==\ntouch X",
            "[ a ]#;touch X",
            "find . -ex\\\nec touch X ';'",
            "find . -e[x]ec x ';'",
        ),
        *("[[ PATH=1 -eq 1 ]]; ls", "ls # a\nrm x", "echo $(rm x)", "case x in a) b;; esac", "echo 'a", "a\u00a0b; c"),
        *(
            "echo {a,b}; rm x",
            "echo \\; rm x",
            "true; > file",
            "cat <<E\nrm\nE",
            "rm ~/x; ls",
            "bash -c 'rm x'",
            "! a || b",
        ),
    ],
)
def test_a_line_that_may_do_more_than_its_commands_say_is_not_explained(line: str) -> None:
    """Then only the line itself is shown: less would be shown than bash does."""
    assert not parse(line, root="/w").is_explained


def test_the_network_and_the_machine_are_far() -> None:
    """Only for a session."""
    assert [each.is_far for each in parse("git push; pip install x; curl x; git status; rm x").commands] == [
        *(True, True, True, False, False)
    ]


def test_two_spellings_of_a_command_are_two_commands() -> None:
    """An escaped space and an escaped line end are not the same."""
    assert texts("rm \\ x") != texts("rm \\\n x")


def test_a_flood_of_commands_is_bounded() -> None:
    """More than a person reads is not remembered."""
    parsed = parse("; ".join(["ls"] * 500))
    assert len(parsed.commands) == 100
    assert "it holds too many commands" in parsed.hazards


@pytest.mark.parametrize("line", ["", " ", "\x00", "\ud800", "&&", "((((", "a" * 70_000, "$(" * 2_000])
def test_any_text_is_survived(line: str) -> None:
    """The model writes what it likes."""
    parse(line, root="/w")
