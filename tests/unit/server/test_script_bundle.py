"""Modules put into one: what they take from each other, from others, and what cannot be one."""

import pytest

from treadle.server.script_bundle import NotJoinable, bundle

UI = 'import { h } from "../vendor/preact.js";\n\nexport { h };\nexport function show() {}\n'
PART = 'import { show } from "../shared/ui.js";\nexport const part = () => show();\n'
PAGE = """import hljs from "../vendor/core.js";
import { h, show } from "../shared/ui.js";
import { part } from "./part.js";
export async function start() {
  const { more } = await import("../shared/more.js");
  more(part, h, show, hljs);
}
"""
HOMES = {"shared/ui.js": "shared.js"}


def test_modules_become_one() -> None:
    """What is in it is not imported any more; what is elsewhere is imported once, from the file that holds it."""
    assert bundle({"chat/part.js": PART, "chat/page.js": PAGE}, "/web/", HOMES) == (
        'import { show, h } from "/web/shared.js";\n'
        'import { default as hljs } from "/web/vendor/core.js";\n'
        "const part = () => show();\n"
        "async function start() {\n"
        '  const { more } = await import("/web/shared/more.js");\n'
        "  more(part, h, show, hljs);\n"
        "}\n"
    )


def test_what_others_use_stays_exported() -> None:
    """The joined file has the names that its modules had."""
    joined = bundle({"shared/ui.js": UI}, "/web/", HOMES, exports=True)
    assert joined == 'import { h } from "/web/vendor/preact.js";\n\nexport { h };\nexport function show() {}\n'


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (("const a = 1;\n", "export function a() {}\n"), "a is in 0.js and in 1.js"),
        (('import { b } from "./x.js";\n', "class b {}\n"), "b is in 1.js and in what is imported"),
        (('import * as b from "./x.js";\n',), "an import is not on a line of its own"),
        (('import "./x.js";\n',), "an import is not on a line of its own"),
        (("const here = import.meta.url;\n",), "an import is not on a line of its own"),
    ],
)
def test_what_cannot_be_one_is_refused(sources: tuple[str, ...], words: str) -> None:
    """A name that stands for two things would break a page silently; so would an import in another form."""
    with pytest.raises(NotJoinable, match=words):
        bundle({f"{number}.js": source for number, source in enumerate(sources)}, "/web/", {})


def test_a_renamed_import_is_refused_where_its_name_is_taken() -> None:
    """What an import is called here counts."""
    with pytest.raises(NotJoinable, match=r"here is in a\.js"):
        bundle({"a.js": 'import { place as here } from "./x.js";\nconst here = 1;\n'}, "/web/", {})


@pytest.mark.parametrize("taken", ["{ place as here }", "place"])
def test_another_name_for_what_is_in_the_same_file_is_refused(taken: str) -> None:
    """Nobody would have that name."""
    with pytest.raises(NotJoinable, match="another name"):
        bundle({"a.js": "export const place = 1;\n", "b.js": f'import {taken} from "./a.js";\n'}, "/web/", {})
