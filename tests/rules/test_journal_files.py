"""The files of a SQLite journal are opened by SQLite alone, in one place: `journal/sqlite/database_files.py`."""

import ast
from collections.abc import Iterator

import pytest

from rules.tree import modules, parsed, shown

CONNECTS = "src/treadle/journal/sqlite/connection.py"
NEAR = (
    "src/treadle/journal/",
    "src/treadle/cli/doctor/",
    "src/treadle/cli/open_journal.py",
    *(
        f"src/treadle/cli/commands/{name}_command.py"
        for name in ("audit", "cassette", "diff", "export", "logs", "plan", "replay", "sessions", "store")
    ),
)
"""Where paths of journals are at hand."""
OPENS = {
    ("src/treadle/journal/sqlite/database_files.py", "create"): "makes an empty file where there is none",
    (
        "src/treadle/journal/sqlite/open_file_lock.py",
        "_enter",
    ): "a file of its own beside the journal, which SQLite does not know",
    (
        "src/treadle/journal/sqlite/migrations.py",
        "read_migrations",
    ): "the steps of the schema, which are part of the package",
    ("src/treadle/journal/postgres/migrations.py", "read_migrations"): "the steps of the schema",
    ("src/treadle/journal/sqlite/backup.py", "_part"): "a copy, before it has the name under which it can be opened",
    ("src/treadle/journal/postgres/backup.py", "back_up"): "what pg_dump writes",
    ("src/treadle/cli/commands/export_command.py", "written"): "what `treadle export` writes",
    ("src/treadle/cli/commands/audit_command.py", "_in_file"): "what `treadle export` wrote",
    ("src/treadle/cli/doctor/journal_file_checks.py", "_locks"): "/proc/locks",
    ("src/treadle/cli/doctor/journal_file_checks.py", "_name_of"): "/proc/PID/comm",
    ("src/treadle/cli/doctor/gateway_checks.py", "_two_secrets"): "the secret beside the journal",
}
READS = frozenset({"read_bytes", "read_text", "write_bytes", "write_text", "copy", "copyfile", "copy2", "copyfileobj"})
MODES = frozenset("rwaxb+t")


def opened(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the function and the line of each place that opens a file."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((function.name, node.lineno) for node in ast.walk(function) if _opens(node))


def _opens(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id="open"):
            return True
        case ast.Attribute(value=ast.Name(id="os" | "io"), attr="open"):
            return True
        case ast.Attribute(attr="open"):
            return bool(node.args) and isinstance(node.args[0], ast.Constant) and set(str(node.args[0].value)) <= MODES
        case ast.Attribute(value=ast.Name(id="self")):
            return False
        case ast.Attribute(attr=name):
            return name in READS and not (name == "copy" and not node.args)
        case _:
            return False


def _connects(tree: ast.Module) -> list[int]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [each.lineno for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "Connection"]


def test_one_module_connects_to_sqlite() -> None:
    """What it must see to, it sees to there."""
    found = {shown(path): _connects(parsed(path)) for path in modules() if "apsw" in path.read_text(encoding="utf-8")}
    assert [name for name, lines in found.items() if lines] == [CONNECTS]


def test_no_module_imports_another_sqlite() -> None:
    """Two copies of SQLite in one process undo each other's locks."""
    found = [
        shown(path)
        for path in modules()
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.Import) and any(each.name.split(".")[0] == "sqlite3" for each in node.names))
        or (isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "sqlite3")
    ]
    assert found == []


def test_nothing_near_a_journal_opens_files_but_in_places_with_a_reason() -> None:
    """Each place is known, and none of them is left on the list when it is gone."""
    near = [path for path in modules() if shown(path).startswith(NEAR)]
    found = {(shown(path), function): line for path in near for function, line in opened(parsed(path))}
    assert {place: line for place, line in found.items() if place not in OPENS} == {}
    assert [place for place in OPENS if place not in found] == []


@pytest.mark.parametrize(
    "code",
    ["open(path)", "os.open(path, 0)", "path.open('rb')", "path.read_bytes()", "shutil.copyfile(path, other)"],
)
def test_every_way_of_opening_is_seen(code: str) -> None:
    """The rule above would notice each of them."""
    assert list(opened(ast.parse(f"def f(path):\n    {code}\n"))) == [("f", 2)]


@pytest.mark.parametrize("code", ["store.open()", "await self.open(place)", "row.copy()", "self.read_text(value)"])
def test_what_only_sounds_like_it_is_not_meant(code: str) -> None:
    """Stores are opened too, and rows copied."""
    assert list(opened(ast.parse(f"async def f(path):\n    {code}\n"))) == []
