import pathlib
from typing import Any

import pytest

from treadle.core.errors import ToolError
from treadle.core.json import read_json
from treadle.tools import ToolContext
from treadle.tools.local import outline as outline_module
from treadle.tools.local.outline import LANGUAGES, make_outline
from treadle.tools.local.safe_open import Root
from treadle.tools.result_rendering import write_text

WORDS = "Not valid UTF-8: bytes that could not be decoded were replaced by U+FFFD, once."
SOURCES = {
    "a.py": (
        "class A:\n    @x\n    def b(self): ...\n\n\nasync def c():\n    pass\n",
        ["class A:", "  def b(self): ...", "async def c():"],
    ),
    "a.js": ("class A {\n  b() {}\n}\nfunction c() {}\n", ["class A", "  b() {}", "function c() {}"]),
    "a.ts": ("interface I {}\nenum E {}\nexport class A<T> {\n  b(): void {}\n}\n", None),
    "a.tsx": ("function App() { return <b/> }\n", ["function App() { return <b/> }"]),
    "a.go": ("package m\n\ntype T struct {\n}\n\nfunc (t T) M() {\n}\n", ["type T struct", "func (t T) M()"]),
    "a.rs": ("struct S;\nimpl S {\n    fn f() {}\n}\n", ["struct S;", "impl S", "  fn f() {}"]),
    "a.c": ("struct s { int x; };\nstruct s v;\nint main(void)\n{\n}\n", ["struct s { int x; };", "int main(void)"]),
    "A.java": ("class A {\n  void m() {\n  }\n}\n", ["class A", "  void m()"]),
    "a.sh": ("f() {\n  :\n}\n", ["f()"]),
}


def outline(place: pathlib.Path, path: str, bytes_max: int = 65_536) -> dict[str, Any]:
    """Run the tool and return what the model reads."""
    answer = make_outline(Root(place))(ToolContext(output_bytes_max=bytes_max), path)
    return read_json(write_text(answer, "s3"))


@pytest.mark.parametrize("name", SOURCES)
def test_definitions_are_listed_with_their_lines(tmp_path: pathlib.Path, name: str) -> None:
    """Nested ones are indented; a mere use of a type is none."""
    source, expected = SOURCES[name]
    (tmp_path / name).write_text(source)
    if outline_module._parser(LANGUAGES[pathlib.Path(name).suffix]) is None and not name.endswith(".py"):
        pytest.skip("the grammar is not installed")
    found = outline(tmp_path, name)
    lines = [line.split("\t")[1] for line in found["output"].splitlines()]
    assert lines == (expected or ["interface I {}", "enum E {}", "export class A<T>", "  b(): void {}"])
    assert found["count"] == len(lines)


def test_python_needs_no_grammar(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one its own parser is used, and other languages say what is missing."""
    monkeypatch.setattr(outline_module, "_parser", lambda grammar: None)
    (tmp_path / "a.py").write_text(SOURCES["a.py"][0])
    assert outline(tmp_path, "a.py")["count"] == 3
    (tmp_path / "bad.py").write_text("def (")
    (tmp_path / "a.go").write_text("package m")
    for name, code in (("bad.py", "invalid_source"), ("a.go", "outline_not_available")):
        with pytest.raises(ToolError) as caught:
            outline(tmp_path, name)
        assert caught.value.info.code == code


def test_what_has_no_outline_is_refused(tmp_path: pathlib.Path) -> None:
    """Other files, folders, and what is not there."""
    (tmp_path / "a.txt").write_text("x")
    for name, code in (("a.txt", "outline_not_available"), (".", "not_a_file"), ("none.py", "not_found")):
        with pytest.raises(ToolError) as caught:
            outline(tmp_path, name)
        assert caught.value.info.code == code


def test_a_long_outline_says_where_it_stopped(tmp_path: pathlib.Path) -> None:
    """At most 400 symbols, and what fits."""
    (tmp_path / "a.py").write_text("".join(f"def f{number}(): ...\n" for number in range(500)))
    found = outline(tmp_path, "a.py")
    assert len(found["output"].split("\n")) == 400
    assert (found["count"], found["truncated"], found["next"]) == (500, True, {"tool": "file_read", "offset": 401})
    narrow = outline(tmp_path, "a.py", bytes_max=1_000)
    assert (narrow["count"], narrow["next"]["offset"]) == (500, len(narrow["output"].split("\n")) + 1)


def test_a_long_definition_is_cut_and_says_so(tmp_path: pathlib.Path) -> None:
    """The line ends in a sign, and the result is not called whole."""
    (tmp_path / "a.py").write_text(f"def {'f' * 200}(): ...\n")
    assert outline(tmp_path, "a.py") == {
        "output": f"     1\tdef {'f' * 156}…",
        "count": 1,
        "truncated": True,
    }


def test_bytes_that_are_no_utf_8_are_said(tmp_path: pathlib.Path) -> None:
    """A definition is shown with a sign in their place, and a warning."""
    (tmp_path / "a.sh").write_bytes(b"caf\xe9() {\n  :\n}\n")
    pytest.importorskip("tree_sitter_bash")
    found = outline(tmp_path, "a.sh")
    if found["count"]:
        assert found["warnings"] == [WORDS]
