"""git obeys the settings of whatever repository it is started in, so Treadle starts it in one place only."""

import ast
from collections.abc import Iterator

from rules.tree import modules, parsed, shown

PLACES = {
    "src/treadle/tools/git_command.py": "the helper that turns off what a repository makes git run",
    "src/treadle/terminal/permissions/known_programs.py": "tables of what programs do; nothing is started",
}
ARGUMENTS = {
    "src/treadle/core/tool_definitions.py": "the name of an argument of bash",
    "src/treadle/terminal/permissions/permission_policy.py": "the name of an argument of bash",
    "src/treadle/tools/local/bash_tool.py": "the name of an argument, and a word that is looked for in command lines",
    "src/treadle/runs/approvals/remembered_rules.py": "the name of an argument of bash",
}


def started(tree: ast.Module) -> Iterator[int]:
    """Yield the line of each text that could be the name of the program, or a command line of it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            first = node.value.split(" ")[0]
            first = first.rpartition("/")[2] if first.startswith("/") else first
            is_prose = " " in node.value and not node.value.startswith(("git -", "git diff", "git status", "git log"))
            if first == "git" and not is_prose:
                yield node.lineno


def test_git_is_started_in_one_place() -> None:
    """Any other module asks `run_git`."""
    names = {**PLACES, **ARGUMENTS}
    found = {shown(path): list(started(parsed(path))) for path in modules() if shown(path) not in names}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_rule_sees_a_start() -> None:
    """As a word of a command, with its path, and as a command line."""
    for code in (
        'run(["git", "status"])',
        'run("/usr/bin/git", "x")',
        'shell("git diff HEAD")',
        'run(*("git", *more))',
    ):
        assert list(started(ast.parse(code))) == [1], code
