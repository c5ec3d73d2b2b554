"""What is left out of a script before it is sent, and what is not."""

from importlib.resources import files
from pathlib import Path

import pytest

from treadle.server.script_minify import minify

WEB = Path(str(files("treadle.server") / "web"))


@pytest.mark.parametrize(
    ("source", "sent"),
    [
        ("// why\nconst a = 1; // because\n/* more */ let b;\n", "const a=1;let b;"),
        ("const a = /** @type {any} */ (b);", "const a=(b);"),
        ('const url = "http://x//y"; // end', 'const url="http://x//y";'),
        ("const a = 'it\\'s // not';", "const a='it\\'s // not';"),
        ("const half = a / b / c;", "const half=a/b/c;"),
        ('const re = /\\/\\*[/*]"`/g; // x', 'const re=/\\/\\*[/*]"`/g;'),
        ("if (!/^ +/.test(a)) return /x y/;", "if(!/^ +/.test(a))return/x y/;"),
        ("a + +b - -c + ++d", "a+ +b- -c+ ++d"),
        ("typeof a in b", "typeof a in b"),
        ("return\na", "return\na"),
        ("a()\nb()", "a()\nb()"),
        ("f({\n  a,\n  b: [\n    1,\n  ],\n});\ng();", "f({a,b:[1,],});g();"),
        ("const a = b\n  ? c\n  : d;", "const a=b?c:d;"),
        ("`a  //  ${ b /* no */ + `  ${ c }  ` }  \\` d`", "`a  //  ${b+`  ${c}  `}  \\` d`"),
        ("`$ {x} ${ { a: 1 }.a } }`", "`$ {x} ${{a:1}.a} }`"),
        (
            "html`<p>\n    a  b\n    ${ c }\n  </p>\n  <b x=1\n    y=2></b>`",
            "html`<p>\na  b\n${c}</p><b x=1\ny=2></b>`",
        ),
        ("text`<p>\n    ${ c }\n  </p>`", "text`<p>\n    ${c}\n  </p>`"),
    ],
)
def test_comments_and_blanks_go_and_nothing_else_does(source: str, sent: str) -> None:
    """Strings, templates, regular expressions and ends of statements are as they were."""
    assert minify(source) == sent


@pytest.mark.parametrize("path", sorted(WEB.glob("[cs]*/*.js")), ids=lambda path: path.name)
def test_own_scripts_have_nothing_to_leave_out_twice(path: Path) -> None:
    """What was left out is all that could be, and no comment is among what is sent."""
    once = minify(path.read_text())
    assert minify(once) == once
    assert len(once) < len(path.read_text())
    assert "/**" not in once
